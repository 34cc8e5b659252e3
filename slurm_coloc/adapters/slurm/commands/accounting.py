# SPDX-License-Identifier: Apache-2.0
"""What slurmdbd knows, by sacct and sacctmgr. It may be away alone, so it has a gate of its own."""

from datetime import datetime
from pathlib import Path

from slurm_coloc.adapters.slurm.commands import process
from slurm_coloc.adapters.slurm.commands.columns import Marks
from slurm_coloc.adapters.slurm.commands.parse import limit_s, number, parse_exit, seconds, size_mib
from slurm_coloc.adapters.slurm.gate import Gate
from slurm_coloc.core.report.job_summary import Accounted, HostUse
from slurm_coloc.core.slurm.job import TERMINAL, EndedJob
from slurm_coloc.errors import SlurmError

# What sacct and sacctmgr say where the site has no slurmdbd.
NO_ACCOUNTING = (
    "accounting storage is disabled",
    "Only 'accounting_storage/slurmdbd' is supported",
)
# None is a name or a comment of a user's; but an account may have any character (Marks).
SACCT_COLUMNS = (
    "JobIDRaw", "JobID", "State", "Restarts", "UID", "Account", "Partition", "QOS", "NodeList",
    "AllocTRES", "AdminComment", "ExitCode", "Submit", "Start", "End",
)  # fmt: skip
SACCT_DELIMITER = "\x1f"
SACCT = ("sacct", "-a", "-X", "-D", "-n", "-P", f"--format={','.join(SACCT_COLUMNS)}")
ENDED = f"--state={','.join(sorted(TERMINAL | {'REQUEUED'}))}"


def whole_lines(text: str, between: str) -> list[str]:
    """The lines of ``sacct -P`` with SACCT_COLUMNS, with SACCT_DELIMITER for the delimiter
    ``between``, which no user knew. A value may have a line's end in it. Raises SlurmError on
    another layout."""
    found, begun = [], ""
    for piece in text.replace(SACCT_DELIMITER, " ").split("\n"):
        begun = f"{begun} {piece}" if begun else piece
        if begun.count(between) >= len(SACCT_COLUMNS) - 1:
            found.append(begun.replace(between, SACCT_DELIMITER))
            begun = ""
    if begun.strip():
        count = begun.count(between) + 1
        raise SlurmError(f"sacct: a line of {count} columns, not {len(SACCT_COLUMNS)}")
    return found


def parse_ended(line: str) -> EndedJob:
    """One line of ``sacct -P`` with SACCT_COLUMNS; raises SlurmError on another layout."""
    parts = line.split(SACCT_DELIMITER)
    if len(parts) != len(SACCT_COLUMNS):
        raise SlurmError(f"sacct: a line of {len(parts)} columns, not {len(SACCT_COLUMNS)}")
    values = dict(zip(SACCT_COLUMNS, parts, strict=True))
    exit_code, ended_by = parse_exit(values["ExitCode"])
    array, _, task = values["JobID"].partition("_")
    return EndedJob(
        job_id=number(values["JobIDRaw"]),
        state=values["State"].split(" ")[0],
        array_job_id=number(array) if task else None,
        array_task=task or None,
        restarts=number(values["Restarts"]),
        uid=number(values["UID"]),
        account=values["Account"],
        partition=values["Partition"],
        qos=values["QOS"],
        nodes="" if values["NodeList"] == "None assigned" else values["NodeList"],
        tres=values["AllocTRES"],
        admin_comment=values["AdminComment"],
        exit_code=exit_code,
        signal=ended_by,
        submit_s=seconds(values["Submit"]),
        start_s=seconds(values["Start"]),
        end_s=seconds(values["End"]),
    )


# What a job used, by itself (its first row) and by its steps.
USE_COLUMNS = ("JobIDRaw", "AllocCPUS", "TotalCPU", "AllocTRES", "MaxRSS", "End", "AdminComment")
USE = ("sacct", "-n", "-P", "--noconvert", f"--delimiter={SACCT_DELIMITER}")


def parse_use(text: str, job_id: int) -> Accounted | None:
    """The text of ``sacct`` with USE_COLUMNS for one job; None where it has no such job. For the id
    of an array, which its last task has, it answers with all tasks."""
    rows = [line.split(SACCT_DELIMITER) for line in text.split("\n") if line.strip()]
    if any(len(row) != len(USE_COLUMNS) for row in rows):
        raise SlurmError(f"sacct: a line without {len(USE_COLUMNS)} columns")
    rows = [row for row in rows if row[0].partition(".")[0] == str(job_id)]
    if not rows:
        return None
    job, *steps = rows
    _, cpus, cpu_time, tres, _, end, comment = job
    memory = dict(part.partition("=")[::2] for part in tres.split(",")).get("mem", "")
    held = [mib for row in steps if (mib := size_mib(row[4], "B")) is not None]
    cpu_s, total_mib = limit_s(cpu_time) or 0.0, size_mib(memory) or 0.0
    host = HostUse(number(cpus), cpu_s, total_mib, max(held, default=None))
    return Accounted(host, seconds(end), comment)


class Accounting:
    """Questions and orders to slurmdbd; SlurmError ``no-accounting`` where there is none."""

    def __init__(self, timeout_s: float, command_dir: Path | None = None) -> None:
        self._timeout_s = timeout_s
        self._dir = command_dir
        self._dbd_gate = Gate("slurmdbd")

    async def _command(self, *argv: str, ends: tuple[int, ...] = (0,)) -> str:
        out = await process.run(argv, self._dir, self._timeout_s, ends)
        return out.decode(errors="replace")  # Slurm keeps what users wrote, byte for byte

    async def ended(self, since_s: float) -> list[EndedJob]:
        """Jobs that ended after ``since_s``, from slurmdbd; every run of a requeued job."""
        since = datetime.fromtimestamp(since_s).strftime("%Y-%m-%dT%H:%M:%S")
        found = await self._sacct(f"--starttime={since}", "--endtime=now", ENDED)
        return sorted(found, key=lambda one: one.end_s or 0.0)

    async def accounted(self, *job_ids: int) -> list[EndedJob]:
        """Every run of these jobs as slurmdbd keeps it, also when slurmctld has forgotten it."""
        found = await self._sacct(f"--jobs={','.join(map(str, job_ids))}")
        # After `slurmctld -c` an id can stand for several jobs: the newest submission is meant.
        return sorted(found, key=lambda one: one.submit_s or 0.0)

    async def accounted_use(self, job_id: int) -> Accounted | None:
        """What the newest run of a job used; None while slurmdbd does not know the job."""
        columns = f"--format={','.join(USE_COLUMNS)}"
        return parse_use(await self._accounting(*USE, columns, f"--jobs={job_id}"), job_id)

    async def set_admin_comment(self, job_id: int, comment: str) -> None:
        """Replace the AdminComment of the newest run of a job in slurmdbd."""
        where = ("job", "where", f"jobid={job_id}", "set", f"AdminComment={comment}")
        await self._accounting("sacctmgr", "-i", "-Q", "modify", *where)

    async def steps(self, since_s: float) -> dict[str, str]:
        """Commands of the steps that began after ``since_s``, by step."""
        since = datetime.fromtimestamp(since_s).strftime("%Y-%m-%dT%H:%M:%S")
        asked = ("-a", "-n", "-P", "--format=JobID,SubmitLine", f"--starttime={since}")
        text = await self._accounting("sacct", *asked, "--endtime=now")
        rows = (line.partition("|") for line in text.split("\n"))
        return {step: line for step, _, line in rows if "." in step}

    async def _sacct(self, *chosen: str) -> list[EndedJob]:
        between = Marks.drawn().between
        text = await self._accounting(*SACCT, f"--delimiter={between}", *chosen)
        return [parse_ended(line) for line in whole_lines(text, between)]

    async def _accounting(self, *argv: str) -> str:
        try:
            return await self._dbd_gate.through(lambda: self._command(*argv))
        except SlurmError as err:
            if any(word in err.message for word in NO_ACCOUNTING):
                raise SlurmError(err.message, "no-accounting") from err
            raise

    async def set_limit(self, *command: str) -> None:
        """One `sacctmgr modify`. That nothing has changed is no error: it is what was wanted."""
        try:
            await self._accounting(command[0], "-i", "-Q", *command[1:])
        except SlurmError as err:
            if "Data has not changed" not in err.message:
                raise
