# SPDX-License-Identifier: Apache-2.0
"""The steps of `coloc leave`, pure: which are done, which is next, and what waits for what.

Each step follows from what Slurm and the files show now, so it may be stopped at any point and
begun again. No job may have shards when slurmctld reads a slurm.conf without them: it could not
read their gres, would start whole-GPU jobs on GPUs in use, and waiting jobs without a GPU (tried
24.11.5).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.gres import PER_TASK, count_of, parse_gres, with_item, without
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.slurm.releases import SLASHED_GRES

SHOWN = 8


class State(StrEnum):
    """How a step stands. ``next``: --yes does it; ``waits``: for jobs, or for a step before it;
    ``by hand``: an admin does it."""

    DONE = "done"
    NEXT = "next"
    WAITS = "waits"
    BY_HAND = "by hand"


@dataclass(frozen=True, slots=True)
class Step:
    """``todo``: what to do; ``lines``: which lines to take out, or what to run."""

    name: str
    state: State
    found: str
    todo: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shares:
    """Jobs with shards: those that wait in the queue, those whose shards are taken on a node (also
    suspended and COMPLETING ones), and those that have ended and slurmctld still knows."""

    waiting: tuple[JobView, ...] = ()
    holding: tuple[JobView, ...] = ()
    ended: tuple[JobView, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """``off``: the off file says "leave"; ``work``: recoveries that colocd has begun, None where it
    does not answer; ``edits``: lines of slurm.conf to change, each with what it becomes ("" for
    nothing); ``node_edits``: of the other files; ``in_force``: what of shards slurmctld runs;
    ``hook_in_force``: it calls job_submit.lua, ``script_is_ours``: which is our sample."""

    off: bool
    off_file: str
    work: int | None
    shares: Shares
    shape: ClusterShape
    limits_set: bool = False
    in_force: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    node_edits: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    offering: tuple[str, ...] = ()
    controllers: int = 1
    hook_in_force: bool = False
    script_is_ours: bool = False


def shares_of(views: Iterable[JobView]) -> Shares:
    """Every job and array task that asks for shards, by what it does."""
    waiting, holding, ended = [], [], []
    for view in views:
        if not count_of(view.tres, "shard"):
            continue
        if view.ended:
            ended.append(view)
        elif view.state == "PENDING" and not view.completing:
            waiting.append(view)
        else:
            holding.append(view)
    return Shares(tuple(waiting), tuple(holding), tuple(ended))


def whole_request(view: JobView, shape: ClusterShape) -> str:
    """The request of a share on whole GPUs instead, as core/slurm/gres.gpu_request writes it: one
    GPU where it has shards of one. The GPU's type stays, but not that of a pin."""
    pins = {kind for node in shape.nodes for kind in node.devices}
    kinds = [one.type for one in parse_gres(view.tres) if one.name == "shard" and one.type]
    kind = next((one for one in kinds if one not in pins), shape.whole_type)
    gpu = f"gres/gpu:{kind}:1" if kind else "gres/gpu:1"
    if view.tres.startswith(PER_TASK):
        return PER_TASK + with_item(without(view.tres_per_task, "gpu", "shard"), gpu)
    return with_item(without(view.tres_per_node, "gpu", "shard"), gpu)


def pinned(view: JobView, shape: ClusterShape) -> bool:
    """Whether colocd has chosen the job's GPU."""
    pins = {kind for node in shape.nodes for kind in node.devices}
    return any(one.name == "shard" and one.type in pins for one in parse_gres(view.tres))


def steps(facts: Facts) -> list[Step]:
    """All steps in their order."""
    first = [_off(facts), _recoveries(facts), _waiting(facts), _holding(facts), _limits(facts)]
    clear = all(step.state is State.DONE for step in first)
    return [*first, _controller(facts, clear), *_nodes(facts, clear)]


def _off(facts: Facts) -> Step:
    name, more = "switch off", " (on each controller)" if facts.controllers > 1 else ""
    if facts.off:
        return Step(name, State.DONE, f"{facts.off_file} says leave{more}")
    todo = f"--yes writes it; or: echo leave > {facts.off_file}{more}"
    return Step(name, State.NEXT, "new --coloc jobs still share GPUs", todo)


def _recoveries(facts: Facts) -> Step:
    name = "recoveries"
    if facts.work is None:
        return Step(name, State.DONE, "colocd does not answer: it begins none")
    if facts.work:
        todo = "colocd finishes what it has begun; leave it running, and wait"
        return Step(name, State.WAITS, f"{facts.work} jobs are being put back", todo)
    return Step(name, State.DONE, "no job is being put back")


def _waiting(facts: Facts) -> Step:
    name, found = "waiting shares", facts.shares.waiting
    if not found:
        return Step(name, State.DONE, "no job waits for shards")
    text = f"{len(found)} wait for shards: {named(found)}"
    if not facts.off:
        return Step(name, State.WAITS, text, "after the switch: new ones would come")
    if not SLASHED_GRES.holds(facts.shape.release):
        # Tried on 22.05.8: the job shows gres/gpu:1 and keeps its shards, and never starts again
        # once slurmctld has none.
        todo = "Slurm 22.05 cannot turn a share into a job for a whole GPU: let them run, release"
        return Step(name, State.WAITS, text, f"{todo} those that are held, or cancel them")
    if not facts.shape.keeps_whole_apart and facts.shares.holding:
        todo = "before 23.11.5 Slurm would put a whole-GPU job beside a share: they wait until no"
        return Step(name, State.WAITS, text, f"{todo} share runs")
    return Step(
        name, State.NEXT, text, "--yes turns each into a job for a whole GPU, held ones too"
    )


def _holding(facts: Facts) -> Step:
    name, found = "running shares", facts.shares.holding
    if not found:
        return Step(name, State.DONE, "no job holds shards")
    todo = "wait for their end (--wait), or scancel them; resume the suspended ones"
    return Step(name, State.WAITS, f"{len(found)} hold shards: {named(found)}", todo)


def _limits(facts: Facts) -> Step:
    name = "limits"
    if not facts.limits_set:
        return Step(name, State.DONE, "coloc limits has set none")
    return Step(name, State.BY_HAND, "coloc limits has set some", "coloc limits --undo --apply")


def _controller(facts: Facts, clear: bool) -> Step:
    name = "controller"
    if not facts.in_force:
        return Step(name, State.DONE, "slurmctld has neither shards nor the hook")
    text = f"slurmctld has {', '.join(facts.in_force)}"
    if not clear:
        return Step(name, State.WAITS, text, "after the steps before: change nothing there yet")
    todo = "change these lines in slurm.conf on every controller, restart slurmctld, run this again"
    return Step(name, State.BY_HAND, text, todo, facts.edits)


def _nodes(facts: Facts, clear: bool) -> list[Step]:
    found = []
    todo = "change these files, restart slurmd, then stop the agent"
    if facts.in_force:
        text = "after the controller: a node that offers more than slurmctld wants stays up"
        found.append(Step("nodes", State.WAITS, text, lines=facts.node_edits if clear else ()))
    elif facts.offering or facts.linked:
        names = ", ".join(dict.fromkeys([*facts.offering, *facts.linked]))
        found.append(Step("nodes", State.BY_HAND, f"still set up: {names}", todo, facts.node_edits))
    else:
        found.append(Step("nodes", State.DONE, "no agent says that shards are offered"))
    text = (
        "sbatch there knows --coloc as long as the plugin is loaded, and the job goes as submitted"
    )
    todo = "take the line out of plugstack.conf when no script has --coloc any more"
    here = any(line.startswith("plugstack.conf") for line in facts.node_edits)
    left = State.BY_HAND if here else State.DONE
    login = Step("login nodes", State.WAITS if facts.in_force else left, text, todo)
    stop = "systemctl disable --now slurm-coloc; then remove our lines from job_submit.lua"
    ends = State.WAITS if facts.in_force or facts.linked else State.BY_HAND
    if facts.work is None and not facts.in_force:
        ends = State.DONE
    return [*found, login, Step("colocd", ends, "the last to go", stop)]


def named(views: Sequence[JobView]) -> str:
    """The first jobs, each with its owner's part of the queue."""
    names = [f"{view.handle}{' (held)' if view.held else ''}" for view in views[:SHOWN]]
    more = f" and {len(views) - SHOWN} more" if len(views) > SHOWN else ""
    return ", ".join(names) + more
