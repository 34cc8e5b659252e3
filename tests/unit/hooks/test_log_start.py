# SPDX-License-Identifier: Apache-2.0
"""Where this run's text begins in a log that earlier runs or other jobs wrote to."""

import json
from pathlib import Path

import pytest

from .conftest import TORCH, Node


def test_a_restart_is_not_blamed_for_the_first_runs_log(node: Node) -> None:
    log = node.log("one\n" + TORCH)
    again = {"SLURM_JOB_RESTART_COUNT": "1"}
    node.run("prolog", **again)
    with log.open("a") as file:
        file.write("Traceback (most recent call last):\nOSError: no data\n")
    node.run("epilog", **again)
    report = node.report()
    assert (report["restart"], report["evidence"]) == (1, None)
    node.run("prolog", **again)
    node.log("two\n" + TORCH)
    node.run("epilog", **again)
    assert node.report()["evidence"]["oom"] is True


def append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_an_older_jobs_oom_in_the_same_log_is_not_this_ones(node: Node) -> None:
    """--open-mode=append, or JobFileAppend=1: the log was there before the job."""
    log = node.log("job 76\n" + TORCH)
    node.run("prolog")
    append(log, "OSError: no data\n")
    node.run("epilog")
    assert node.report()["evidence"] is None
    node.run("prolog")
    append(log, TORCH)
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True


@pytest.mark.parametrize("text", [TORCH, "short", TORCH + "x" * 500, "another text\n" + TORCH])
def test_a_log_that_was_cut_after_the_prolog_is_all_this_runs(node: Node, text: str) -> None:
    node.log("job 76, a longer text than before\n" + TORCH)
    node.run("prolog")
    node.log(text)
    node.run("epilog")
    assert (node.report()["evidence"] is not None) == (TORCH in text)


def note_logs(node: Node, *starts: tuple[Path, int]) -> None:
    """What slurmstepd writes by the SPANK plugin: standard output's start, standard error's."""
    words = [f"{log.stat().st_ino if size >= 0 else 0} {max(size, 0)}" for log, size in starts]
    (node.folder / "run/jobs/77.logs").write_text(" ".join(words) + "\n")


def test_the_start_that_slurmstepd_saw_goes_before_the_marks(node: Node) -> None:
    """A log that was cut and then written with the same text and more has the same marks."""
    log = node.log("epoch 1\n" + TORCH)
    node.run("prolog")
    node.log("epoch 1\n" + TORCH + "slurmstepd: error: *** CANCELLED ***\n")
    note_logs(node, (log, 0), (log, 0))
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True
    assert not (node.folder / "run/jobs/77.logs").exists()
    before = log.stat().st_size
    node.run("prolog")
    append(log, TORCH)
    note_logs(node, (log, before), (log, before))
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True
    node.run("prolog")
    append(log, "fine\n")
    size = log.stat().st_size
    note_logs(node, (log, size - 5), (log, size - 5))
    node.run("epilog")
    assert node.report()["evidence"] is None


def test_each_stream_has_its_own_start(node: Node) -> None:
    out, err = node.log(TORCH, "o"), node.log(TORCH, "e")
    names = {"SLURM_JOB_STDOUT": str(out), "SLURM_JOB_STDERR": str(err)}
    node.run("prolog", **names)
    note_logs(node, (out, len(TORCH)), (err, 0))
    node.run("epilog", **names)
    assert node.report()["evidence"]["file"] == "stderr"


@pytest.mark.parametrize("text", ["", "1 2 3\n", "x y z w\n", "-1 2 3 4\n", "9" * 900, "\0" * 2000])
def test_strange_starts_are_survived(node: Node, text: str) -> None:
    node.run("prolog")
    (node.folder / "run/jobs/77.logs").write_text(text)
    node.log(TORCH)
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True


def test_the_start_of_another_file_is_not_used(node: Node) -> None:
    other = node.log("x" * 5000, "other")
    node.run("prolog")
    node.log(TORCH)
    note_logs(node, (other, 10), (other, 10))
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True


def test_what_a_killed_epilog_left_is_not_the_next_runs(node: Node) -> None:
    node.run("prolog")
    for suffix in ("step", "logs"):
        (node.folder / f"run/jobs/77.{suffix}").write_text("1 2 3 4\n")
    node.run("prolog", SLURM_JOB_RESTART_COUNT="1")
    left = {file.name for file in (node.folder / "run/jobs").iterdir()}
    assert left == {"77.json", "77.share"}


def test_a_restart_without_a_prolog_is_blamed_for_nothing(node: Node) -> None:
    """22.05 may skip the Prolog of a job that it starts again at once."""
    node.run("prolog")
    log = node.log(TORCH)
    note_logs(node, (log, 0), (log, 0))
    node.run("epilog", SLURM_JOB_RESTART_COUNT="1")
    report = node.report()
    assert report["evidence"]["oom"] is False
    assert any("cannot be told apart" in note for note in report["notes"])


def test_a_log_that_the_prolog_could_not_look_at_is_not_judged(node: Node) -> None:
    node.run("prolog")
    state = node.state() | {"log_marks": None}
    file = node.folder / "run/jobs/77.json"
    file.write_text(json.dumps(state))
    log = node.log(TORCH)
    node.run("epilog")
    report = node.report()
    assert report["evidence"] is None
    assert "stdout not judged: the Prolog could not look at it in time" in report["notes"]
    node.run("prolog")
    file.write_text(json.dumps(state))
    note_logs(node, (log, 0), (log, 0))
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True
