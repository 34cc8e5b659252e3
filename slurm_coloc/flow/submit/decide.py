# SPDX-License-Identifier: Apache-2.0
"""Stage 2, decide: estimate -> decision -> answer for the hook, and a record of it."""

import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.adapters.store.runs import ABANDONED
from slurm_coloc.config import Config, Mode
from slurm_coloc.core.decide import slowdown_limit
from slurm_coloc.core.decide.decide import History, Question, Rules, decide
from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.learned import HISTORY
from slurm_coloc.core.decide.request import JobRequest, gpu_demand
from slurm_coloc.core.decide.reserve import reserve_as
from slurm_coloc.core.decide.rewrite import Rewrite, exclusive_tres, rewrite, whole_gpu
from slurm_coloc.core.decide.sizing import Sizing
from slurm_coloc.core.decide.slices import more
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.admin_comment import comment_with
from slurm_coloc.core.slurm.cluster import ClusterShape, shared_gpus, wanted_partitions
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS, SiteLimits, within
from slurm_coloc.core.time.slot import Slot
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.cluster.context import Submission
from slurm_coloc.flow.submit.estimate import Estimated, Estimating
from slurm_coloc.flow.submit.history import Learning, Note
from slurm_coloc.flow.submit.message import SubmitMessage, read_message
from slurm_coloc.flow.submit.mode import Modes
from slurm_coloc.flow.submit.slot import slot_of

log = structlog.get_logger()

Answer = dict[str, str]

#: What placing adds to the change of a submission.
Place = Callable[[Submission], Rewrite]

NOT_TAKEN = "0" * 12  # decision id of a job that colocd leaves alone


def rules_of(config: Config) -> Rules:
    """The deciding part of a configuration."""
    pool = config.pool
    budget = pool.compute_budget if pool.size_by_smact else None
    sizing = Sizing(pool.shard_mib, pool.max_jobs_per_gpu, budget)
    return Rules(sizing, pool.partitions, config.sharing.method)


class Decider:
    """Answers the hook's submissions under one configuration."""

    def __init__(self, config: Config, store: Store, place: Place | None = None) -> None:
        """``place``: adds to a share the GPU that it is pinned to, where GPUs are steered."""
        self._place = place
        self._config = config
        self._rules = rules_of(config)
        self._store = store
        self._modes = Modes(config)
        self._estimating = Estimating(config.estimate)
        self._learning = Learning(config.estimate, store)

    def close(self) -> None:
        """Stop the estimator's threads."""
        self._estimating.close()

    async def warm_up(self) -> None:
        """Make the estimator ready for the first submission; never raises."""
        await self._estimating.warm_up()

    async def submit(
        self,
        message: dict[str, Any],
        shape: ClusterShape | None,
        limits: SiteLimits = NO_LIMITS,
        *,
        stale: bool = False,
    ) -> Answer:
        """Decide one submission; raises UsageFault for a malformed request. ``stale``: slurmctld
        has read slurm.conf since ``shape`` was seen; what it takes now is not known, but it takes a
        whole GPU."""
        asked = read_message(message)
        request = asked.request()
        mode = self._mode(request, shape)
        if mode == "off":
            return _answer(Decision(Action.ASIS, Reason.OFF), NOT_TAKEN, Rewrite(), [])
        gpu_types = self._gpu_types(request, shape)
        demand = gpu_demand(request)
        processes = max(1, demand.total or 1) if demand.one_per_task else 1
        estimated = await self._estimating.of(asked.coloc, request.uid, gpu_types, processes)
        estimated = replace(estimated, features=estimated.features | {"given": asked.coloc.given})
        estimated, note = self._learning.corrected(estimated, request, gpu_types)
        if shape is not None and stale:
            shape = replace(shape, select_params=frozenset())
        decision = self._decide(asked, request, estimated, None if stale else shape)
        if shape is not None:
            decision = within(decision, request, shape, limits)
            decision = self._bounded(decision, asked, estimated, shape)
        decision_id = secrets.token_hex(6)
        if note and note.why and decision.reason is Reason.FILLS_GPU:
            decision = replace(decision, detail=f"{decision.detail}: {note.why}")
        shape = shape or ClusterShape("", ())
        slot, about_slot = slot_of(self._config.slots, asked, decision, shape)
        self._record(decision_id, mode, request, decision, estimated, shape, note, slot)
        log.info(
            "decision",
            decision=decision_id,
            uid=request.uid,
            mode=mode,
            action=str(decision.action),
            reason=str(decision.reason),
            shards=decision.shards,
            upper_mib=estimated.estimate.upper_mib if estimated.estimate else None,
        )
        if mode == "observe":
            line = f"observe mode, submitted unchanged; would be: {_told(decision, estimated)}"
            return _answer(Decision(Action.ASIS, Reason.OBSERVE), decision_id, Rewrite(), [line])
        change = rewrite(request, decision, shape)
        if self._place and decision.action is Action.COLLOCATE:
            smact = estimated.estimate.smact if estimated.estimate else None
            change = self._place(Submission(decision_id, request, decision, smact, change))
        lines = self._lines(asked, decision, estimated, steered=self._steered(shape))
        lines += [about_slot] if about_slot else []
        if not more(decision, request, shape, self._rules.pool):
            lines.append(
                "after a GPU out-of-memory it is not requeued: this Slurm cannot give it more"
            )
        answer = _answer(decision, decision_id, change, lines)
        if slot:
            answer["env.COLOC_SLOT"] = slot.told
        answer["admin_comment"] = comment_with(request.admin_comment, decision_id, decision)
        answer["exclusive_gres"] = whole_gpu(shape, None, 1, _fewest_shards(shape))
        return answer

    def _gpu_types(self, request: JobRequest, shape: ClusterShape | None) -> list[str | None]:
        """Types of shared GPUs that the job may get."""
        if shape is None:
            return []
        demand = gpu_demand(request)
        gpus = max(1, demand.total or 1)
        kinds = shared_gpus(request, demand.type, shape, self._rules.pool, gpus)
        return [kind.type for kind in kinds]

    def _mode(self, request: JobRequest, shape: ClusterShape | None) -> Mode:
        partitions = wanted_partitions(request, shape or ClusterShape("", ()))
        return self._modes.of(request.uid, request.account or request.default_account, partitions)

    def _decide(
        self,
        asked: SubmitMessage,
        request: JobRequest,
        estimated: Estimated,
        shape: ClusterShape | None,
    ) -> Decision:
        if shape is None:
            return Decision(Action.EXCLUSIVE, Reason.NO_SHAPE)
        share = None
        if estimated.fingerprint:
            share = self._store.runs.oom_share_mib(
                estimated.fingerprint, estimated.options, request.uid
            )
        question = Question(request, estimated.estimate, estimated.no_estimate, estimated.detail)
        try:
            chosen = reserve_as(asked.coloc.policy)
        except UsageFault as err:
            return Decision(Action.EXCLUSIVE, Reason.USER_EXCLUSIVE, detail=err.message)
        return decide(question, chosen, shape, History(share), self._rules)

    def _record(
        self,
        decision_id: str,
        mode: Mode,
        request: JobRequest,
        decision: Decision,
        estimated: Estimated,
        shape: ClusterShape,
        note: Note | None,
        slot: Slot | None,
    ) -> None:
        found = estimated.estimate
        whole = more(decision, request, shape, self._rules.pool)
        self._store.decisions.add(
            StoredDecision(
                id=decision_id,
                cluster=shape.name,
                made_s=time.time(),
                uid=request.uid,
                account=request.account,
                partition=request.partition,
                mode=mode,
                action=str(decision.action),
                reason=str(decision.reason),
                detail=decision.detail,
                shards=decision.shards,
                shard_mib=decision.slice_mib or self._config.pool.shard_mib,
                shards_per_gpu=decision.shards_per_gpu,
                estimator=found.name if found else None,
                memory_mib=found.memory_mib if found else None,
                upper_mib=found.upper_mib if found else None,
                smact=found.smact if found else None,
                fingerprint=estimated.fingerprint,
                options=estimated.options,
                features=estimated.features,
                slot=slot.told if slot else None,
                max_slowdown=decision.max_slowdown,
                learning=asdict(note) if note else None,
                request=asdict(request),
                exclusive_tres=whole or exclusive_tres(request, shape),
                may_requeue=request.batch and request.requeue != 0 and bool(whole),
                # In observe mode the job carries no mark and cannot be found again.
                bound=0 if mode == "on" else ABANDONED,
            )
        )

    def _steered(self, shape: ClusterShape) -> bool:
        """Whether colocd chooses the GPUs."""
        return self._config.placement.mode == "steered" and bool(shape.steerable)

    def _bounded(
        self, decision: Decision, asked: SubmitMessage, estimated: Estimated, shape: ClusterShape
    ) -> Decision:
        """The decision under the slowdown that the job bears."""
        bound = asked.coloc.max_slowdown or self._config.slowdown.max_slowdown
        smact = estimated.estimate.smact if estimated.estimate else None
        return slowdown_limit.bounded(decision, bound, smact, steered=self._steered(shape))

    def _lines(
        self, asked: SubmitMessage, decision: Decision, estimated: Estimated, *, steered: bool
    ) -> list[str]:
        if decision.action is not Action.COLLOCATE:
            return [_told(decision, estimated)]
        lines = [_told(decision, estimated)]
        if decision.max_slowdown is not None:
            gate = self._config.placement.node_gate
            lines.append(
                slowdown_limit.told(decision.max_slowdown, steered=steered, node_gate=gate)
            )
        if asked.coloc.kind != "batch":
            lines.append("after a GPU out-of-memory it is not requeued: it is no batch job")
        elif asked.requeue == 0:
            lines.append("after a GPU out-of-memory it is not requeued: --no-requeue")
        return lines


def _told(decision: Decision, estimated: Estimated) -> str:
    """The decision in one line for the user."""
    if decision.action is Action.ASIS:
        return f"submitted unchanged: {decision.why}"
    if decision.action is Action.EXCLUSIVE:
        return f"runs on a whole GPU: {decision.why}"
    found = estimated.estimate
    assert found is not None  # a job is collocated only with an estimate
    figures = f"at most {found.upper_mib} MiB expected"
    if found.name != HISTORY:
        figures = f"estimate {found.memory_mib} MiB, at most {found.upper_mib}, {found.name}"
    more = f"; {estimated.detail}" if estimated.detail else ""
    if decision.slice_mib:
        return f"gets a MIG device {decision.gpu_type}, {decision.slice_mib} MiB ({figures}{more})"
    what = "a GPU" if decision.gpus == 1 else f"{decision.gpus} GPUs"
    each = "" if decision.gpus == 1 else " on each"
    return (
        f"shares {what}: {decision.shards} of {decision.shards_per_gpu} shards reserved{each}"
        f" ({figures}{more})"
    )


def _fewest_shards(shape: ClusterShape) -> int:
    return min((node.shards_per_gpu for node in shape.nodes if node.shards), default=0)


def _answer(decision: Decision, decision_id: str, change: Rewrite, lines: list[str]) -> Answer:
    answer = {
        "action": str(decision.action),
        "decision": decision_id,
        "reason": str(decision.reason),
    }
    answer |= {f"message.{number}": line for number, line in enumerate(lines, start=1)}
    answer |= {f"set.{name}": str(value) for name, value in change.fields.items()}
    answer |= {f"env.{name}": "" for name in change.empty_env}
    return answer
