# SPDX-License-Identifier: Apache-2.0
"""The Epilog's report, checked: it comes from a node, over the socket or through the spool."""

import json
import time
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurm_coloc.adapters.store import Store
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.nodes.usage import Time, UsedRecord, Uuid
from slurm_coloc.flow.nodes.usage import read as read_used

log = structlog.get_logger()

MAX_SPOOLED = 65536  # bytes of one spooled report
Mib = Annotated[int, Field(ge=0, le=2**40)] | None
Code = Annotated[int, Field(ge=-(2**31), lt=2**31)] | None
#: names of clusters and nodes: one word, checked by hookenv on the node in the same way
Word = Annotated[str, Field(max_length=256, pattern=r"^[^\s/\x00-\x1f\x7f]*$")]


class Message(BaseModel):
    """A message, or a part of one; unknown names of a later release are dropped."""

    model_config = ConfigDict(extra="ignore", frozen=True)


M = TypeVar("M", bound=Message)


def checked(kind: type[M], what: str, message: dict[str, Any]) -> M:
    """The checked message; raises UsageFault that names the wrong field of ``what``."""
    try:
        return kind.model_validate(message)
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageFault(f"{what}: {where}: {first['msg']}", "bad-request") from err


class Evidence(Message):
    """The out-of-memory that the Epilog found in the log, with the figures of its text (MiB)."""

    oom: bool
    kind: Annotated[str, Field(max_length=32)] = "none"
    pattern: Annotated[str, Field(max_length=64)] = ""
    line: Annotated[str, Field(max_length=512)] = ""
    file: Annotated[str, Field(max_length=16)] = ""
    requested_mib: Mib = None
    capacity_mib: Mib = None
    in_use_mib: Mib = None
    free_mib: Mib = None
    others_mib: Mib = None


class Checkpoint(Message):
    """The checkpoint lines that the run wrote into its log (core/time/announce)."""

    saved: bool = False
    goes_on: bool = False


class RunReport(Message):
    v: Literal[1]
    cluster: Word = ""
    job_id: Annotated[int, Field(ge=1, le=2**32)]
    restart: Annotated[int, Field(ge=0, le=2**16)] | None = None
    node: Word = ""
    exit_code: Code = None
    signal: Code = None
    gpu_uuids: tuple[Uuid, ...] = Field((), max_length=64)
    ended_s: Time | None = None
    evidence: Evidence | None = None
    peak_mib: Mib = None  # of all processes that began on its GPUs while it ran
    alone: bool | None = None  # no earlier process was on them; None: not known
    method: Literal["mps", "streams", "alone"] | None = None  # how it shared its GPU
    fence: Literal["cgroup"] | None = None  # what held its memory beside MPS
    used: UsedRecord | None = None  # what the node's agent saw of it
    checkpoint: Checkpoint | None = None
    notes: tuple[Annotated[str, Field(max_length=512)], ...] = Field((), max_length=16)


def read(message: dict[str, Any]) -> RunReport:
    """A checked report; raises UsageFault where it is malformed. A record of its use that is
    malformed is left out, with a note: the report of the end still counts."""
    report = checked(RunReport, "report", message | {"used": None})
    if message.get("used") is None:
        return report
    record, wrong = read_used(message["used"], report.job_id, report.restart)
    if wrong:
        log.warning("used", jobid=report.job_id, node=report.node, error=wrong)
    notes = (*report.notes[:15], wrong) if wrong else report.notes
    return report.model_copy(update={"used": record, "notes": notes})


def keep(store: Store, report: RunReport) -> None:
    """Keep a report; it replaces an earlier one of the same run."""
    at_s, body = report.ended_s or time.time(), json.dumps(report.model_dump(mode="json"))
    store.reports.add(report.cluster, report.job_id, report.restart, report.node, at_s, body)


def take(store: Store, message: dict[str, Any]) -> int:
    """Check and keep a report; returns its job id. Raises UsageFault where it is malformed."""
    report = read(message)
    keep(store, report)
    return report.job_id


def drain(store: Store, spool_dir: Path) -> list[int]:
    """Take every spooled report of this host and remove it; returns the job ids.

    A file that is no valid report is renamed, so that it is not lost.
    """
    taken: list[int] = []
    try:
        files = sorted(spool_dir.glob("*.json"))
    except OSError:
        return taken
    for path in files:
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_SPOOLED:
                raise ValueError("not a plain small file")
            taken.append(take(store, json.loads(path.read_bytes())))
            path.unlink()
        except (OSError, ValueError, RecursionError, UsageFault) as err:
            log.warning("spool", file=path.name, error=str(err))
            _set_aside(path)
    return taken


def _set_aside(path: Path) -> None:
    try:
        path.rename(path.with_suffix(".bad"))
    except OSError as err:
        log.warning("spool", file=path.name, error=str(err))
