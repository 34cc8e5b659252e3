# SPDX-License-Identifier: Apache-2.0
"""A forged report lies within bounds or is refused; it never ends in an error of colocd's own."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.adapters.store import Store
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.nodes import epilog, prolog

REPORT: dict[str, Any] = {
    "v": 1,
    "op": "report",
    "cluster": "c",
    "job_id": 12,
    "restart": 0,
    "node": "n1",
    "exit_code": 1,
    "signal": 0,
    "gpu_uuids": ["GPU-f5154b82-fd38-0243-c5ac-bcd22f624fbe"],
    "ended_s": 1_790_000_000.5,
    "evidence": None,
    "peak_mib": 9000,
    "alone": True,
    "method": "mps",
    "fence": "cgroup",
    "notes": ["a note"],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("v", 2),
        ("job_id", 0),
        ("job_id", 2**63),
        ("job_id", "12 OR 1=1"),
        ("restart", -1),
        ("restart", 2**31),
        ("node", "n1\nn2"),
        ("node", "../../etc"),
        ("node", "x" * 257),
        ("cluster", "\x1b[2J"),
        ("exit_code", 2**70),
        ("signal", -(2**70)),
        ("gpu_uuids", ["\x1b]0;x\x07"]),
        ("gpu_uuids", ["GPU-1"] * 65),
        ("gpu_uuids", "GPU-1"),
        ("ended_s", math.nan),
        ("ended_s", math.inf),
        ("ended_s", -1.0),
        ("ended_s", 1e300),
        ("peak_mib", 2**63),
        ("peak_mib", -1),
        ("peak_mib", math.nan),
        ("method", "mps; reboot"),
        ("fence", "none at all"),
        ("notes", ["x"] * 17),
        ("notes", ["x" * 10_000_000]),
        ("evidence", {"oom": True, "line": "x" * 10_000_000}),
        ("evidence", {"oom": True, "requested_mib": 2**63}),
        ("evidence", {"oom": True, "requested_mib": -5}),
        ("evidence", {"oom": "perhaps"}),
        ("evidence", []),
    ],
)
def test_an_absurd_figure_is_refused_by_name(store: Store, name: str, value: Any) -> None:
    with pytest.raises(UsageFault) as caught:
        epilog.take(store, REPORT | {name: value})
    assert name in caught.value.message
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "used",
    [
        {"v": 1, "job_id": 13, "restart": 0},
        {"peak": 2**63},
        "x" * 10_000_000,
        [[[[[]]]]],
        math.nan,
        {"v": 1, "gpus": [{"uuid": "GPU-1", "peak_mib": 2**63}]},
    ],
)
def test_a_nonsense_use_costs_only_itself(used: Any) -> None:
    report = epilog.read(REPORT | {"used": used})
    assert report.used is None
    assert report.peak_mib == 9000
    assert report.notes[-1].startswith("used: ")
    assert len(report.notes[-1]) <= 200


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([2**63, -(2**63), "\x00", "%s%n", "'; DROP TABLE reports; --"]),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=9), each),
)
FIELDS = st.sampled_from(sorted([*REPORT, "used"]))


@given(FIELDS, JSON)
def test_any_value_is_kept_or_refused(store: Store, name: str, value: Any) -> None:
    try:
        job_id = epilog.take(store, REPORT | {name: value})
    except UsageFault:
        return
    assert job_id >= 1


@given(st.sampled_from(["v", "job_id", "restart", "node", "gpus"]), JSON)
def test_any_launch_is_read_or_refused(name: str, value: Any) -> None:
    good = {"v": 1, "op": "launch", "job_id": 1, "restart": 0, "node": "n1", "gpus": []}
    try:
        prolog.read_launch(good | {name: value})
    except UsageFault:
        return


def test_planted_files_in_the_spool_are_set_aside(store: Store, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    target = tmp_path / "target"
    target.write_text("kept")
    (spool / "1.0.n.json").symlink_to(target)
    (spool / "2.0.n.json").write_text("{" * 100_000)
    (spool / "3.0.n.json").write_text(json.dumps(REPORT | {"peak_mib": 10**400}))
    (spool / "4.0.n.json").mkdir()
    (spool / "5.0.n.json").write_text('{"v": 1, "job_id": 1e999}')
    (spool / "6.0.n.json").write_bytes(b"\xff" * 9)
    (spool / "7.0.n.json").write_text("[" * 60_000)
    (spool / "8.0.n.json").write_text(json.dumps(REPORT))
    assert epilog.drain(store, spool) == [12]
    assert target.read_text() == "kept"
    assert epilog.drain(store, spool) == []
