# SPDX-License-Identifier: Apache-2.0
"""Small clusters and queues for tests of policies."""

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest, Resident
from slurm_coloc.core.place.placing import Conditions, View


def request(number: int, smact: float = 0.5, need_gib: int = 10, **other: object) -> PlaceRequest:
    """A job of one GPU that is expected to run an hour."""
    values: dict[str, object] = {"gpus": 1, "run_s": 3600.0, "submit_s": 0.0} | other
    return PlaceRequest(id=number, need_mib=need_gib * 1024, activity=Activity(smact), **values)  # type: ignore[arg-type]


def slots(number: int) -> list[GpuSlot]:
    """Idle GPUs of one node, 39 GiB each."""
    return [GpuSlot(index, 0, "a100-40gb", 39 * 1024) for index in range(number)]


def put(slot: GpuSlot, job: PlaceRequest, ends_s: float = 3600.0) -> None:
    """A job runs there."""
    slot.residents.append(Resident(job, ends_s, ends_s))
    slot.reserved_mib += job.need_mib or slot.usable_mib
    slot.smact += job.activity.smact if job.activity else 1.0
    slot.whole = slot.whole or not job.share


def view(queue: list[PlaceRequest], places: list[GpuSlot], **conditions: object) -> View:
    """What a policy sees at the beginning."""
    return View(0.0, queue, places, Conditions(**conditions), depth=50)  # type: ignore[arg-type]


def starts(policy, queue: list[PlaceRequest], places: list[GpuSlot], **conditions: object):  # type: ignore[no-untyped-def]
    """All that a policy starts at one moment, as job -> seats; the jobs are put there."""
    found: dict[int, list[int]] = {}
    queue = list(queue)
    while (start := policy.next(view(queue, places, **conditions))) is not None:
        queue.remove(start.request)
        found[start.request.id] = [slot.index for slot in start.slots]
        for slot in start.slots:
            put(slot, start.request)
    return found
