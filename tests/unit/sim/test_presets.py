# SPDX-License-Identifier: Apache-2.0
"""What --policy best is, end to end."""

import os
from pathlib import Path

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.planning.schedules import native
from slurm_coloc.sim.forecast import Forecast
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.policies import best_assumes, best_policy, best_setting, policy
from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.search.clairvoyant.search import best_known
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, simulate
from slurm_coloc.sim.trace import TraceJob

FACTS = Path(os.environ.get("COLOC_FACTS", Path(__file__).parents[4] / "shared" / "facts"))


def job(number: int, name: str, run_s: float, smact: float = 0.5) -> TraceJob:
    return TraceJob(number, name, number * 60.0, 1, run_s, 8000, Activity(smact))


def both(jobs: list[TraceJob], gpus: str) -> tuple[dict[str, object], dict[str, object]]:
    machine = parse_machine(gpus)
    setting = best_setting(Setting(), machine.gpus)
    best = simulate(Experiment(jobs, machine, best_policy(), setting))
    return best, simulate(Experiment(jobs, machine, policy("exclusive"), Setting(depth=50)))


def test_best_is_the_same_twice_and_better_than_exclusive() -> None:
    jobs = [job(n, f"net{n % 4}", 900.0 + 400 * (n % 4)) for n in range(14)]
    machine = parse_machine("2xa100-40gb")
    setting = best_setting(Setting(), machine.gpus)
    experiment = Experiment(jobs, machine, best_policy(), setting)
    assert simulate(experiment) == simulate(experiment)
    best, alone = both(jobs, "2xa100-40gb")
    assert best["makespan_s"] < 0.8 * alone["makespan_s"]  # type: ignore[operator]
    assert best["oom"] == 0


@pytest.mark.skipif(not FACTS.is_dir(), reason="the thesis' traces are not here (COLOC_FACTS)")
def test_best_saves_most_of_what_can_be_saved() -> None:
    """Of the smaller trace; make paper has both."""
    jobs = read_trace(FACTS / "jobs_60.csv")
    best, alone = both(jobs, "4xa100-40gb")
    bound = best["bound_s"]
    saving = (alone["makespan_s"] - best["makespan_s"]) / (alone["makespan_s"] - bound)  # type: ignore[operator]
    assert saving > 0.8, saving
    assert best["oom"] == 0 and best["timeouts"] == 0


def test_a_guess_counts_those_that_still_run() -> None:
    forecast = Forecast(guesses=True)
    forecast.learn(job(1, "a", 100.0))
    short = forecast.expect(job(2, "b", 1.0))
    long = forecast.expect(job(2, "b", 1.0), [(job(3, "a", 1.0), 5000.0)])
    assert short is not None and long is not None and long.run_s > short.run_s


def test_a_guess_looks_at_like_names() -> None:
    forecast = Forecast(guesses=True)
    forecast.learn(job(1, "vgg16|imagenet|bs32", 3000.0))
    forecast.learn(job(2, "resnet18|cifar|bs128", 100.0))
    guessed = forecast.expect(job(3, "vgg16|imagenet|bs64", 1.0))
    assert guessed is not None and guessed.run_s > 1000.0


def test_without_guesses_nobody_knows() -> None:
    forecast = Forecast()
    forecast.learn(job(1, "a", 100.0))
    assert forecast.expect(job(2, "b", 1.0)) is None
    found = forecast.expect(job(3, "a", 1.0))
    assert found is not None and found.run_s == 100.0


def test_best_says_where_it_does_not_plan() -> None:
    """Beyond 32 GPUs."""
    assert "32 GPUs" not in " ".join(best_assumes(best_setting(Setting(), 32)))
    assert "32 GPUs at most" in best_assumes(best_setting(Setting(), 33))[0]


def test_without_its_c_part_best_places_greedily_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where there was no C compiler at installation."""
    jobs = [job(n, f"net{n % 4}", 900.0 + 400 * (n % 4)) for n in range(14)]
    machine = parse_machine("2xa100-40gb")
    setting = best_setting(Setting(), machine.gpus)
    assert "--logs" in best_assumes(setting)[0]
    monkeypatch.setattr(native, "MODULE", "slurm_coloc.planning.schedules._none")
    greedy = simulate(Experiment(jobs, machine, policy("interference"), setting))
    best = simulate(Experiment(jobs, machine, best_policy(), setting))
    assert best["makespan_s"] == greedy["makespan_s"]
    assert "no C compiler" in best_assumes(setting)[0]
    with pytest.raises(UsageFault, match="install gcc"):
        best_known(jobs, machine)
