# SPDX-License-Identifier: Apache-2.0
"""Pictures by their content: axes, bars, lines, labels."""

import builtins
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.machine import Machine, parse_machine
from slurm_coloc.sim.outcome import Outcome, Piece
from slurm_coloc.sim.plot.canvas import check_path, save, steps
from slurm_coloc.sim.plot.compare import PARTS, bars, before_after, means
from slurm_coloc.sim.plot.run import draw, lanes, names
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, play
from slurm_coloc.sim.trace import TraceJob

pytest.importorskip("matplotlib", reason="pictures need matplotlib (the extra plot)")

JOBS = [
    TraceJob(1, "a", 0, 1, 4000, 10000, Activity(0.3)),
    TraceJob(2, "b", 0, 1, 4000, 10000, Activity(0.3)),
    TraceJob(3, "c", 100, 2, 2000, 15000, Activity(0.8)),
    TraceJob(4, "d", 200, 1, 2000, 30000, Activity(0.5)),
]


def played(machine: Machine, jobs: list[TraceJob] = JOBS) -> Outcome:
    return play(Experiment(jobs, machine, policy("mug"), Setting(record=True)))[0]


def axes_of(figure: Any) -> dict[str, Any]:
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def bars_of(axes: Any) -> list[Any]:
    return [patch for patch in axes.patches if hasattr(patch, "get_width") and patch.get_width()]


def test_one_run_on_a_few_gpus(tmp_path: Path) -> None:
    machine = parse_machine("2xa100-40gb")
    outcome = played(machine)
    figure = draw(outcome, machine, "mug: 4 jobs")
    found = axes_of(figure)
    gantt = found["Jobs on GPUs (number: job)"]
    assert len(bars_of(gantt)) == len(outcome.pieces) == 5, "job 3 has two GPUs"
    assert [tick.get_text() for tick in gantt.get_yticklabels()] == ["GPU 0", "GPU 1"]
    assert {text.get_text() for text in gantt.texts} >= {"1", "2", "3"}
    ends = [bar.get_x() + bar.get_width() for bar in bars_of(gantt)]
    assert max(ends) == pytest.approx(outcome.makespan_s / 3600)
    memory = found["GPU memory, GiB"]
    (line,) = [line for line in memory.lines if line.get_label() == "in use"]
    assert max(line.get_ydata()) == pytest.approx(
        max(value[3] for value in outcome.tracks[0].values) / 1024
    )
    assert "SM activity" in found and len(figure.axes) == 1 + 1 + 2 * 2, "Gantt, its scale, strips"
    save(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_many_gpus_are_an_image(tmp_path: Path) -> None:
    machine = parse_machine("12xa100-40gb")
    outcome = played(machine)
    found = axes_of(draw(outcome, machine, ""))
    (image,) = found["SM activity"].images
    assert image.get_array().shape == (12, 600) and image.get_array().max() <= 1
    (image,) = found["GPU memory in use (part of the GPU)"].images
    assert image.get_array().max() > 0.5


def test_a_job_that_ran_out_is_marked() -> None:
    machine = parse_machine("1xa100-40gb")
    jobs = [replace(JOBS[0]), replace(JOBS[3], submit_s=0)]
    experiment = Experiment(jobs, machine, policy("mug"), Setting(record=True))
    jobs[1] = replace(jobs[1], memory_mib=35000, estimates={"low": 9000})
    jobs[0] = replace(jobs[0], estimates={"low": 9000})
    outcome = play(replace(experiment, jobs=jobs, estimator="low"))[0]
    assert outcome.oom == 1
    gantt = axes_of(draw(outcome, machine, ""))[
        "Jobs on GPUs (number: job; hatched: ran out of memory)"
    ]
    assert [bool(bar.get_hatch()) for bar in bars_of(gantt)].count(True) == 1


def test_lanes_of_jobs_that_share() -> None:
    def piece(job: int, start: float, end: float) -> Piece:
        return Piece(job, 0, start, end, 1)

    found = lanes([piece(1, 0, 10), piece(2, 2, 4), piece(3, 4, 12), piece(4, 12, 20)])
    assert [(one.job_id, lane, count) for one, lane, count in found] == [
        (1, 0, 2), (2, 1, 2), (3, 1, 2), (4, 0, 1),
    ]  # fmt: skip


def test_names_of_instances() -> None:
    machine = parse_machine("1xa100-40gb,1xa100-40gb:4g.20gb+3g.20gb")
    assert names(machine) == ["GPU 0", "GPU 1a", "GPU 1b"]


def test_steps_go_on_to_the_end() -> None:
    assert steps([(0, 1), (5, 2), (5, 3)], 9) == ([0, 5, 9], [1, 3, 3])
    assert steps([], 9) == ([9], [0])


FIGURES = {
    "exclusive": {"makespan_s": 7200.0, "mean_wait_s": 600.0, "energy_mj": 30.0, "oom": 0.0},
    "best": {"makespan_s": 3600.0, "mean_wait_s": 60.0, "energy_mj": 28.0, "oom": 1.0},
}


def test_policies_side_by_side() -> None:
    figure = bars(FIGURES, 3000.0, "title", spread=FIGURES)
    found = axes_of(figure)
    assert len(found) == 4
    makespan = found["Makespan, hours (dashed: bound)"]
    assert [bar.get_width() for bar in bars_of(makespan)] == [2, 1]
    assert [tick.get_text() for tick in makespan.get_yticklabels()] == ["exclusive", "best"]
    (bound,) = [line for line in makespan.lines if line.get_linestyle() == "--"]
    assert bound.get_xdata()[0] == pytest.approx(3000 / 3600)
    assert [bar.get_width() for bar in bars_of(found["Out of memory, jobs"])] == [1]
    assert figure.axes[0].get_ylim()[0] > figure.axes[0].get_ylim()[1], "first policy on top"


def test_before_and_after() -> None:
    use: Any = ([(0, 0), (10, 4), (20, 0)], [(0, 0), (10, 2), (30, 0)])
    top, bottom = before_after(use, use, 4, "title").axes
    assert [line.get_label() for line in top.patches] == ["whole GPUs", "shared"]
    assert max(top.patches[0].get_data().values) == pytest.approx(4)
    assert max(bottom.patches[1].get_data().values) == pytest.approx(2)


@given(
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 9)), max_size=20), st.integers(1, 1000)
)
def test_means_keep_the_area(points: list[tuple[int, int]], more: int) -> None:
    line: Any = [(0, 0), *sorted(points)]
    end = line[-1][0] + more
    area = sum(v * (b - a) for (a, v), (b, _) in zip(line, [*line[1:], (end, 0)], strict=True))
    assert sum(means(line, end)) * end / PARTS == pytest.approx(area, rel=1e-6)


def test_a_bad_path_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for wrong in ("a.txt", "a", "none/a.png"):
        with pytest.raises(UsageFault, match="--plot"):
            check_path(tmp_path / wrong)
    check_path(tmp_path / "a.SVG")
    with pytest.raises(UsageFault, match="cannot be written"):
        (tmp_path / "b.png").mkdir()
        save(bars(FIGURES, 1.0, ""), tmp_path / "b.png")


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = builtins.__import__

    def without(name: str, *more: Any, **others: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return whole(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageFault, match=r"pip install matplotlib"):
        check_path(tmp_path / "a.png")
