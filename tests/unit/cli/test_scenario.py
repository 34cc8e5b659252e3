# SPDX-License-Identifier: Apache-2.0
"""A scenario of coloc simulate: its file, --set, the options over them, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.cli.simulate.given import keys, scenario_of
from slurm_coloc.cli.simulate.request import request_of
from slurm_coloc.cli.texts.reference import option_of
from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.setting import Recovery, Setting
from slurm_coloc.sim.telemetry import Monitor

EXAMPLE = Path(__file__).resolve().parents[3] / "etc/examples/simulate/scenario.toml"
TRACE = EXAMPLE.with_name("trace.csv")


def setting(*sets: str, **options: Any) -> Setting:
    """What --trace, --set and options come to."""
    return request_of(scenario_of(None, sets, {"trace": TRACE, **options})).setting


def test_without_keys_the_defaults_hold() -> None:
    assert setting() == Setting(depth=50)


def test_every_key_reaches_the_setting() -> None:
    found = setting(
        "conditions.by_plan=false", "conditions.jobs=3", "conditions.share_with=account",
        "conditions.budget=1.5", "conditions.max_slowdown=2", "conditions.idle_first=true",
        "conditions.margin_mib=1", "conditions.free_mib=2", "conditions.smact_at_most=0.8",
        "conditions.smocc_at_least=0.3", "conditions.drama_at_least=0.4",
        "queue.order=priority", "queue.depth=9", "queue.run_error=0.3", "queue.logs=0.5",
        "monitor.window_s=30", "monitor.refresh_s=5", "monitor.statistic=risk",
        "memory.fence=true", "memory.ramp_s=3", "memory.settle=true", "memory.learn_peaks=true",
        "recovery.more_mib=1024,2048", "recovery.joinable=true", "recovery.first=false",
        "recovery.forgiven=2", "nodes.cpus=64", "nodes.memory_mib=1000",
        "nodes.multi_user_mps=false", "nodes.stretch=false", "nodes.max_limit_s=3600",
        "pool=2", "method=streams", "interference=fitted", "power=profiles",
    )  # fmt: skip
    assert found.conditions == Conditions(
        False, 1, 2, 0.8, 0.3, 0.4, 1.5, 3, "account", 2.0, idle_first=True
    )
    assert found.monitor == Monitor(30.0, 5.0, statistic="risk")
    assert found.recovery == Recovery(more_mib=(1024, 2048), joinable=True, first=False, forgiven=2)
    assert found.priority and (found.depth, found.run_error, found.logs) == (9, 0.3, 0.5)
    assert found.fence and found.settle and found.learn_peaks and found.ramp_s == 3
    assert (found.node_cpus, found.node_host_mib, found.max_limit_s) == (64, 1000, 3600)
    assert not found.multi_user_mps and not found.stretch
    assert (found.pool, found.method) == (2, "streams")
    assert (found.interference.name, found.power.name) == ("fitted", "profiles")


def test_the_example_and_what_wins_over_it() -> None:
    request = request_of(scenario_of(EXAMPLE, (), {}))
    assert request.compares and [one.name for one in request.policies] == ["magm", "first-fit"]
    assert len(request.world.jobs) == 40 and request.estimator == "mine" and request.runs == 10
    assert request.setting.monitor.window_s == 30
    assert request.setting.recovery.more_mib == (4096,)
    over = scenario_of(EXAMPLE, ["monitor.window_s=60", "runs=2"], {"runs": 3, "policy": ["lug"]})
    assert over.monitor.window_s == 60 and over.monitor.refresh_s == 5 and over.runs == 3
    assert over.policy == ("lug",) and over.compare == (), "a policy replaces the file's"
    other = scenario_of(EXAMPLE, (), {"sacct": Path("month.txt")})
    assert other.trace is None, "the file's jobs are replaced"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("monitr.window_s=3", "--set monitr.window_s=3: no such key; did you mean monitor.window"),
        ("window_s=3", "did you mean monitor.window_s?"),
        ("monitor.window_s=0", "must be greater than or equal to 1"),
        ("monitor.window_s=soon", "must be a valid number"),
        ("recovery.more_mib=4096,0", "--set recovery.more_mib=4096,0: must be greater"),
        ("conditions.share_with=all", "one of user, account, anyone"),
        ("runs", "not KEY=VALUE"),
    ],
)
def test_wrong_keys_and_values_are_named(given: str, words: str) -> None:
    with pytest.raises(UsageFault) as caught:
        setting(given)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("runs = 0", "scenario.toml: runs: must be greater"),
        ("[monitor]\nwindow = 3", "scenario.toml: monitor.window: no such key; did you mean"),
        ("[nothing]", "scenario.toml: nothing: no such key"),
        ("runs = ", "not TOML"),
        ("[policy]\nname = 'magm'", "policy.name: no such key"),
        ("monitor = 3", "scenario.toml: monitor: no such key"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    with pytest.raises(UsageFault) as caught:
        scenario_of(path, (), {})
    assert words in caught.value.message
    with pytest.raises(UsageFault, match="cannot be read"):
        scenario_of(tmp_path / "none.toml", (), {})


def test_texts_lists_and_numbers_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text("policy = 'magm, lug'\npartition = ['a', 'b']\n[assume]\nsmact = 0.5\n")
    found = scenario_of(path, (), {})
    assert found.policy == ("magm", "lug") and found.partition == ("a", "b")
    assert found.assume.smact == "0.5"


def test_each_option_is_of_one_key() -> None:
    options = [one for key, field in keys().items() if (one := option_of(key, field))]
    assert len(options) == len(set(options))
