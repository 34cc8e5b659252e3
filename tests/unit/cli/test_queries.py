# SPDX-License-Identifier: Apache-2.0
"""coloc jobs, history and explain against a real colocd."""

import re

from slurm_coloc.cli.explain import _notes
from tests.unit.cli.conftest import OWNER, Site

ETA = ("JOB", "NAME", "USER", "RUNS", "DONE", "EPOCHS", "LEFT", "RANGE", "ENDS", "BY")


def test_jobs(site: Site) -> None:
    answer = site.json("jobs")
    assert answer["schema"] == 1
    assert {(row["job_id"], row["restart"]) for row in answer["jobs"]} == {(7, 1), (8, 0)}


def test_jobs_with_those_that_ended(site: Site) -> None:
    rows = site.json("jobs", "--all")["jobs"]
    assert {(row["job_id"], row["restart"]) for row in rows} == {(7, 0), (7, 1), (8, 0)}


def test_jobs_for_people(site: Site) -> None:
    done = site.coloc("jobs")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "7+1" in lines and "whole GPU" in lines["7+1"] and str(OWNER) in lines["7+1"]
    assert "12.0 of 39.0 " in lines["8"] and "PENDING" in lines["8"]


def test_eta(site: Site) -> None:
    """Only what runs; where nothing is known it says so."""
    assert [row["job_id"] for row in site.json("eta")["jobs"]] == [7]
    shown = site.coloc("eta").stdout.splitlines()
    assert shown[0].split() == list(ETA)
    assert shown[1].split()[0] == "7+1" and shown[1].endswith("not known")
    assert site.coloc("eta", "8").stdout.startswith("no such --coloc job")


def test_history(site: Site) -> None:
    answer = site.json("history")
    ended = next(row for row in answer["runs"] if row["restart"] == 0 and row["job_id"] == 7)
    assert (ended["outcome"], ended["peak_mib"], ended["verdict"]) == ("oom-gpu", 12000, "requeue")
    assert ended["gpu_uuids"] == ["GPU-5a3b1c2d-0000-1111-2222-333344445555"]
    assert [row["id"] for row in answer["observed"]] == ["00000000000c"]
    assert len(site.json("history", "--limit", "1")["runs"]) == 1
    recent = site.json("history", "--since", "1m")
    assert [row["job_id"] for row in recent["runs"] if row["outcome"]] == []
    assert {(row["job_id"], row["restart"]) for row in recent["runs"]} == {(7, 1), (8, 0)}
    assert len(site.json("history", "--since", "1d")["runs"]) == 3


def test_no_option_is_passed_over(site: Site) -> None:
    """--since is the page's, --days the sums': with the other it would say nothing."""
    for wrong in (("--since", "3d"), ("--cluster", "--json"), ("7", "--html", "--json")):
        done = site.coloc("report", *wrong)
        assert done.returncode == 2, done.stderr
        assert "--cluster" in done.stderr


def test_history_for_people(site: Site) -> None:
    shown = site.coloc("history").stdout
    assert "n1: GPU-5a3b1c2d" in shown
    assert "out of GPU memory" in shown and "11.7" in shown  # 12000 MiB at the peak
    assert "observe mode" in shown
    jobs = [line.split()[0] for line in shown.splitlines()[1:4]]
    assert jobs == ["8", "7+1", "7"]  # by job, whichever was met first


def test_an_estimate_s_notes_say_nothing_twice() -> None:
    why = "2 earlier runs of this model used 5200 MiB at most"
    learned = {"why": why}
    assert _notes(why, learned) == ""
    assert _notes(f"{why}; batch size 32 taken from the summary", learned) == ""
    given = "batch size 64 given, 32 in the summary: given wins"
    assert _notes(f"{why}; {given}", learned) == given
    assert _notes(f"{given}; wider margin", None) == f"{given}; wider margin"


def test_explain(site: Site) -> None:
    answer = site.json("explain", "7")
    assert answer["schema"] == 1
    assert answer["decision"]["shards"] == 12
    assert [run["restart"] for run in answer["runs"]] == [0, 1]
    assert answer["live"] is None
    # The command's own fault, or that colocd had seen it too often to ask again: by then its loops
    # have asked.
    away = r"(squeue|scontrol): cannot be started: |slurmctld gave no answer \d+ times; next try"
    assert re.match(away, answer["slurm_error"])
    assert [one["kind"] for one in answer["story"]] == ["seen", "ended"]


def test_explain_for_people(site: Site) -> None:
    done = site.coloc("explain", "7")
    assert done.returncode == 0, done.stderr
    for text in (
        "12 of 39 shards",
        "at most 11900 MiB",
        "batch size 32 (given)",
        "optimizer adam (assumed)",
        "peak 12000 MiB",
        "Try 1",
        "12.0 of 39.0 GiB; out of GPU memory",
        "comes back on a whole GPU (gres/gpu:1)",
        "does not answer",
        "submitted",
    ):
        assert text in done.stdout
    assert "\x1b" not in done.stdout, "a job's log must not steer the terminal"


def test_explain_unknown_job(site: Site) -> None:
    done = site.coloc("explain", "99")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("coloc: job 99: ")


def test_usage(site: Site) -> None:
    assert site.coloc("explain", "x").returncode == 2
    assert site.coloc("explain").returncode == 2
    assert site.coloc("history", "--limit", "0").returncode == 2


def test_no_daemon(site: Site) -> None:
    other = site.folder / "other.toml"
    other.write_text(f'version = 1\n[daemon]\nsocket = "{site.folder}/nothing"\n')
    for command in (["jobs"], ["history"], ["explain", "7"]):
        done = site.coloc(*command, env={"COLOC_CONFIG": str(other)})
        assert done.returncode == 6
        assert "Traceback" not in done.stderr and "slurm-coloc.service" in done.stderr


def test_wrong_configuration(site: Site) -> None:
    other = site.folder / "wrong.toml"
    other.write_text("version = 1\n[daemon]\nsockett = 1\n")
    done = site.coloc("jobs", env={"COLOC_CONFIG": str(other)})
    assert done.returncode == 3
    assert "daemon.sockett" in done.stderr
