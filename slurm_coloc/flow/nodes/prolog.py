# SPDX-License-Identifier: Apache-2.0
"""Answers a node's Prolog: the reservation of the job that begins, and whether its GPUs are fit."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.runs import StoredDecision, shards_of, shared
from slurm_coloc.core.recover.fitness import GpuNow, GpuProcess
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.text import printable
from slurm_coloc.flow.nodes.epilog import Message, checked
from slurm_coloc.flow.nodes.unfit_gpu import Gate

Answer = dict[str, Any]


Mib = Annotated[int, Field(ge=0, le=2**40)] | None


class ReportedProcess(Message):
    """A compute process on a GPU, as the node sees it; see core/recover/fitness.GpuProcess."""

    pid: Annotated[int, Field(ge=0, le=2**32)]
    used_mib: Mib = None
    job_id: Annotated[int, Field(ge=1, le=2**32)] | None = None
    uid: Annotated[int, Field(ge=0, le=2**32)] | None = None
    # The kernel lets a program name itself with any bytes; this name goes to logs and terminals.
    name: Annotated[str, Field(max_length=64), AfterValidator(printable)] = ""


class LaunchedGpu(Message):
    """One GPU of the job on the asking node; memory (MiB) before the job starts."""

    uuid: Annotated[str, Field(pattern=r"^[A-Za-z0-9/-]{1,96}$")]
    minor: Annotated[int, Field(ge=0, le=4095)] | None = None
    total_mib: Mib = None
    free_mib: Mib = None
    holders: tuple[ReportedProcess, ...] = Field((), max_length=64)

    def now(self) -> GpuNow:
        holders = tuple(GpuProcess(**one.model_dump()) for one in self.holders)
        return GpuNow(self.uuid, self.total_mib, self.free_mib, holders)


class LaunchMessage(Message):
    """The request of op ``launch``. ``last``: the Prolog's last try; it waits until a job with
    unfit GPUs is put back."""

    v: Literal[1]
    job_id: Annotated[int, Field(ge=1, le=2**32)]
    restart: Annotated[int, Field(ge=0, le=2**16)]
    node: Annotated[str, Field(max_length=256)]
    gpus: tuple[LaunchedGpu, ...] = Field((), max_length=64)
    last: bool = False
    unfenced: Annotated[str, Field(max_length=256)] = ""  # why nothing would hold its memory there


def read_launch(message: Answer) -> LaunchMessage:
    """Raises UsageFault that names the wrong field."""
    return checked(LaunchMessage, "launch", message)


async def launched(
    store: Store,
    view: JobView | None,
    see: Callable[[JobView], None],
    gate: Gate,
    launch: LaunchMessage,
) -> Answer:
    """Keeps the GPUs of a run that begins, and returns its reservation (null where the job has no
    mark of ours) and what is wrong with the GPUs (``unfit``, see Gate.judge).

    ``view``: the job as slurmctld shows it now. ``see``: opens the run. Raises SlurmError where
    slurmctld does not answer.
    """
    if view is None or view.restarts != launch.restart:
        return {"reservation": None}
    see(view)
    decision_id = view.decision
    decision = store.decisions.of(decision_id) if decision_id else None
    if decision is None or decision_id is None:
        return {"reservation": None}
    reservation = reservation_of(decision, view.tres, view.account or decision.account)
    held = shared(view.tres, decision)
    need_mib = _promised_mib(reservation["shards"], decision) if held else None
    gpus = [gpu.now() for gpu in launch.gpus]
    unfit = await gate.judge(
        view,
        decision,
        launch.node,
        gpus,
        need_mib,
        last=launch.last,
        unfenced=launch.unfenced,
    )
    if unfit is None or (launch.last and not unfit["back"]):
        _keep(store, decision_id, launch)
    return {"reservation": reservation, "unfit": unfit}


def reservation_of(decision: StoredDecision, tres: str, account: str | None) -> Answer:
    """What a run with this request in Slurm (``tres``) was promised, as its node is told it."""
    held = shared(tres, decision)
    return {
        "decision": decision.id,
        "action": decision.action if held else "exclusive",
        "account": account,
        "shards": shards_of(tres, decision) if held else 0,
        "shard_mib": decision.shard_mib,
        "memory_mib": decision.memory_mib,
        "upper_mib": decision.upper_mib,
        # of a process on the GPUs that its estimate was made for; None: the node's own setting
        "context_mib": (decision.learning or {}).get("context_mib") or None,
    }


def _promised_mib(shards: int, decision: StoredDecision) -> int:
    """The MiB of each GPU that the job was promised: its upper bound, within its shards; all of its
    shards where it has more than were decided, since the estimate was too low then."""
    whole, upper = shards * decision.shard_mib, decision.upper_mib
    return min(whole, upper) if upper and shards <= decision.shards else whole


def _keep(store: Store, decision_id: str, launch: LaunchMessage) -> None:
    uuids = [gpu.uuid for gpu in launch.gpus]
    if not store.runs.launched(decision_id, launch.job_id, launch.restart, uuids):
        return
    free = (f"{one.uuid} ({one.free_mib} MiB free)" for one in launch.gpus)
    text = f"starts on {launch.node}: {', '.join(free)}"
    store.note(decision_id, launch.job_id, "launch", text)
