# SPDX-License-Identifier: Apache-2.0
"""What `sacct -P` prints of jobs that ran, Slurm 22.05 to 26.05.

`COMMAND` is the command to run. Job names are not asked for: users write them, with | in them too.
Any order of columns will do, and -n will not: the header says which column is which.

- Steps (12.batch, 12.0) are read for gres/gpumem and gres/gpuutil alone, which Slurm records with
  AutoDetect=nvml and AccountingStorageTRES=gres/gpu (tres.html); they are sums over a job's GPUs,
  and highest samples: a peak of memory is what is wanted, of utilization it bounds the mean.
- AllocTRES has gres/gpu=2, gres/gpu:a100=2 or both, from 22.05 on; a job in shards has gres/shard.
- A time that is not known reads Unknown (22.05 to 26.05) or None (never started, 24.11 and later).
- Each run of a requeued job has a line of its own with -D, and a job id of its own here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.past import Past, PastJob, notes
from slurm_coloc.sim.readers.cells import Cells, Table

COLUMNS = (
    "JobID,User,Account,Partition,Submit,Start,End,ElapsedRaw,TimelimitRaw,State,AllocTRES,"
    "TRESUsageInTot"
)
COMMAND = f"sacct -a -D -P --starttime now-30days --endtime now -o {COLUMNS}"
NEEDED = ("jobid", "submit", "start", "state", "alloctres")
UNKNOWN = frozenset({"", "unknown", "none", "n/a"})
#: States in which a job has not run to the end of its record yet.
WAITING = frozenset({"PENDING", "CONFIGURING"})
RUNNING = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "STAGE_OUT", "STOPPED", "RESIZING"})
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_SCALE = {"": 1 / 2**20, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 2.0**20, "P": 2.0**30}
_GPU = re.compile(r"gres/gpu(?::(.+))?")
_LENGTH = re.compile(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?(?:\.\d+)?")


@dataclass(slots=True)
class _Used:
    """Recorded use of a job, over all its GPUs: the highest of its steps."""

    mib: float = 0.0
    ratio: float = 0.0


def read_sacct(path: Path, shard_mib: int = 1024, partitions: frozenset[str] = frozenset()) -> Past:
    """The runs that had GPUs. ``shard_mib``: what one shard stands for. ``partitions``: of these
    alone; empty: of all. Raises UsageFault naming file, line and column."""
    return _Reader(path, shard_mib, partitions).past()


class _Reader:
    """Reads one file; counts what is left out."""

    def __init__(self, path: Path, shard_mib: int, partitions: frozenset[str]) -> None:
        self._path, self._shard_mib, self._partitions = path, shard_mib, partitions
        self._jobs: list[tuple[str, PastJob]] = []
        self._used: dict[tuple[str, str], _Used] = {}
        self._counts: dict[str, int] = {}

    def past(self) -> Past:
        table = Table(self._path, NEEDED, "|", f"; run: {COMMAND}")
        for row in table.rows():
            if not {"elapsedraw", "elapsed", "end"} & set(table.columns):
                raise UsageFault(f"{self._path}: no column ElapsedRaw or End; run: {COMMAND}")
            job_id, _, step = row.text("jobid").partition(".")
            if step:
                self._note_use(job_id, row)
                continue
            job = self._job(job_id, row)
            if job is not None:
                self._jobs.append((job_id, job))
        return Past([self._with_use(*pair) for pair in self._jobs], self._notes())

    def _count(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1

    def _notes(self) -> list[str]:
        words = {
            "never": "that never started left out",
            "cpu": "without a GPU left out",
            "empty": "that ended in the second of its start left out",
            "running": "still running, counted with the time so far",
            "shards": "in shards counted as one GPU each, the shards as its memory",
            "again": "of requeued jobs counted as jobs of their own",
            "elsewhere": "of other partitions left out",
        }
        return notes(*((self._counts.get(key, 0), "run", text) for key, text in words.items()))

    def _job(self, job_id: str, row: Cells) -> PastJob | None:
        if not job_id:
            raise row.fault("jobid", "is no job")
        state = row.text("state").split(" ")[0].rstrip("+").upper()
        tres = _tres(row, "alloctres")
        if self._partitions and row.text("partition") not in self._partitions:
            self._count("elsewhere")
            return None
        start_s = _moment(row, "start")
        if start_s is None or state in WAITING:
            self._count("never")
            return None
        gpus, kind, memory_mib = self._devices(tres, row)
        if gpus == 0:
            self._count("cpu")
            return None
        run_s = self._run_s(row, start_s, state)
        if run_s <= 0:
            self._count("empty")
            return None
        if memory_mib is not None:
            self._count("shards")
        if state in RUNNING:
            self._count("running")
        if state == "REQUEUED":
            self._count("again")
        array, _, task = job_id.partition("_")
        limit_s = _limit(row)
        if state == "TIMEOUT" and limit_s is not None:
            run_s = min(run_s, limit_s)  # slurmctld looks every half minute only
        return PastJob(
            id=job_id,
            submit_s=min(_moment(row, "submit") or start_s, start_s),
            start_s=start_s,
            run_s=run_s,
            gpus=gpus,
            user=row.text("user") or row.text("uid"),
            account=row.text("account"),
            group=array if task else "",
            kind=kind,
            limit_s=limit_s,
            cpus=int(tres.get("cpu", "0")) if tres.get("cpu", "0").isdigit() else 0,
            host_mib=round(_size(row, "alloctres", tres["mem"])) if "mem" in tres else 0,
            peak_mib=memory_mib,
            share_mib=memory_mib,
        )

    def _devices(self, tres: dict[str, str], row: Cells) -> tuple[int, str, int | None]:
        """(GPUs, type, MiB of a share of one GPU or None)."""
        total, kinds = None, {}
        for name, text in tres.items():
            found = _GPU.fullmatch(name)
            if not found:
                continue
            if not text.isdigit():
                raise row.fault("alloctres", f"has {name}={text}, not a number of GPUs")
            if found[1]:
                kinds[found[1]] = int(text)
            else:
                total = int(text)
        gpus = sum(kinds.values()) if total is None else total
        kind = max(kinds, key=lambda name: kinds[name]) if kinds else ""
        shards = [text for name, text in tres.items() if name.partition(":")[0] == "gres/shard"]
        if gpus == 0 and shards:
            if not shards[0].isdigit():
                raise row.fault("alloctres", f"has {shards[0]} shards, not a number")
            return 1, kind, int(shards[0]) * self._shard_mib
        return gpus, kind, None

    def _run_s(self, row: Cells, start_s: float, state: str) -> float:
        """Seconds that it ran: ElapsedRaw where there is one, for it knows of clock changes and
        suspended time."""
        if row.text("elapsedraw"):
            return row.number("elapsedraw", 0.0)
        if row.text("elapsed"):
            return _length(row, "elapsed")
        end_s = _moment(row, "end")
        if end_s is None:
            raise row.fault("end", f"is not known of a {state} job: add ElapsedRaw")
        if end_s < start_s:
            raise row.fault("end", "is before the start")
        return end_s - start_s

    def _note_use(self, job_id: str, row: Cells) -> None:
        for column in ("tresusageintot", "tresusageinmax", "tresusageinave"):
            if not row.text(column):
                continue
            tres = _tres(row, column)
            used = self._used.setdefault((job_id, column), _Used())
            if "gres/gpumem" in tres:
                used.mib = max(used.mib, _size(row, column, tres["gres/gpumem"]))
            if tres.get("gres/gpuutil", "").isdigit():
                used.ratio = max(used.ratio, int(tres["gres/gpuutil"]) / 100)

    def _with_use(self, job_id: str, job: PastJob) -> PastJob:
        """The job with what its steps recorded. Only the total tells of several GPUs; 0 stands for
        "nothing gathered" as much as for "nothing used", so it is not taken."""
        for column in ("tresusageintot", "tresusageinmax", "tresusageinave"):
            used = self._used.get((job_id, column))
            if used is None or (job.gpus > 1 and column != "tresusageintot"):
                continue
            return replace(
                job,
                peak_mib=round(used.mib / job.gpus) or job.peak_mib,
                shown_ratio=min(1.0, used.ratio / job.gpus) or None,
            )
        return job


def _tres(row: Cells, column: str) -> dict[str, str]:
    found = {}
    for part in row.text(column).split(","):
        name, equals, value = part.partition("=")
        if part and not equals:
            raise row.fault(column, f"has {part!r}, not name=value")
        if part:
            found[name] = value
    return found


def _moment(row: Cells, column: str) -> float | None:
    """A time of sacct: 2026-11-02T14:00:05, or seconds with SLURM_TIME_FORMAT=%s; None: not known.
    Differences alone are used, so the zone does not matter."""
    text = row.text(column)
    if text.lower() in UNKNOWN:
        return None
    if text.isdigit():
        return row.number(column, 0.0)
    return row.moment(column, "2026-11-02T14:00:05")


def _length(row: Cells, column: str) -> float:
    """[D-]HH:MM:SS in seconds."""
    found = _LENGTH.fullmatch(row.text(column))
    if not found:
        raise row.fault(column, "is not [D-]HH:MM:SS")
    days, first, second, third = found.groups()
    hours, minutes, seconds = (first, second, third) if third else ("0", first, second)
    return int(days or 0) * 86400.0 + int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def _limit(row: Cells) -> float | None:
    """The time limit in seconds; None for none, or for the partition's, which it does not tell."""
    for column, read in _LIMITS.items():
        text = row.text(column)
        if text and text.lower() not in UNKNOWN | {"unlimited", "partition_limit"}:
            return read(row)
    return None


_LIMITS: dict[str, Callable[[Cells], float]] = {
    "timelimitraw": lambda row: row.number("timelimitraw", 0.0) * 60,
    "timelimit": lambda row: _length(row, "timelimit"),
}


def _size(row: Cells, column: str, text: str) -> float:
    """1000M, 4G, 1536K in MiB; a number without a letter is bytes."""
    found = _SIZE.fullmatch(text.upper())
    if not found:
        raise row.fault(column, f"has {text!r}, not a size such as 4G")
    return float(found[1]) * _SCALE[found[2]]
