# SPDX-License-Identifier: Apache-2.0
"""What a run used is believed within bounds only: forged, absurd, endless is refused."""

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.flow.nodes import usage

GOOD: dict[str, Any] = {
    "v": 1,
    "job_id": 12,
    "restart": 0,
    "since_s": 1_790_000_000.5,
    "until_s": 1_790_000_100,
    "samples": 100,
    "sources": {"memory": "nvml", "smact": None},
    "why": {"smact": "no DCGM on this node"},
    "gpus": [
        {
            "uuid": "GPU-f5154b82-fd38-0243-c5ac-bcd22f624fbe",
            "peak_mib": 9000,
            "mean_mib": 8000.5,
            "smact_mean": None,
            "smact_how": None,
            "energy_j": 1234.5,
            "gpu_energy_j": 2000,
            "neighbours_max": 2,
        }
    ],
    "pids": [{"pid": 4711, "start_s": 1.0, "uuid": "GPU-1", "peak_mib": 9000}],
    "last": {
        "at_s": 1_790_000_099.0,
        "held_mib": 9000,
        "gpu_free_mib": 100,
        "neighbours": [{"job_id": 13, "held_mib": 4}],
        "foreign_mib": 0,
    },
    "neighbours": [{"job_id": 13, "restart": None, "uid": 1000, "overlap_s": 50.0}],
    "events": [{"at_s": 1.0, "kind": "xid", "text": "Xid 31"}],
    "series": {"start_s": 1.0, "step_s": 5, "memory_mib": [1, 2], "smact": [0.5, None]},
    "left_out": {"pids": 3},
}


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """The good record with one value replaced."""
    record = copy.deepcopy(GOOD)
    at: Any = record
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return record


def test_a_good_record_comes_through_whole() -> None:
    found, why = usage.read(json.loads(json.dumps(GOOD)), 12, 0)
    assert why == ""
    assert found is not None
    assert found.gpus[0].peak_mib == 9000
    assert found.model_dump(mode="json", exclude_unset=True) == GOOD


def test_what_a_later_agent_says_more_is_dropped() -> None:
    found, _ = usage.read(GOOD | {"later": [1] * 100_000}, 12, 0)
    assert found is not None
    assert "later" not in found.model_dump()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("v",), 2),
        (("job_id",), "12"),
        (("job_id",), True),
        (("restart",), -1),
        (("until_s",), 0),
        (("since_s",), math.nan),
        (("until_s",), math.inf),
        (("until_s",), 1e300),
        (("samples",), -1),
        (("sources",), {"a" * 25: "nvml"}),
        (("sources",), {f"n{i}": "nvml" for i in range(17)}),
        (("sources", "memory"), "../../etc/passwd"),
        (("why", "smact"), "x" * 257),
        (("why", "smact"), "\x1b[2J"),
        (("why", "smact"), "one\ntwo"),
        (("gpus",), [GOOD["gpus"][0]] * 2),
        (("gpus",), [{"uuid": f"GPU-{i}", "peak_mib": 1} for i in range(65)]),
        (("gpus",), {"uuid": "GPU-1"}),
        (("gpus", 0, "uuid"), "GPU-1; rm -rf /"),
        (("gpus", 0, "uuid"), "GPU-1\n"),
        (("gpus", 0, "peak_mib"), 2**63),
        (("gpus", 0, "peak_mib"), -1),
        (("gpus", 0, "peak_mib"), 1.5),
        (("gpus", 0, "peak_mib"), None),
        (("gpus", 0, "mean_mib"), math.nan),
        (("gpus", 0, "smact_mean"), 1.01),
        (("gpus", 0, "smact_mean"), -0.01),
        (("gpus", 0, "dram_mean"), math.nan),
        (("gpus", 0, "smact_how"), "guessed"),
        (("gpus", 0, "energy_j"), math.inf),
        (("pids",), [GOOD["pids"][0]] * 65),
        (("pids", 0, "pid"), 0),
        (("pids", 0, "pid"), 2**31),
        (("last", "held_mib"), "all"),
        (("last", "neighbours"), [{"job_id": 1, "held_mib": 1}] * 33),
        (("neighbours",), [GOOD["neighbours"][0]] * 33),
        (("neighbours", 0, "overlap_s"), -1),
        (("events",), [GOOD["events"][0]] * 21),
        (("events", 0, "kind"), "else"),
        (("events", 0, "text"), "\u2028"),
        (("series", "memory_mib"), [1] * 121),
        (("series", "smact"), [0.5]),
        (("series", "step_s"), 0),
        (("left_out",), {f"n{i}": 1 for i in range(17)}),
        (("left_out",), -1),
    ],
)
def test_absurd_values_are_refused(path: tuple[str | int, ...], value: Any) -> None:
    found, why = usage.read(changed(path, value), 12, 0)
    assert found is None
    assert why.startswith("used: ")
    assert len(why) <= 200
    assert why.isprintable()


@pytest.mark.parametrize(("job_id", "restart"), [(13, 0), (12, 1)])
def test_the_record_of_another_run_is_refused(job_id: int, restart: int) -> None:
    assert usage.read(GOOD, job_id, restart) == (None, "used: that of another run")


def test_the_restart_may_be_unknown() -> None:
    assert usage.read(GOOD, 12, None)[0] is not None


def test_ten_megabytes_and_deep_nests_are_refused_not_raised() -> None:
    assert usage.read(changed(("events", 0, "text"), "x" * 10_000_000), 12, 0)[0] is None
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert usage.read(changed(("gpus",), deep), 12, 0)[0] is None


LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([2**63, -(2**63), "\x00", "%s%n", "../..", "GPU-1"])
)
JSON = st.recursive(
    LEAF, lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=9), each)
)


@given(JSON)
def test_nothing_that_json_holds_raises(value: Any) -> None:
    found, why = usage.read(value, 12, 0)
    assert (found is None) == bool(why)


@given(st.sampled_from(sorted(GOOD)), JSON)
def test_a_record_with_one_wrong_field_is_whole_or_refused(name: str, value: Any) -> None:
    found, _ = usage.read(GOOD | {name: value}, 12, 0)
    if found is not None:
        text = json.dumps(found.model_dump(mode="json"), allow_nan=False)
        assert len(text) < 65536


@given(
    st.fixed_dictionaries(
        {
            "uuid": st.just("GPU-1"),
            "peak_mib": st.integers(),
            "smact_mean": st.none() | st.floats(),
            "energy_j": st.none() | st.floats(),
        }
    )
)
def test_what_passes_can_be_summed_and_shown(gpu: dict[str, Any]) -> None:
    found, _ = usage.read(changed(("gpus",), [gpu]), 12, 0)
    if found is None:
        return
    one = found.gpus[0]
    assert 0 <= one.peak_mib <= usage.MAX_MIB
    assert one.smact_mean is None or 0 <= one.smact_mean <= 1
    assert one.energy_j is None or math.isfinite(one.energy_j)
