# SPDX-License-Identifier: Apache-2.0
"""What changes in a job's request by an answer of steering, and the words for it: events, which
tell after a restart of colocd what the request is.

What is done with a waiting task of an array is noted under the array's own number, since the task
gets one of its own only by that change.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.place.steering import Act, Answer, Pin, Rules, Waiting, Why
from slurm_coloc.core.records.runs import Event, StoredDecision
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.gres import parse_gres, same_gres, update_fields, with_pin
from slurm_coloc.flow.place.memory import Memory, key

Fields = dict[str, str | int]

REASONS = {
    Why.STALE: "the figures of its node's agent are too old",
    Why.CLOSED: "its node is closed",
    Why.NO_ROOM: "there is no room on any GPU that it may get",
    Why.GATE: "every GPU with room is too busy",
    Why.BEHIND: "a job before it waits for those GPUs",
    Why.WHOLE: "a job before it waits for a whole GPU there",
    Why.GAVE_UP: "it has waited long enough",
    Why.ENOUGH: "others come first",
    Why.NOT_YET: "Slurm would not start it now",
    Why.BOUND: "on every GPU with room, it or a job there would exceed its slowdown limit",
    Why.PLAN: "the plan lets it wait no longer",
    Why.PLANNED: "the plan starts it later: others go first, or more room comes soon",
    Why.USERS: "every GPU with room has jobs of users that it may not share with",
}
NOWHERE = "it may be pinned to no GPU now"
_UNPINNED = "asks for a whole GPU in place of {shards} shards until it is pinned"
_SHARDS = re.compile(_UNPINNED.format(shards=r"(\d+)"))


def unpinned_text(shards: int, why: str) -> str:
    """The event of a job that only a pin keeps from another user's GPU and that has none."""
    return f"{_UNPINNED.format(shards=shards)}: {why}"


def shards_in(text: str) -> int:
    """The shards of such an event; 0 in any other."""
    found = _SHARDS.match(text)
    return int(found[1]) if found else 0


def unpinned_shards(
    store: Store, memory: Memory, job: Queued, decision: StoredDecision | None
) -> int:
    """The shards that a job will have with its next pin, where it asks for a whole GPU until then;
    0 for any other. Its events are read once."""
    if decision is None or not same_gres(job.tres, decision.exclusive_tres):
        return 0
    if key(job) not in memory.unpinned:
        memory.unpinned[key(job)] = _noted_shards(store, job, decision)
    return memory.unpinned[key(job)]


def _noted_shards(store: Store, job: Queued, decision: StoredDecision) -> int:
    events = store.events(decision.id, job.job_id)
    if not job.array_id or job.restarts:
        # A task that has run may have been a share, which only its array's events tell.
        said = _said(one for one in events if one.job_id or not job.array_id)
        return shards_in(said[-1]) if said else 0
    return newest_shards(store.events(decision.id, job.array_id) + events)


def newest_shards(events: Sequence[Event]) -> int:
    """The shards of the next pin of an array's task by these events; 0: it keeps a whole GPU."""
    for one in reversed(events):
        # "siblings": by the outcome of another task all of them ask for something else.
        if one.kind == "siblings" or shards_in(one.text):
            return shards_in(one.text)
    return 0


def owners_nodes(store: Store, job: Queued, decision: StoredDecision | None) -> str:
    """The nodes that a job's owner asked for, "" for any: ReqNodeList, unless it is our pin. A pin
    that no event tells of is ours (colocd was killed before it noted it), but not where the
    decision knows no request: that job was taken over."""
    if decision is None or not job.req_nodes:
        return job.req_nodes
    said, pin = _said(store.events(decision.id, job.job_id)), f"{job.req_nodes} GPU "
    ours = bool(said) and said[-1].startswith(pin)
    kinds = [one.type for one in parse_gres(job.tres) if one.name == "shard" and one.type]
    if kinds and decision.request:
        ours = ours or not said or f" GPU {kinds[0]} by " not in said[-1]
    elif job.array_id and not kinds:
        said += _said(store.events(decision.id, job.array_id))
        ours = any(text.startswith(pin) for text in said)
    return decision.req_nodes if ours else job.req_nodes


def _said(events: Iterable[Event]) -> list[str]:
    return [one.text for one in events if one.kind == "place"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A waiting job with what its change depends on. ``wanted``: the nodes that its owner asked
    for, "" for any; ``whole``: its request on a whole GPU (StoredDecision.exclusive_tres). Requests
    are written as core/slurm/gres.gpu_request does."""

    job: Queued
    waiting: Waiting
    wanted: str
    whole: str
    rules: Rules

    @property
    def guarded(self) -> bool:
        return self.waiting.guarded(self.rules)

    def tres(self, answer: Answer, shape: ClusterShape | None) -> str:
        """The request that the answer asks for; the present one where it changes nothing."""
        now, shards = self.job.tres, self.waiting.shards
        if answer.act is Act.PIN and answer.pin is not None:
            return with_pin(now, shards, answer.pin.kind)
        if answer.pin is not None:
            return now
        if self.guarded:
            return now if same_gres(now, self.whole) else self.whole
        unpins = answer.act in (Act.UNPIN, Act.WAIT) and self._is_pinned(shape)
        return with_pin(now, shards) if unpins or same_gres(now, self.whole) else now

    def _is_pinned(self, shape: ClusterShape | None) -> bool:
        kinds = {kind for node in (shape.nodes if shape else ()) for kind in node.devices}
        return any(f":{kind}:" in self.job.tres for kind in kinds)

    def node(self, answer: Answer) -> Fields:
        """ReqNodeList for a pin to a node ("": none); a node list of the job's owner stays."""
        node = answer.pin.node if answer.pin else ""
        if answer.act is Act.KEEP or self.wanted or self.job.req_nodes == node:
            return {}
        return {"ReqNodeList": node}

    def fields(self, answer: Answer, shape: ClusterShape | None) -> Fields:
        """The fields of the job that change; none of a job on whole GPUs."""
        if not self.waiting.ours:
            return {}
        tres = self.tres(answer, shape)
        changed: Fields = {} if tres == self.job.tres else {**update_fields(tres)}
        return changed | self.node(answer)

    def text(self, answer: Answer, policy: str) -> str:
        """The event of the change."""
        if answer.pin is not None:
            late = f"; {REASONS[answer.why]}" if answer.why is Why.GAVE_UP else ""
            by = "plan" if answer.why is Why.PLAN else policy
            text = (answer.text or "it stays there") + late
            # Else ReqNodeList would be taken for ours (owners_nodes).
            node = f"{answer.pin.node} (asked for)" if self.wanted else answer.pin.node
            return chosen(replace(answer.pin, node=node), by, text)
        why = REASONS.get(answer.why, str(answer.why)) if self.waiting.nodes else NOWHERE
        if self.guarded:
            return unpinned_text(self.waiting.shards, why)
        return f"waits: {why}" if answer.act is Act.WAIT else f"left to Slurm: {why}"


def chosen(pin: Pin, policy: str, text: str) -> str:
    """The event of a pin."""
    return f"{pin.node} GPU {pin.kind} by {policy}: {text}"
