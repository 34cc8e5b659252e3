# SPDX-License-Identifier: Apache-2.0
"""Decides whether a job that may share gets a MIG device, and which: the smallest that holds it.

``auto`` follows the workshop paper's comparison of MPS, MIG and streams on one A100: MPS is best
everywhere; MIG is as good where seven small jobs share a GPU, takes the least energy there and
isolates the jobs in hardware. So a job that fits the smallest profile with seven (of an A30: four)
on a GPU gets a MIG device, a larger one gets shards where there are any.
"""

from slurm_coloc.core.decide.decision import Action, Decision, Question, Reason, Rules
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.rewrite import exclusive_tres
from slurm_coloc.core.gpu.mig import slice_of
from slurm_coloc.core.slurm.cluster import ClusterShape, MigType, mig_types
from slurm_coloc.core.slurm.releases import MIG_STAYS

#: reasons that do not forbid a MIG device, which is nobody else's
BY_MEMORY = (
    Reason.FITS,
    Reason.NO_SHARED_GPU,
    Reason.FILLS_GPU,
    Reason.HISTORY_OOM,
    Reason.SHARING_WITH,
)

# An idle MIG device of an H100 showed 13 to 38 MiB in use (nvidia-smi, driver 560): a program finds
# less than the profile's list says.
HELD_MIB = 64
# Compute slices of the profile of which most fit on a GPU (7).
SMALLEST = 1


def smallest(question: Question, kinds: tuple[MigType, ...]) -> MigType | None:
    """The smallest kind of MIG device that holds the job.

    The estimate counts the CUDA context of a whole card; a slice's was not measured and is no
    larger, so nothing is subtracted.
    """
    upper_mib = question.estimate.upper_mib if question.estimate else 0
    least = max(upper_mib, (question.oom_mib or 0) + 1) + HELD_MIB
    return next((kind for kind in kinds if kind.mib >= least), None)


def _may(request: JobRequest) -> bool:
    """Whether the request can be put on one MIG device: one GPU, of no named type, for one node. A
    user who names a card's type wants that card."""
    demand = request.demand
    return (demand.total or 1) == 1 and demand.type is None and demand.nodes == 1


def or_slice(decision: Decision, question: Question, shape: ClusterShape, rules: Rules) -> Decision:
    """``decision``, or a MIG device instead of it."""
    request, known = question.request, decision.reason in BY_MEMORY
    if question.estimate is None or not known or not _may(request):
        return decision
    if rules.method in ("mps", "streams"):
        return decision
    kind = smallest(question, mig_types(request, shape, rules.pool))
    if kind is None or not _better(decision, kind, rules):
        return decision
    detail = f"{kind.type}, {kind.mib} MiB"
    return Decision(
        Action.COLLOCATE, Reason.FITS_SLICE, 1, kind.type, 1, detail, slice_mib=kind.mib
    )


def _better(decision: Decision, kind: MigType, rules: Rules) -> bool:
    """Whether a MIG device is preferred to what was decided without MIG."""
    if decision.action is not Action.COLLOCATE or rules.method == "mig":
        return True
    found = slice_of(kind.type)
    return found is not None and found.whole and found.of == SMALLEST


def more(
    decision: Decision, request: JobRequest, shape: ClusterShape, pool: tuple[str, ...]
) -> str:
    """The request of the job's next run if this one runs out of GPU memory: a whole GPU; "" for a
    job on a MIG device where Slurm can give nothing else.

    22.05 puts jobs with shards on a GPU that is taken whole, and cannot turn a request for a GPU
    into one for shards (tried): there it is the largest device that shares its memory with nobody.
    From 23.02 to 23.11.4 nothing was tried.
    """
    if not decision.slice_mib or shape.keeps_whole_apart:
        return exclusive_tres(request, shape)
    if MIG_STAYS.holds(shape.release):
        return ""
    larger = [
        kind.type
        for kind in mig_types(request, shape, pool)
        if kind.mib > decision.slice_mib and _whole(kind)
    ]
    if not larger:
        return ""
    return request.per_node(f"gres/gpu:{larger[-1]}:1")


def _whole(kind: MigType) -> bool:
    found = slice_of(kind.type)
    return found is not None and found.whole
