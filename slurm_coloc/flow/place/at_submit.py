# SPDX-License-Identifier: Apache-2.0
"""Stage place, for a submission: the GPU that the policy chooses at once. Without it Slurm might
start the job before the next round.

A share that only its pin keeps from another user's GPU asks for a whole GPU while it has no pin, so
it is on a GPU of its own if Slurm starts it first, or if colocd dies.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slurm_coloc.core.decide.rewrite import Rewrite, exclusive_tres
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.core.place.queue_order import queue_order
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.place.steering import Act, Answer, Snapshot, Waiting, steer
from slurm_coloc.core.slurm.cluster import ClusterShape, keeps_users_apart, wanted_partitions
from slurm_coloc.core.slurm.gres import PER_TASK, count_of, task_bind, with_pin
from slurm_coloc.core.slurm.job import decision_in
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS
from slurm_coloc.flow.cluster.context import Context, ShareRequest
from slurm_coloc.flow.place.changes import REASONS, chosen, unpinned_text
from slurm_coloc.flow.place.gate_wait import GateWait
from slurm_coloc.flow.place.memory import Memory
from slurm_coloc.flow.place.recording import Recording
from slurm_coloc.flow.place.submissions import as_waiting, joined, simple
from slurm_coloc.policies import policy

# A submission is placed at once only with at most so many waiting jobs and GPUs: that takes some
# milliseconds. A plan of the whole queue takes longer: it is for the next round, and a submission
# waits for that.
AT_SUBMIT = 64
# A submission that Slurm does not show after so many seconds never became a job.
UNSEEN_S = 3.0


def _field(change: Rewrite) -> str:
    """Where a share's request has its shards."""
    per_task = count_of(str(change.fields.get("tres_per_task", "")), "shard")
    return "tres_per_task" if per_task else "tres_per_node"


def answered(snapshot: Snapshot, answers: Sequence[Answer]) -> Snapshot:
    """The snapshot with the pins that its answers set: who comes next is placed around them."""
    pins = {one.job_id: one.pin for one in answers}
    waiting = tuple(
        replace(job, pin=pins[job.job_id]) if job.job_id in pins else job
        for job in snapshot.waiting
    )
    return replace(snapshot, waiting=waiting)


@dataclass(slots=True)
class Latest:
    """The last round's snapshot, with the submissions since; None where nothing is steered.
    ``turn``: of round robin; ``sent``: submissions that Slurm does not show yet: when, by which
    decision, and as what."""

    snapshot: Snapshot | None = None
    turn: int = 0
    sent: list[tuple[float, str, Waiting]] = field(default_factory=list)

    def renew(self, snapshot: Snapshot | None, queue: Sequence[Queued]) -> None:
        """A new round's snapshot."""
        now = time.time() if snapshot is None else snapshot.at_s
        shown = {decision_in(job.admin_comment) for job in queue}
        self.sent = [one for one in self.sent if one[0] > now - UNSEEN_S and one[1] not in shown]
        for *_, job in self.sent:
            snapshot = None if snapshot is None else joined(snapshot, job)
        self.snapshot = snapshot

    def add(self, decision: str, job: Waiting) -> None:
        """A submission that was pinned or waits at the gate."""
        assert self.snapshot is not None
        self.sent.append((time.time(), decision, job))
        self.snapshot = joined(self.snapshot, job)


class AtSubmit:
    """Changes the requests of submissions."""

    def __init__(
        self,
        context: Context,
        chooses: Policy,
        latest: Latest,
        memory: Memory,
        gate_wait: GateWait,
        recording: Recording,
    ) -> None:
        self._config, self._store = context.config, context.store
        self._shape, self._limits = context.shape, context.limits
        self._policy, self._latest, self._memory = chooses, latest, memory
        self._gate_wait, self._recording = gate_wait, recording

    def change(self, submitted: ShareRequest) -> Rewrite:
        """The change of a request, with the GPU that the policy chooses now; without one, with a
        whole GPU where the share needs its pin."""
        shape, change = self._shape(), submitted.change
        shards = count_of(str(change.fields.get(_field(change), "")), "shard")
        if shape is None or not shards or submitted.decision.gpus > 1:
            return change  # Slurm cannot be told which several GPUs
        snapshot = self._latest.snapshot
        plans = self._config.placement.plan != "off" and bool(self._gate_wait.until_a_round(shape))
        if snapshot is None or plans or not self._quick(snapshot):
            found = self._unpinned(submitted, shape, shards, "colocd has not looked at it yet")
            holds = plans or found is not change
            return self._held(submitted, found, shape) if holds else found
        if not simple(submitted.request, submitted.decision):
            return self._unpinned(submitted, shape, shards, "colocd has not looked at it yet")
        order = queue_order(shape, self._limits() or NO_LIMITS)
        tier = order.tier(",".join(wanted_partitions(submitted.request, shape)))
        job = as_waiting(submitted, shards, shape, tier, snapshot)
        extended = joined(snapshot, job)
        answers, turn = steer(extended, policy(extended.rules.policy))
        answer = next(one for one in answers if one.job_id == job.job_id)
        if answer.act is Act.PIN and answer.pin is not None:
            self._latest.turn = turn
            found, job = self._pinned(submitted, answer, shards), replace(job, pin=answer.pin)
        elif answer.act is Act.WAIT and (waits := self._gate_wait.at_submit(shape, job)):
            found = self._unpinned(submitted, shape, shards, REASONS[answer.why])
            if found is change:
                self._note(submitted, f"waits: {REASONS[answer.why]}")
            found = replace(found, fields=found.fields | waits)
            self._memory.begun[submitted.decision_id] = answer.why
        else:
            return self._unpinned(submitted, shape, shards, REASONS[answer.why])
        self._recording.add(extended, answers)
        self._latest.add(submitted.decision_id, job)
        return found

    def _held(self, submitted: ShareRequest, found: Rewrite, shape: ClusterShape) -> Rewrite:
        """The change of a request on a whole GPU that is to be a share: it waits for colocd's next
        round, so that Slurm does not start it before."""
        waits = self._gate_wait.until_a_round(shape)
        if not waits or not simple(submitted.request, submitted.decision):
            return found
        self._memory.begun[submitted.decision_id] = None
        return replace(found, fields=found.fields | waits)

    def _quick(self, snapshot: Snapshot) -> bool:
        """Whether the policy can be asked now: the snapshot is new, and little is to be done."""
        age_s = time.time() - snapshot.at_s
        return (
            age_s <= 2 * self._memory.interval_s + 2
            and len(snapshot.waiting) <= AT_SUBMIT
            and sum(len(node.devices) for node in snapshot.nodes) <= AT_SUBMIT
        )

    def _pinned(self, submitted: ShareRequest, answer: Answer, shards: int) -> Rewrite:
        pin, fields = answer.pin, dict(submitted.change.fields)
        assert pin is not None
        field = _field(submitted.change)
        fields[field] = with_pin(str(fields[field]), shards, pin.kind)
        if not submitted.request.req_nodes:
            fields["req_nodes"] = pin.node
        self._note(submitted, chosen(pin, self._config.placement.policy, answer.text))
        return replace(submitted.change, fields=fields)

    def _unpinned(
        self, submitted: ShareRequest, shape: ClusterShape, shards: int, why: str
    ) -> Rewrite:
        """The change of a request without a pin: as a share, or on a whole GPU."""
        request = submitted.request
        apart = keeps_users_apart(wanted_partitions(request, shape), shape)
        if self._config.placement.mode != "steered" or apart:
            return submitted.change
        if self._config.sharing.with_ == "anyone":
            return submitted.change
        self._note(submitted, unpinned_text(shards, why))
        whole = exclusive_tres(request, shape)
        asks: dict[str, str | int] = {"tres_per_node": whole}
        if whole.startswith(PER_TASK):
            task = whole.removeprefix(PER_TASK)
            asks = {"tres_per_task": task, "tres_bind": task_bind(task)}
        return replace(submitted.change, fields=submitted.change.fields | asks)

    def _note(self, submitted: ShareRequest, text: str) -> None:
        self._store.note(submitted.decision_id, None, "place", text)
