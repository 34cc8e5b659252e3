# SPDX-License-Identifier: Apache-2.0
"""What is assumed of past jobs, and the admin's page made of them."""

from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.assume import MEMORY, SMACT, Assumed, fill, level
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.outcome import Piece
from slurm_coloc.sim.page.figures import Page, busy_s, neighbours, page, sums
from slurm_coloc.sim.page.text import Text, markdown, text_of
from slurm_coloc.sim.past import Past, PastJob, gpu_type
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.readers.sacct import read_sacct
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment
from tests.unit.sim.month import lines

GPU_MIB = 40410


def past(number: int, **more: object) -> PastJob:
    values = {"submit_s": 100.0 + number, "start_s": 200.0, "run_s": 50.0, "gpus": 1, **more}
    return PastJob(id=str(number), **values)  # type: ignore[arg-type]


def test_a_drawn_trace_has_the_means_that_were_assumed() -> None:
    jobs = fill(Past([past(i) for i in range(3000)]), Assumed(0.3, 0.6), 1, GPU_MIB).jobs
    assert fmean(job.activity.smact for job in jobs) == pytest.approx(0.3, abs=0.02)
    assert fmean(job.memory_mib for job in jobs) == pytest.approx(0.6 * GPU_MIB, rel=0.03)
    assert all(0 < job.activity.smact <= 1 and 544 <= job.memory_mib <= GPU_MIB for job in jobs)


def test_the_middle_is_what_its_source_says() -> None:
    """55 % of the jobs at half of the GPU's memory or below (arXiv 2502.18680)."""
    jobs = fill(Past([past(i) for i in range(4000)]), Assumed(), 1, GPU_MIB).jobs
    below = fmean(job.memory_mib <= GPU_MIB / 2 for job in jobs)
    assert below == pytest.approx(0.55, abs=0.03)


def test_what_is_recorded_is_used() -> None:
    job, bounded, several = fill(
        Past([
            past(1, peak_mib=7000),
            past(2, shown_ratio=0.1),
            past(3, gpus=4, user="ada", account="lab", limit_s=60.0, cpus=8, host_mib=9),
        ]),
        Assumed(0.9, 0.5), 1, GPU_MIB,
    ).jobs  # fmt: skip
    assert job.memory_mib == 7000 and job.submit_s == 0 and job.coloc
    assert bounded.activity.smact <= 0.1
    assert not several.coloc and (several.user, several.limit_s, several.cpus) == ("ada", 60.0, 8)


def test_a_draw_hangs_on_seed_and_job_alone() -> None:
    """Tasks of an array are one training; leaving out a job changes no other."""
    runs = [past(1, group="7"), past(2, group="7"), past(3)]
    first = fill(Past(runs), Assumed(), 1, GPU_MIB).jobs
    assert first[0].memory_mib == first[1].memory_mib != first[2].memory_mib
    assert fill(Past(runs[1:]), Assumed(), 1, GPU_MIB).jobs[1].memory_mib == first[2].memory_mib
    assert fill(Past(runs), Assumed(), 2, GPU_MIB).jobs[0].memory_mib != first[0].memory_mib


def test_assumptions_are_said_and_checked() -> None:
    said = fill(Past([past(1, peak_mib=5), past(2)]), Assumed(joining=0.5), 1, GPU_MIB).said
    assert "GPU memory of 1 run: as recorded" in said
    assert any("45% of the GPU (39 GiB)" in line for line in said)
    assert any("50% of the jobs" in line for line in said)
    assert level("high", SMACT, "--x") == 0.6 and level("0.3", MEMORY, "--x") == 0.3
    for wrong in ("0", "1", "40", "nan", "much"):
        with pytest.raises(UsageFault, match=f"--x {wrong}: one of low, mid, high"):
            level(wrong, SMACT, "--x")
    with pytest.raises(UsageFault, match="no run of a job"):
        fill(Past([]), Assumed(), 1, GPU_MIB)


def test_memory_is_a_part_of_the_gpu_that_a_run_had() -> None:
    """Whatever the cluster that is simulated has."""
    runs = [
        past(i, kind=kind) for i, kind in enumerate(["nvidia_h100_80gb_hbm3", "a100", "x"] * 99)
    ]
    jobs = fill(Past(runs), Assumed(0.4, 0.9), 1, 100_000).jobs
    most = [max(job.memory_mib for job in jobs[first::3]) for first in range(3)]
    assert 70_000 < most[0] < 81_559 and 35_000 < most[1] < 40_960 and most[2] > 90_000


@pytest.mark.parametrize(
    ("slurm", "ours"),
    [
        ("a100", "a100-40gb"),
        ("A100-80GB", "a100-80gb"),
        ("nvidia_a100-sxm4-80gb", "a100-80gb"),
        ("nvidia_h100_80gb_hbm3", "h100-80gb"),
        ("tesla_v100-sxm2-32gb", "v100-32gb"),
        ("h200", "h200-141gb"),
        ("voodoo", ""),
        ("", ""),
    ],
)
def test_gpu_types_as_slurm_writes_them(slurm: str, ours: str) -> None:
    assert gpu_type(slurm) == ours


PIECES = [
    Piece(1, 0, 0, 100, 5),
    Piece(2, 0, 50, 80, 5),
    Piece(3, 0, 90, 120, 5),
    Piece(4, 0, 120, 130, 5),
    Piece(5, 1, 0, 10, 5),
]


def test_hours_in_use_and_neighbours() -> None:
    assert busy_s(PIECES) == 130 + 10
    assert neighbours(PIECES) == {1, 2, 3}
    assert sums([(0, 10, 2), (5, 20, 1)])[1:] == [(0, 2), (5, 3), (10, 1), (20, 0)]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 50), st.integers(1, 30)), max_size=12))
def test_hours_in_use_by_counting_seconds(runs: list[tuple[int, int, int]]) -> None:
    pieces = [Piece(i, slot, at, at + long, None) for i, (slot, at, long) in enumerate(runs)]
    seconds: dict[tuple[int, int], list[int]] = {}
    for one in pieces:
        for second in range(int(one.start_s), int(one.end_s)):
            seconds.setdefault((one.slot, second), []).append(one.job_id)
    assert busy_s(pieces) == len(seconds)
    assert neighbours(pieces) == {job for here in seconds.values() if len(here) > 1 for job in here}


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Text]:
    path: Path = tmp_path_factory.mktemp("month") / "sacct.txt"
    path.write_text("\n".join(lines(jobs=250, gpus=4, load=0.95)))
    found, machine = read_sacct(path), parse_machine("4xa100-40gb")
    jobs = fill(found, Assumed(), 0, GPU_MIB)
    setting = Setting(conditions=Conditions(budget=1.4), depth=50)
    shared = Experiment(jobs.jobs, machine, policy("magm"), setting, "error:0.1")
    whole = Experiment(jobs.jobs, machine, policy("exclusive"), setting, "error:0.1")
    made = page(found, Assumed(), GPU_MIB, shared, whole)
    return made, text_of(made, "4xa100-40gb", shared, jobs.said)


def test_page_hangs_together(month: tuple[Page, Text]) -> None:
    made, _ = month
    assert made.jobs == 250 and made.gpus == 4
    assert made.whole.did == 0 and made.whole.slowdown_p95 == 1
    asked_hours = 0.95 * 4 * 30 * 24
    assert made.whole.gpu_hours == pytest.approx(asked_hours, rel=0.01), "GPU hours of the file"
    assert made.saved_hours == made.whole.gpu_hours - made.shared.gpu_hours > 0
    assert 0 < made.shared.did <= made.shared.could <= 250
    assert made.shared.mean_wait_s < made.whole.mean_wait_s
    assert made.gpus_needed is not None and made.gpus_needed <= 4
    assert [case.name for case in made.cases] == ["low", "as assumed", "high"]
    light, middle, heavy = (case.side for case in made.cases)
    assert light.did > heavy.did and middle == made.shared
    assert light.gpu_hours < heavy.gpu_hours
    before, after = made.over_time
    assert max(n for _, n in before.in_use) == max(n for _, n in after.in_use) == 4
    assert before.waiting[-1][1] == after.waiting[-1][1] == 0


def test_page_in_words(month: tuple[Page, Text]) -> None:
    made, words = month
    assert words.title.startswith("Sharing GPUs: 250 runs of ") and "2026-10-0" in words.title
    assert "in the mean" in words.summary and "of the GPU hours" in words.summary
    hours = next(row for row in words.main if row[0] == "GPU hours in use")
    assert hours[1] == f"{made.whole.gpu_hours:,.0f}" and hours[3].startswith("-")
    assert len(words.cases) == 4 and "(this page)" in words.cases[2][0]
    assert any("drawn by chance" in line for line in words.said)
    assert any("the same" in line or "anyone" in line for line in words.said)
    text = markdown(words)
    assert text.startswith("# Sharing GPUs") and "## What was assumed" in text
    assert f"| {' | '.join(hours)} |" in text and "|---|---:|---:|---:|" in text


def test_jobs_that_never_meet_share_nothing() -> None:
    """Nothing waits and nothing is shared: the page says so instead of a saving."""
    found = Past([past(i, submit_s=1000.0 * i, start_s=1000.0 * i) for i in range(3)])
    machine = parse_machine("2xa100-40gb")
    jobs = fill(found, Assumed(), 0, GPU_MIB).jobs
    both = [Experiment(jobs, machine, policy(name)) for name in ("magm", "exclusive")]
    made = page(found, Assumed(), GPU_MIB, *both)
    assert made.shared.did == 0 and made.saved_hours == 0 and made.gpus_needed == 1
    assert text_of(made, "2", both[0], []).summary.startswith("Nothing would have been shared")
