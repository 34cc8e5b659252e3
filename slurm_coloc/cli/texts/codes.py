# SPDX-License-Identifier: Apache-2.0
"""The short words that stand in answers, their JSON and colocd's log, and what each means."""

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_coloc.cli.tries import NEXT, STAYS
from slurm_coloc.core.decide.decision import TEXTS, WITHOUT_ANSWER, Action
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.core.place.steering.snapshot import Why
from slurm_coloc.core.recover.next_try import Verdict
from slurm_coloc.core.recover.outcome import WHOSE, Outcome

ACTIONS = {
    Action.COLLOCATE: "the job shares: shards of one GPU, or of one for each task, or a MIG device",
    Action.EXCLUSIVE: "the job has a whole GPU",
    Action.ASIS: "the request stays as it was submitted",
}

OUTCOMES = {
    Outcome.COMPLETED: "Slurm says COMPLETED",
    Outcome.OOM_GPU: "the job FAILED, and its log or the driver shows that GPU memory ran out",
    Outcome.OVERRUN: "the agent ended its processes, which held more of a GPU than was promised"
    " (`fence.overrun`), and the job FAILED by that; recovered like an out-of-memory of its own",
    Outcome.OOM_HOST: "the node's memory ran out, not the GPU's: left to Slurm and the owner",
    Outcome.FAILED: "the job FAILED for another reason",
    Outcome.CANCELLED: "somebody cancelled it",
    Outcome.IDLE: "colocd cancelled it: it held a GPU and did not use it (`[idle]`)",
    Outcome.TIMEOUT: "its time limit or deadline passed",
    Outcome.PREEMPTED: "Slurm preempted it",
    Outcome.NODE_FAIL: "its node failed",
    Outcome.REQUEUED: "somebody else than colocd put it back into the queue",
    Outcome.PUT_BACK: "colocd put it back before it began, because its GPU was not fit for it",
    Outcome.SLOT: "it left at the end of its time slot, to go on in the next one",
    Outcome.GONE: "Slurm no longer knows the job, and nothing tells how it ended",
}

VERDICTS = STAYS | {
    Verdict.REQUEUE: "put back for its own need: with more memory, then on a whole GPU",
    Verdict.VICTIM: "put back with the same request, because others ended it",
    Verdict.NOT_OURS: "not requeued: another cause than GPU memory,"
    " or a job that colocd did not place",
}

FENCES = {
    FenceLevel.CGROUP: "the kernel holds all processes of the job together"
    " (driver r615, cgroup v2, no MIG)",
    FenceLevel.MPS: "the MPS server refuses each client process what is above the share",
    FenceLevel.FRAMEWORK: "PyTorch or JAX refuses itself; other programs are not held",
    FenceLevel.NONE: "nothing holds the job to its share",
}

PLACES = {
    Why.POLICY: "the policy chose this GPU",
    Why.PLAN: "the plan of the whole queue chose this GPU, or lets the job wait no longer"
    " (placement.plan)",
    Why.PLANNED: "the plan (placement.plan) starts it later: other jobs of its owner go first, or"
    " more room comes soon",
    Why.MOVED: "the GPU that it was pinned to no longer suits; this one does",
    Why.STALE: "the node's figures are too old: Slurm places the job",
    Why.CLOSED: "the node is drained, down or reserved: Slurm places the job",
    Why.NO_ROOM: "no GPU has room: Slurm places the job",
    Why.GATE: "every GPU with room is above placement.smact_gate: the job waits",
    Why.BEHIND: "a job before it in the queue waits for that GPU",
    Why.WHOLE: "placement.whole_first keeps these GPUs for a job that waits for whole ones",
    Why.GAVE_UP: "it waited for placement.max_pin_s: Slurm places the job",
    Why.NOT_YET: "Slurm does not consider the job yet (held, dependent, delayed, beyond a limit)",
    Why.ENOUGH: "placement.ahead jobs before it are placed first",
    Why.USERS: "every GPU with room has jobs of users that it may not share with (sharing.with)",
    Why.BOUND: "a slowdown limit, its own or a neighbour's, closes every GPU with room",
}

#: title, where the words stand, and the words
PARTS: tuple[tuple[str, str, Mapping[Any, str]], ...] = (
    ("What was decided", "`action` of a decision.", ACTIONS),
    ("Why it was decided", "`reason` of a decision; in words in column WHY.", TEXTS),
    (
        "Why colocd did not decide",
        "Where slurmctld's hook has no answer; in AdminComment and slurmctld's log. A word"
        " `colocd_...` is an error that colocd answered.",
        WITHOUT_ANSWER,
    ),
    ("How a run ended", "`outcome`; in words in column STATE.", OUTCOMES),
    ("Who caused it", "`blame`, where GPU memory ran out or a GPU failed.", WHOSE),
    ("Whether it is put back", "`verdict` of an ended run.", VERDICTS),
    ("What the next run asks for", "`retry_way`, in brackets the cause.", NEXT),
    ("What holds a job to its memory", "The fence that the job's output names.", FENCES),
    ("Where it is placed", "Reasons of steered placement in `coloc explain`.", PLACES),
)


def meanings(code: str) -> Iterator[tuple[str, str]]:
    """Each kind of word that ``code`` is, and what it means there."""
    for title, _, words in PARTS:
        for word, text in words.items():
            if str(word) == code:
                yield title, text


def every_code() -> list[str]:
    """All words, each once."""
    return sorted({str(word) for _, _, words in PARTS for word in words})
