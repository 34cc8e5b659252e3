# SPDX-License-Identifier: Apache-2.0
"""coloc report: what a run used, as colocd answers and as people see it."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from typer.testing import CliRunner

from slurm_coloc.adapters.store import Store
from slurm_coloc.cli import render
from slurm_coloc.cli import report as page
from slurm_coloc.cli.app import build
from slurm_coloc.cli.report.picture import chart, merged, picture
from slurm_coloc.core.records.runs import Run
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.queries import report as flow
from tests.unit.cli.conftest import NOW, OWNER, STRANGER, decision, run_row

GPU = "GPU-5a3b1c2d-0000-1111-2222-333344445555"


def used(job_id: int, peak: int, smact: float | None, *beside: int) -> dict[str, Any]:
    return {
        "v": 1, "job_id": job_id, "restart": 0, "node": "n1", "since_s": NOW - 199,
        "until_s": NOW - 1, "samples": 198,
        "why": {} if smact is not None else {"smact": "no DCGM, no GPM: an A100"},
        "gpus": [{"uuid": GPU, "peak_mib": peak, "smact_mean": smact,
                  "smact_how": "split" if beside else "alone", "energy_j": 21000.0}],
        "neighbours": [{"job_id": one, "overlap_s": 50.0} for one in beside],
        "events": [{"at_s": NOW - 5, "kind": "idle", "text": "nothing ran for 30m"}],
        "series": {"start_s": NOW - 199, "step_s": 5, "memory_mib": [100, None, 9100],
                   "smact": [None, 0.4, 0.5]},
    }  # fmt: skip


def close(store: Store, row: Run, **changes: Any) -> None:
    values = {
        "state": "COMPLETED", "outcome": "completed", "end_s": NOW - 1, "share_mib": 12288,
        "gpu_uuids": [GPU], "method": "mps", **changes,
    }  # fmt: skip
    store.runs.see(row)
    store.runs.close(row, **values)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Job 5 ran from 200 s to 1 s ago beside a stranger's job 6, which was there before and went
    100 s ago; job 7 was put back; 8 still waits."""
    found = Store.open(tmp_path)
    for name, uid, smact in (("a5", OWNER, 0.5), ("a6", STRANGER, 0.6), ("a7", OWNER, None)):
        found.decisions.add(decision(f"0000000000{name}", uid=uid, smact=smact))
    close(
        found,
        run_row("0000000000a5", 5),
        peak_mib=9100,
        used=[used(5, 9100, 0.4, 6)],
        blame=None,
    )
    close(
        found,
        run_row("0000000000a6", 6, uid=STRANGER, start_s=NOW - 400),
        end_s=NOW - 100,
        used=[used(6, 5000, 0.3, 5)],
    )
    close(found, run_row("0000000000a7", 7), outcome="put-back", start_s=NOW - 10)
    found.runs.see(run_row("0000000000a7", 8, state="PENDING", start_s=None, node=None))
    return found


def ask(store: Store, job_id: int, uid: int | None = OWNER, private: bool = False) -> Any:
    return flow.report(store, uid, {"job_id": job_id}, private)


def test_one_run(store: Store) -> None:
    found = ask(store, 5)
    assert found["run"]["peak_mib"] == 9100 and found["reserved_mib"] == 12288
    assert found["use"]["smact"] == 0.4 and found["use"]["energy_j"] == 21000.0
    assert [one["job_id"] for one in found["neighbours"]] == [6]
    # alone on that GPU it would have begun when job 6 had gone
    assert found["sooner_s"] == pytest.approx(100, abs=1)
    assert found["slower_how"] == "predicted" and 1.0 < found["slower"] < 1.3
    assert found["series"]["memory_mib"] == [100, None, 9100]


def test_private_data_hides_whose_the_neighbours_are(store: Store) -> None:
    (beside,) = ask(store, 5, private=True)["neighbours"]
    assert beside["job_id"] is None and beside["uid"] is None
    (beside,) = ask(store, 5, uid=None, private=True)["neighbours"]
    assert beside["job_id"] == 6 and beside["uid"] == STRANGER


def test_one_that_was_put_back_is_one_neighbour() -> None:
    runs = [{"job_id": 3, "uid": 0}, {"job_id": 2, "uid": 0}, {"job_id": 3, "uid": 0}]
    hidden = [{"job_id": None, "uid": None}] * 2
    assert page._neighbours(runs) == "2: 3 (root), 2 (root)"
    task = {"job_id": 9, "array_job_id": 5, "array_task": 1, "uid": 0}
    assert page._neighbours([task]) == "1: 5_1 (root)"
    assert page._neighbours(runs + hidden) == "4: 3 (root), 2 (root), 2 of other users"


@pytest.mark.parametrize(("job_id", "uid"), [(7, OWNER), (8, OWNER), (99, OWNER), (5, STRANGER)])
def test_nothing_to_report(store: Store, job_id: int, uid: int) -> None:
    with pytest.raises(UsageFault):
        ask(store, job_id, uid)


def test_run_times_alone_are_believed_before_the_model(store: Store) -> None:
    for number in (21, 22):
        close(
            store,
            run_row("0000000000a5", number, start_s=NOW - 5000 + number),
            end_s=NOW - 4900 + number,
            gpu_uuids=["GPU-x"],
            used=[used(number, 9000, 0.5)],
        )
    found = ask(store, 5)
    assert found["slower_how"] == "measured" and found["slower"] == pytest.approx(1.99, abs=0.05)


def test_the_sum(store: Store) -> None:
    (user,) = flow.summary(store, OWNER, {})["users"]
    assert (user["runs"], user["completed"], user["put_back"], user["measured"]) == (2, 1, 1, 1)
    assert (user["peak_mib"], user["reserved_mib"]) == (9100, 12288)
    assert {one["uid"] for one in flow.summary(store, None, {"days": 1})["users"]} == {
        OWNER,
        STRANGER,
    }
    with pytest.raises(UsageFault):
        flow.summary(store, None, {"days": 0})


def shown(store: Store, monkeypatch: pytest.MonkeyPatch, *args: str) -> str:
    def answer(config: object, op: str, wanted: dict[str, Any]) -> dict[str, Any]:
        told = (
            flow.report(store, OWNER, wanted, False)
            if "job_id" in wanted
            else flow.summary(store, OWNER, wanted)
        )
        return {"v": 1, "ok": True, **told}

    monkeypatch.setattr(page, "call", answer)
    done = CliRunner().invoke(build(), ["report", *args])
    assert done.exit_code == 0, done.output
    return done.output


def test_for_people(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(store, monkeypatch, "5")
    for words in (
        "completed after 3m19s",
        "peak 8.9 GiB; estimate 9.6 GiB, at most 11.6; reserved 12.0 GiB, 74% of it used",
        "MPS was asked to hold it to 12.0 GiB; it held 8.9 GiB at most",
        "40% in the mean (its part of",
        "21.0 kJ",
        "1: 6 (",
        "sooner than on this GPU alone",
        "alone, by the model of interference",
        "idle: nothing ran for 30m",
        "Memory, GiB, over 15s",
    ):
        assert words in text, words
    assert shown(store, monkeypatch).splitlines()[-1].split()[-1] == "3.1"  # unused, GiB
    assert json.loads(shown(store, monkeypatch, "5", "--json"))["schema"] == 1


OVER = {"at_s": NOW, "kind": "overrun", "state": "begun", "text": "x", "held_mib": 30_000}


@pytest.mark.parametrize(
    ("fence", "peak_mib", "events", "words"),
    [
        (5120, 4800, [], "MPS holds it to 5.0 GiB"),
        # MPS is said to hold only what was read back, of its server, and measured.
        (None, 4800, [], "MPS was asked to hold it to 5.0 GiB; it held 4.7 GiB at most"),
        (12288, 4800, [], "MPS was asked to hold it to 5.0 GiB; it held 4.7 GiB at most"),
        (5120, None, [], "MPS was asked to hold it to 5.0 GiB; what it held was not measured"),
        (5120, 29000, [OVER], "MPS was asked to hold it to 5.0 GiB; it held 29.3 GiB"),
    ],
)
def test_the_fence_as_far_as_it_was_verified(
    fence: int | None, peak_mib: int | None, events: list[Any], words: str
) -> None:
    answer = {
        "run": {"method": "mps", "peak_mib": peak_mib},
        "reserved_mib": 5120,
        "use": {"nodes": [{"fence": {"level": "mps", "limit_mib": fence}}]},
        "events": events,
    }
    assert page._fence(answer) == words


def test_a_chart() -> None:
    lines = chart([0, 5, 10, None, 20], 10, rows=2).splitlines()
    assert lines == ["    10 |  █ █", "     0 | ██ █"]
    assert chart([1.0], 0.0, rows=1).startswith("     0 |")


@pytest.mark.parametrize("width", [60, 80, 128, 200])
@pytest.mark.parametrize("points", [2, 73, 120])
def test_the_picture_fits_the_terminal(points: int, width: int) -> None:
    """Neighbouring values share a column where there are more of them than columns."""
    memory = [1024] * points
    memory[points // 2] = 9216
    series = {"step_s": 5, "memory_mib": memory, "smact": [0.5] * points}
    head, held, _, active = picture({"series": series, "reserved_mib": 9216}, width)
    assert head.plain == f"\nMemory, GiB, over {render.lasted(5 * points)}"
    lines = held.plain.splitlines() + active.plain.splitlines()
    assert max(map(len, lines)) <= width
    assert min(len(held.plain.splitlines()[-1]) - 8, points) >= min(points, (width - 8) // 2)
    assert held.plain.splitlines()[0].count("█") == 1, "the peak is still to be seen"


def test_neighbouring_values_as_one() -> None:
    assert merged([1, None, 3, 4, None, None, 7], 4, max) == [1, 4, None, 7]
    assert merged([1, None, 3, 4, None, None, 7], 3, fmean) == [2, 4, 7]
    assert merged([1, None], 2, max) == [1, None]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["report", "7", "-o", "job.html"], "--output is of a page: --html or --cluster"),
        (["report", "7,8", "--compare", "-o", "x"], "--output is of a page: --html or --cluster"),
        (["report", "7,8", "--html"], "--html is of one JOBID"),
        (["explain", "--code", "fits", "--json"], "--code has no --json"),
    ],
)
def test_what_would_be_passed_over_is_refused(words: list[str], told: str) -> None:
    done = CliRunner().invoke(build(), words)
    assert done.exit_code == 2
    assert told in " ".join(done.output.replace("│", " ").split()), done.output
    assert "--json answers" not in done.output


@pytest.mark.parametrize("words", [["7"], [], ["x,y"], ["7,8", "--json"], ["7,8", "--cluster"]])
def test_compare_needs_several_jobs(words: list[str]) -> None:
    done = CliRunner().invoke(build(), ["report", *words, "--compare"])
    assert done.exit_code == 2


def test_compare_for_people(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = flow.report(store, OWNER, {"job_id": 5}, private=False)
    monkeypatch.setattr(page, "call", lambda *_: dict(answer))
    done = CliRunner().invoke(build(), ["report", "7,8", "--compare"])
    assert done.exit_code == 0, done.output
    head, *rows = done.output.splitlines()
    assert head.split()[:3] == ["JOB", "STATE", "BATCH"] and len(rows) == 2
    shown = CliRunner().invoke(build(), ["report", "7,8", "--compare", "--html"])
    assert shown.output.startswith("<!DOCTYPE html>")
