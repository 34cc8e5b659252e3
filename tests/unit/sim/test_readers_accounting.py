# SPDX-License-Identifier: Apache-2.0
"""sacct's output of several releases, the Philly log and the Helios log."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.past import Past, PastJob, most_at_once
from slurm_coloc.sim.readers.helios import read_helios
from slurm_coloc.sim.readers.philly import read_philly
from slurm_coloc.sim.readers.sacct import COLUMNS, COMMAND, read_sacct

RECORDED = Path(__file__).resolve().parents[2] / "contract" / "slurm"
DAY = "2026-11-02T"


def row(**values: str) -> str:
    """A line of sacct with the columns of COMMAND; a job on one A100 for an hour by default."""
    usual = {
        "JobID": "7",
        "User": "ada",
        "Account": "physics",
        "Partition": "gpu",
        "Submit": DAY + "10:00:00",
        "Start": DAY + "10:05:00",
        "End": DAY + "11:05:00",
        "ElapsedRaw": "3600",
        "TimelimitRaw": "120",
        "State": "COMPLETED",
        "AllocTRES": "billing=8,cpu=8,gres/gpu:a100=1,gres/gpu=1,mem=64G,node=1",
        "TRESUsageInTot": "",
    }
    assert set(values) <= set(usual)
    return "|".join({**usual, **values}[name] for name in COLUMNS.split(","))


def sacct(folder: Path, *rows: str, header: str = COLUMNS.replace(",", "|")) -> Past:
    path = folder / "sacct.txt"
    path.write_text("\n".join([header, *rows]) + "\n")
    return read_sacct(path)


def one(folder: Path, **values: str) -> PastJob:
    (job,) = sacct(folder, row(**values)).jobs
    return job


def test_a_job(tmp_path: Path) -> None:
    job = one(tmp_path)
    assert (job.id, job.user, job.account, job.kind) == ("7", "ada", "physics", "a100")
    assert (job.gpus, job.run_s, job.limit_s, job.start_s - job.submit_s) == (1, 3600, 7200, 300)
    assert (job.cpus, job.host_mib, job.peak_mib, job.shown_ratio) == (8, 65536, None, None)


def test_the_command_asks_for_what_is_read() -> None:
    assert COMMAND.startswith("sacct -a -D -P ") and "JobName" not in COMMAND


@pytest.mark.parametrize(
    ("tres", "gpus", "kind"),
    [
        ("cpu=1,gres/gpu=4", 4, ""),
        ("cpu=1,gres/gpu:h100=2", 2, "h100"),
        ("gres/gpu:a100=1,gres/gpu:h100=3", 4, "h100"),
        ("gres/gpu=2,gres/gpu:nvidia_a100-sxm4-80gb=2", 2, "nvidia_a100-sxm4-80gb"),
        ("gres/gpu=1,gres/gpumem=80G,gres/gpuutil=100", 1, ""),
    ],
)
def test_gpus(tmp_path: Path, tres: str, gpus: int, kind: str) -> None:
    job = one(tmp_path, AllocTRES=tres)
    assert (job.gpus, job.kind) == (gpus, kind)


def test_a_share_is_a_gpu_whose_memory_is_known(tmp_path: Path) -> None:
    past = sacct(tmp_path, row(AllocTRES="cpu=1,gres/shard=12,mem=1G"))
    assert (past.jobs[0].gpus, past.jobs[0].peak_mib) == (1, 12 * 1024)
    assert "1 run in shards" in past.notes[0]


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    past = sacct(
        tmp_path,
        row(JobID="1", Start="None", State="CANCELLED by 2001", AllocTRES="", ElapsedRaw="0"),
        row(JobID="2", Start="Unknown", End="Unknown", State="PENDING", AllocTRES=""),
        row(JobID="3_[4-9%2]", Start="Unknown", End="Unknown", State="PENDING", AllocTRES=""),
        row(JobID="4", AllocTRES="billing=1,cpu=1,mem=1G,node=1"),
        row(JobID="5", ElapsedRaw="0"),
        row(JobID="6", State="RUNNING", End="Unknown", ElapsedRaw="50"),
    )
    assert [job.id for job in past.jobs] == ["6"]
    assert list(past.notes) == [
        "3 runs that never started left out",
        "1 run without a GPU left out",
        "1 run that ended in the second of its start left out",
        "1 run still running, counted with the time so far",
    ]


def test_arrays_and_requeues(tmp_path: Path) -> None:
    past = sacct(
        tmp_path,
        row(JobID="3_1"),
        row(JobID="3_2"),
        row(JobID="8", State="REQUEUED", ElapsedRaw="60"),
        row(JobID="8"),
    )
    assert [(job.id, job.group) for job in past.jobs] == [
        ("3_1", "3"), ("3_2", "3"), ("8", ""), ("8", ""),
    ]  # fmt: skip
    assert "1 run of requeued jobs counted" in past.notes[0]


def test_recorded_use_of_the_steps(tmp_path: Path) -> None:
    """Sums over a job's GPUs, the highest of its steps; 0 may mean that nothing was gathered."""
    two = row(JobID="9", AllocTRES="gres/gpu=2")
    steps = [
        row(JobID="9.batch", TRESUsageInTot="cpu=1,gres/gpumem=20G,gres/gpuutil=60,mem=1G"),
        row(JobID="9.0", TRESUsageInTot="gres/gpumem=30720M,gres/gpuutil=150"),
        row(JobID="10.batch", TRESUsageInTot="gres/gpumem=0,gres/gpuutil=0"),
    ]
    both, none = sacct(tmp_path, two, *steps, row(JobID="10")).jobs
    assert (both.peak_mib, both.shown_ratio) == (15360, 0.75)
    assert (none.peak_mib, none.shown_ratio) == (None, None)


def test_times_of_every_kind(tmp_path: Path) -> None:
    header = "JobID|State|AllocTRES|Submit|Start|End|Timelimit|"
    lines = (
        "1|COMPLETED|gres/gpu=1|1795228342|1795228343|1795228346|1-02:00:00|",
        "2|TIMEOUT|gres/gpu=1|2026-11-02T10:00:00|2026-11-02T10:00:00|2026-11-02T11:00:20|01:00:00|",
        "3|FAILED|gres/gpu=1|2026-11-02T10:00:00|2026-11-02T10:00:00|2026-11-02T10:09:00|UNLIMITED|",
    )
    first, second, third = sacct(tmp_path, *lines, header=header).jobs
    assert (first.run_s, first.start_s - first.submit_s, first.limit_s) == (3, 1, 26 * 3600)
    assert second.run_s == second.limit_s == 3600, "the limit ended it, some seconds late"
    assert (third.run_s, third.limit_s) == (540, None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"Start": "noon"}, "line 2, column start: 'noon' is not a time"),
        ({"ElapsedRaw": "-5"}, "column elapsedraw: '-5'"),
        ({"ElapsedRaw": "", "End": "Unknown"}, "column end: 'Unknown' is not known"),
        ({"ElapsedRaw": "", "End": DAY + "09:00:00"}, "is before the start"),
        ({"AllocTRES": "gres/gpu=many"}, "column alloctres"),
        ({"AllocTRES": "gpu"}, "has 'gpu', not name=value"),
        ({"AllocTRES": "gres/gpu=1,mem=lots"}, "has 'lots', not a size"),
        ({"TimelimitRaw": "soon"}, "column timelimitraw: 'soon'"),
        ({"JobID": ""}, "column jobid: '' is no job"),
        ({"User": "a|b"}, "line 2: 13 values for 12 columns"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, values: dict[str, str], words: str) -> None:
    with pytest.raises(UsageFault, match=re.escape(words)):
        sacct(tmp_path, row(**values))


def test_no_header_or_another_table(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"no column jobid.*run: sacct -a -D -P"):
        sacct(tmp_path, row(), header=row())
    with pytest.raises(UsageFault, match="no column ElapsedRaw or End"):
        sacct(tmp_path, "1|x|x|x|x", header="JobID|Submit|Start|State|AllocTRES")


def test_partitions(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("\n".join([COLUMNS.replace(",", "|"), row(), row(JobID="8", Partition="big")]))
    past = read_sacct(path, partitions=frozenset({"big"}))
    assert [job.id for job in past.jobs] == ["8"]
    assert list(past.notes) == ["1 run of other partitions left out"]


@pytest.mark.parametrize("release", ["24.11", "26.05"])
def test_recorded_answers_of_real_clusters(tmp_path: Path, release: str) -> None:
    """The columns that the adapter asks for, in its order; every job of them is accounted for."""
    from slurm_coloc.adapters.slurm.commands.accounting import SACCT_COLUMNS, SACCT_DELIMITER

    text = (RECORDED / release / "sacct.txt").read_text().replace(SACCT_DELIMITER, "|")
    path = tmp_path / "sacct.txt"
    path.write_text("|".join(SACCT_COLUMNS) + "\n" + text)
    past = read_sacct(path)
    never = sum("|None assigned|" in line for line in text.splitlines())
    empty = sum("ended in the second" in note for note in past.notes)
    assert len(past.jobs) + never <= len(text.splitlines())
    assert {job.kind for job in past.jobs} <= {"", "a100", "h100"} and empty
    assert all(job.gpus == 1 and job.run_s > 0 for job in past.jobs)
    assert any(job.peak_mib == 7 * 1024 for job in past.jobs)


def test_most_gpus_at_once() -> None:
    def job(start_s: float, run_s: float, gpus: int) -> PastJob:
        return PastJob("1", start_s, start_s, run_s, gpus)

    assert most_at_once([]) == 0
    assert most_at_once([job(0, 10, 2), job(10, 5, 3)]) == 3, "one ends as the other starts"
    assert most_at_once([job(0, 10, 2), job(9, 5, 3)]) == 5


def test_shares_are_parts_of_gpus() -> None:
    def share(mib: int) -> PastJob:
        return PastJob("1", 0, 0, 10, 1, share_mib=mib)

    third = share(40_000 // 3)
    assert most_at_once([third] * 4) == 4 and most_at_once([third] * 4, 40_000) == 2
    assert most_at_once([third] * 3, 40_000) == 1
    assert most_at_once([share(80_000)], 40_000) == 1
    assert most_at_once([third, PastJob("2", 0, 0, 10, 2)], 40_000) == 3


def philly(folder: Path, body: Any) -> Past:
    path = folder / "cluster_job_log"
    path.write_text(json.dumps(body))
    return read_philly(path)


def attempt(start: str | None, end: str | None, *servers: int) -> dict[str, Any]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{j}" for j in range(n)]} for i, n in enumerate(servers)]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly_job(*attempts: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f4c",
        "submitted_time": "2017-10-07 01:00:00", "attempts": list(attempts),
    }  # fmt: skip


def test_philly(tmp_path: Path) -> None:
    past = philly(
        tmp_path,
        [
            philly_job(
                attempt("2017-10-07 01:10:00", "2017-10-07 01:11:00", 8, 8),
                attempt("2017-10-07 01:20:00", "2017-10-07 02:20:00", 1),
            ),
            philly_job(),
            philly_job(attempt("2017-10-07 01:10:00", "None", 1), attempt(None, None, 1)),
        ],
    )
    first, second = past.jobs
    assert (first.gpus, first.run_s, first.start_s - first.submit_s) == (16, 60, 600)
    assert (second.gpus, second.run_s, second.start_s - second.submit_s) == (1, 3600, 540)
    assert first.account == "ee9e8c" and first.group == second.group == "application_1"
    assert [note.split()[0] for note in past.notes] == ["1", "1", "2"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "is not a list of jobs"),
        ([3], "job 1: is not an object"),
        ([{"jobid": "a"}], "job 1 (a): submitted_time and attempts are needed"),
        ([philly_job(attempt("noon", None, 1))], "attempt 1, start_time: 'noon' is not a time"),
        (
            [philly_job(attempt("2017-10-07 01:10:00", "2017-10-07 01:09:00", 1))],
            "end_time is before start_time",
        ),
        ([philly_job({"start_time": None, "end_time": None, "detail": [5]})], "detail: is not"),
    ],
)
def test_a_bad_philly_log_is_named(tmp_path: Path, body: Any, words: str) -> None:
    with pytest.raises(UsageFault, match=re.escape(words)):
        philly(tmp_path, body)


HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
)


def test_helios(tmp_path: Path) -> None:
    path = tmp_path / "cluster_log.csv"
    path.write_text(
        f"{HELIOS}\n"
        "1,u1,vc1,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:42:27,,249,60\n"
        "2,u1,vc1,0,16,1,COMPLETED,2020-06-09 18:41:27,2020-06-09 18:41:27,,249,0\n"
        "3,u1,vc1,1,16,1,CANCELLED,2020-06-09 18:41:27,,,,\n"
    )
    past = read_helios(path)
    (job,) = past.jobs
    assert (job.gpus, job.cpus, job.run_s, job.start_s - job.submit_s) == (4, 16, 249, 60)
    assert list(past.notes) == [
        "1 job without a GPU left out",
        "1 job that never started left out",
    ]
    path.write_text(f"{HELIOS}\n1,u1,vc1,1,16,1,FAILED,yesterday,2020-06-09 18:42:27,,249,60\n")
    with pytest.raises(UsageFault, match="line 2, column submit_time: 'yesterday'"):
        read_helios(path)
