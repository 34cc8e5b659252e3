# SPDX-License-Identifier: Apache-2.0
"""Tables of jobs at every width, jobs by Slurm's names, and moments."""

import json
import time
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner, Result

from slurm_coloc.cli import gpus, history, jobs
from slurm_coloc.cli.app import build
from slurm_coloc.cli.listing import listing
from slurm_coloc.cli.names import each_of, names_of
from slurm_coloc.cli.options import since_s


def run(job_id: int, **changes: Any) -> dict[str, Any]:
    """A run as an answer has it."""
    row: dict[str, Any] = {
        "job_id": job_id, "array_job_id": None, "array_task": None, "restart": 0, "uid": 4242,
        "name": "train", "partition": "main", "state": "RUNNING", "node": "g1", "gpus": [2],
        "gpu_uuids": ["GPU-5a3b1c2d-0000"], "tres": "gres/shard:12", "shards": 12,
        "shards_per_gpu": 39, "shard_mib": 1024, "action": "collocate", "memory_mib": 9800,
        "upper_mib": 11900, "peak_mib": 9000, "outcome": None, "reason": "fits", "victims": 0,
        "retry_way": None, "start_s": time.time() - 70, "submit_s": 0.0, "end_s": None,
    }  # fmt: skip
    return row | changes


RUNS = [
    run(7),
    run(81234, name="resnet50-a-long-name-of-somebody", restart=1, retry_way="more",
        retry_cause="self", retry_culprit=None),
    run(9, node="gpu-node-with-a-long-name-01", gpus=[0, 1, 2, 3], reason="multi-gpu-site",
        action="exclusive", tres="gres/gpu:4"),
    run(10, outcome="oom-gpu", end_s=time.time(), peak_mib=None),
    run(11, overrun={"held_mib": 30_000, "promised_mib": 5_120}, name=None),
]  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_jobs_fit_the_terminal(width: int) -> None:
    lines = listing(jobs.COLUMNS, RUNS, width)
    assert max(map(len, lines)) <= width, lines
    assert all(word in lines[0] for word in ("JOB", "NAME", "STATE", "GPU", "SHARE", "WHY"))
    assert lines[1].split()[0] == "7" and "g1:2" in lines[1]
    assert ("PARTITION" in lines[0], "PEAK" in lines[0]) == (width >= 200, width >= 120)


def test_what_is_no_terminal_has_all_of_it() -> None:
    lines = listing(jobs.COLUMNS, RUNS, None)
    assert all(column.name in lines[0] for column in jobs.COLUMNS)
    assert "gpu-node-with-a-long-name-01:0,1,2,3" in lines[3]
    assert "sharing several GPUs needs Slurm 24.11 or later" in lines[3]
    assert not any("…" in line for line in lines)


def test_words_in_place_of_codes() -> None:
    told = "\n".join(listing(jobs.COLUMNS, RUNS, None))
    assert "out of GPU memory" in told and "RUNNING, holds 29.3 of 5.0" in told
    assert "81234+1" in told and "more memory" in told
    for code in ("oom-gpu", "multi-gpu-site", "fits", "collocate", "(self)"):
        assert code not in told


@given(
    st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60), st.integers(1, 2**31))),
    st.integers(40, 200),
)
def test_no_name_breaks_the_table(names: list[tuple[str, str, int]], width: int) -> None:
    rows = [run(job_id, name=name, node=node) for name, node, job_id in names]
    lines = listing(jobs.COLUMNS, rows, width)
    assert len(lines) == len(rows) + 1
    least = sum(max(one.least, len(one.name)) or 12 for one in jobs.COLUMNS if not one.rank)
    assert max(map(cell_len, lines)) <= max(width, least + 40)
    assert not any("\n" in line or "\x1b" in line for line in lines)


def test_tables_of_gpus_and_of_observe_mode_fit_80_columns() -> None:
    gpu = {
        "node": "gpu-node-01", "index": 3, "uuid": "GPU-5a3b1c2d-00", "total_mib": 40536,
        "name": "NVIDIA A100-SXM4-40GB", "free_mib": 200, "smact": 0.63, "dram": 0.4,
        "power_w": 204.0, "foreign_mib": 0, "at_s": time.time(), "jobs_here": 4,
        "jobs": [{"job_id": 81234 + n, "mib": 5000} for n in range(4)],
    }  # fmt: skip
    seen = {
        "job_id": 9, "uid": 4242, "partition": "main", "action": "exclusive", "shards": 0,
        "shards_per_gpu": 39, "shard_mib": 1024, "memory_mib": None, "upper_mib": None,
        "made_s": time.time(), "reason": "many-tasks",
    }  # fmt: skip
    for columns, row in ((gpus.COLUMNS, gpu), (history.OBSERVED, seen)):
        assert max(map(len, listing(columns, [row], 80))) <= 80


def test_jobs_come_in_order() -> None:
    tasks = [run(12, array_job_id=9, array_task=2), run(11, array_job_id=9, array_task=1)]
    found = sorted([run(10), *tasks, run(8)], key=jobs.order_of)
    assert [jobs.name_of(one) for one in found] == ["8", "9_1", "9_2", "10"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("9", [(9, None)]),
        ("9_2", [(9, 2)]),
        ("4294967295_0", [(4294967295, 0)]),
        ("9_[1-3,7]", [(9, 1), (9, 2), (9, 3), (9, 7)]),
        ("9_[0-6:3%2],8", [(9, 0), (9, 3), (9, 6), (8, None)]),
        ("8,9_1,8", [(8, None), (9, 1)]),
    ],
)
def test_jobs_by_slurms_names(text: str, named: list[tuple[int, int | None]]) -> None:
    assert each_of(text) == named
    array = next((job_id for job_id, task in named if task is not None), 0)
    rows = [run(8), run(70, array_job_id=array, array_task=named[0][1])]
    chosen = names_of(text)
    assert chosen.has(rows[0]) is ((8, None) in named)
    assert chosen.has(rows[1]) is (named[0][1] is not None)


@pytest.mark.parametrize(
    "text",
    ["", "x", "9_", "_2", "9_2_3", "-1", "0", "9.0", "９", "1" * 40, "9_[1-", "9,", "9_[1-5000]"],
)
def test_what_names_no_job(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        each_of(text)


def test_moments() -> None:
    assert since_s(None) == 0.0
    assert since_s("90m") == pytest.approx(time.time() - 5400, abs=5)
    assert since_s("2w") == pytest.approx(time.time() - 14 * 86400, abs=5)
    assert since_s("2026-01-31T12:00+00:00") == 1769860800.0
    for text in ("", "3", "3y", "yesterday", "2026-02-30", "9" * 30 + "d"):
        with pytest.raises(typer.BadParameter):
            since_s(text)


def shown(monkeypatch: pytest.MonkeyPatch, open_runs: int, *words: str, **more: Any) -> Result:
    """`coloc jobs` of somebody with so many open runs: 1, 2 and so on; 300 ended."""

    def answer(config: object, op: str, wanted: dict[str, Any]) -> dict[str, Any]:
        ends = [run(9000, outcome="completed")] * 300 if "--all" in words else []
        rows = [run(job_id) for job_id in range(open_runs, 0, -1)] + ends
        return {"v": 1, "ok": True, "jobs": rows[: wanted["limit"]], **more}

    monkeypatch.setattr(jobs, "call", answer)
    done = CliRunner().invoke(build(), ["jobs", *words])
    assert done.exit_code == 0, done.output
    return done


def test_a_named_job_is_found_among_many_open_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are named are picked from all, and the limit is of what is shown."""
    for words in (("-j", "3"), ("-j", "3,299,4", "-n", "1")):
        rows = json.loads(shown(monkeypatch, 300, *words, "--json").stdout)["jobs"]
        assert [row["job_id"] for row in rows] == ([3] if len(words) == 2 else [299])
    none = shown(monkeypatch, 300, "-j", "7000").stdout
    assert none.startswith("none of these waits or runs: coloc history has")
    none = shown(monkeypatch, 2000, "-j", "3").stdout
    assert none.startswith("none of these is among the newest 1,000")


def test_jobs_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for runs, words, more in (
        (300, (), True), (300, ("--json",), True), (200, (), False), (3, ("-n", "2"), True),
        (2000, ("-n", "1000"), True), (300, ("-n", "1000"), False), (300, ("-j", "9"), False),
        (300, ("-j", "1,2,3", "-n", "2"), True),
        (300, ("--all",), True), (100, ("--all",), False), (700, ("--all", "-n", "1000"), False),
    ):  # fmt: skip
        done = shown(monkeypatch, runs, *words)
        assert ("are shown: -n COUNT" in done.stderr) is more, (runs, words, done.stderr)
    assert "the newest 200 are shown" in shown(monkeypatch, 300).stderr
    assert len(shown(monkeypatch, 300).stdout.splitlines()) == 201


def test_jobs_that_private_data_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a user's jobs are hidden is another thing than that he has none."""
    done = shown(monkeypatch, 0, "--user", "root", private=True)
    assert done.stderr == "coloc: PrivateData=jobs: the jobs of root are hidden\n"
    assert done.stdout == ""
    done = shown(monkeypatch, 1, "--all", private=True)
    assert "only your own are shown" in done.stderr and done.stdout
    told = json.loads(shown(monkeypatch, 0, "--user", "0", "--json", private=True).stdout)
    assert told == {"schema": 1, "jobs": [], "private": True}
    assert "private" not in json.loads(shown(monkeypatch, 0, "--json").stdout)
    assert "no --coloc job waits" in shown(monkeypatch, 0, "--user", "root").stdout


@pytest.mark.parametrize("hidden", [{}, {"private": True}])
def test_gpus_says_that_job_ids_are_hidden(
    monkeypatch: pytest.MonkeyPatch, hidden: dict[str, bool]
) -> None:
    monkeypatch.setattr(gpus, "call", lambda *_: {"gpus": [], "without": {}, **hidden})
    told = json.loads(CliRunner().invoke(build(), ["gpus", "--json"]).stdout)
    assert told == {"schema": 1, "gpus": [], "without": {}, **hidden}


def test_json_again_and_again_is_json_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [None, KeyboardInterrupt()]

    def sleep(_: float) -> None:
        if err := left.pop(0):
            raise err

    monkeypatch.setattr(time, "sleep", sleep)
    told = shown(monkeypatch, 1, "--watch", "5", "--json").stdout.splitlines()
    assert [json.loads(line)["jobs"][0]["job_id"] for line in told] == [1, 1]
    left[:] = [KeyboardInterrupt()]
    assert shown(monkeypatch, 1, "--watch", "5").stdout.startswith("every 5 s, ")
