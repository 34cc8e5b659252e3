# SPDX-License-Identifier: Apache-2.0
"""The stages of a submission in their order, to the answer for the hook and the record."""

import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, Mode
from slurm_coloc.core.decide.decide import decide
from slurm_coloc.core.decide.decision import (
    Action,
    Decision,
    Question,
    Reason,
    Rules,
    Sizing,
)
from slurm_coloc.core.decide.prepared import (
    Estimated,
    typical,
    with_memory,
    with_site_share,
)
from slurm_coloc.core.decide.rewrite import Rewrite, exclusive_tres, rewrite, whole_gpu
from slurm_coloc.core.decide.slices import more
from slurm_coloc.core.decide.slowdown import limit_text, within_slowdown
from slurm_coloc.core.place.steerable import pinned_on
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.gres import count_of
from slurm_coloc.core.slurm.job import NO_DECISION, Mark, comment_with
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS, SiteLimits, within
from slurm_coloc.core.time.slot import Slot
from slurm_coloc.flow.cluster.context import ShareRequest
from slurm_coloc.flow.submit.estimate import Lookup, Prepare
from slurm_coloc.flow.submit.history import Learning, Note
from slurm_coloc.flow.submit.message import Submission, fitted, line_of, submission
from slurm_coloc.flow.submit.site_rules import Modes, held_more, slot_of
from slurm_coloc.flow.submit.tickets import Texts

log = structlog.get_logger()

Answer = dict[str, str]

#: Does something once the answer has been sent. May raise ColocError: it is not done, ever.
Afterwards = Callable[[Callable[[], None]], None]

#: of a record, what the log's line tells
LOGGED = ("uid", "mode", "action", "reason", "shards", "upper_mib")

#: What placing adds to the change of a submission.
Place = Callable[[ShareRequest], Rewrite]

UNPINNED = "waits for a GPU that is free or your own: colocd chooses it"
NO_REQUEUE = "not requeued if GPU memory runs out"


def rules_of(config: Config) -> Rules:
    """The deciding part of a configuration."""
    pool = config.pool
    budget = pool.compute_budget if pool.size_by_smact else None
    sizing = Sizing(pool.shard_mib, pool.max_jobs_per_gpu, budget)
    return Rules(sizing, pool.partitions, config.sharing.method, config.sharing.with_)


class Decider:
    """Answers the hook's submissions under one configuration."""

    def __init__(
        self,
        config: Config,
        store: Store,
        place: Place | None = None,
        texts: Texts | None = None,
        prepare: Prepare = lambda uid, key, packed: None,
        afterwards: Afterwards = lambda do: do(),
    ) -> None:
        """``place``: adds to a share its GPU, where GPUs are steered. ``texts``: what is known of
        users' texts; ``prepare``: has one estimated in the background. ``afterwards``: records."""
        self._place = place
        self._config = config
        self._rules = rules_of(config)
        self._store = store
        self._modes = Modes(config)
        self._lookup = Lookup(config.estimate, Texts() if texts is None else texts, prepare)
        self._learning = Learning(config.estimate, store)
        self._afterwards = afterwards
        self._pins: tuple[ClusterShape | None, SiteLimits, frozenset[str]]
        self._pins = None, NO_LIMITS, frozenset()

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
        job = submission(message, shape, self._rules.pool, stale=stale)
        mode = self._modes.of(job)
        if mode == "off":
            return _answer(Decision(Action.ASIS, Reason.OFF), NO_DECISION, Rewrite(), [])
        estimated, by = self._lookup.of(job)
        alone = typical(estimated)
        estimated, note = self._learning.corrected(job, estimated)
        learned = bool(note and note.why)
        if not learned:  # what was measured has the context that it had
            estimated = typical(estimated)
        if job.coloc.memory_mib is not None:
            estimated = with_memory(estimated, job.coloc.memory_mib, job.request.uid)
        unknown_mib = self._config.estimate.unknown_share_mib
        estimated = with_site_share(estimated, unknown_mib, job.request.uid)
        told: dict[str, Any] = {"given": job.coloc.given, "notes": estimated.detail}
        if learned and alone.estimate:
            told["without_mib"] = alone.estimate.memory_mib
        estimated = replace(estimated, features=estimated.features | told)
        decision = self._decide(job, estimated, limits)
        if note and note.why and decision.reason is Reason.FILLS_GPU:
            decision = replace(decision, detail=f"{decision.detail}: {note.why}")
        decision_id = secrets.token_hex(6)
        slot, about_slot = slot_of(self._config.slots, job, decision)
        self._afterwards(
            lambda: self._record(decision_id, mode, job, decision, estimated, note, slot, by)
        )
        if mode == "observe":
            line = f"observe mode, would be: {self._line(decision, estimated, learned)}"
            asis = Decision(Action.ASIS, Reason.OBSERVE)
            answer = _answer(asis, decision_id, Rewrite(), [line])
            mark = Mark(decision_id, asis.action, asis.reason, 0)
            answer["admin_comment"] = comment_with(job.request.admin_comment, mark)
            return answer
        change, unpinned = rewrite(job.request, decision, job.shape), False
        if self._place and decision.action is Action.COLLOCATE:
            smact = estimated.estimate.smact if estimated.estimate else None
            change = self._place(ShareRequest(decision_id, job.request, decision, smact, change))
            asks = (change.fields.get(name, "") for name in ("tres_per_node", "tres_per_task"))
            unpinned = any(count_of(str(tres), "gpu") for tres in asks)
        lines = [*self._lines(job, decision, estimated, learned), *filter(None, [about_slot])]
        if unpinned and not decision.slice_mib:
            lines.append(UNPINNED)
        if not more(decision, job.request, job.shape, self._rules.pool):
            lines.append(f"{NO_REQUEUE}: this Slurm gives no more")
        answer = _answer(decision, decision_id, change, lines)
        if slot:
            answer["env.COLOC_SLOT"] = slot.text
        mark = Mark(decision_id, decision.action, decision.reason, decision.shards)
        answer["admin_comment"] = comment_with(job.request.admin_comment, mark)
        answer["exclusive_gres"] = whole_gpu(job.shape, None, 1, _fewest_shards(job.shape))
        return answer

    def _decide(self, job: Submission, estimated: Estimated, limits: SiteLimits) -> Decision:
        """The decision by estimate and history, under the site's limits and the job's own."""
        if not job.known:
            if job.request.het:  # a component may be one for CPUs alone
                return Decision(Action.ASIS, Reason.HET_JOB)
            return Decision(Action.EXCLUSIVE, Reason.NO_SHAPE)
        oom_mib = None
        if estimated.fingerprint:
            oom_mib = self._store.runs.oom_share_mib(
                estimated.fingerprint, estimated.options, job.request.uid
            )
        found = estimated.estimate
        question = Question(
            job.request,
            found,
            estimated.no_estimate,
            estimated.detail,
            oom_mib=oom_mib,
            policy=job.coloc.policy,
            held_more=held_more(
                self._config.blame, self._store, job.request.uid, estimated.fingerprint, time.time()
            ),
        )
        rules = replace(self._rules, steered=self._pinned_on(job.shape, limits))
        decision = decide(question, job.shape, rules)
        decision = within(decision, job.request, job.shape, limits)
        limit = job.coloc.max_slowdown or self._config.slowdown.max_slowdown
        if limit is None:
            return decision
        smact = found.smact if found else None
        return within_slowdown(decision, limit, smact, steered=self._steered(job.shape))

    def _record(
        self,
        decision_id: str,
        mode: Mode,
        job: Submission,
        decision: Decision,
        estimated: Estimated,
        note: Note | None,
        slot: Slot | None,
        by: str,
    ) -> None:
        request, shape, found = job.request, job.shape, estimated.estimate
        whole = more(decision, request, shape, self._rules.pool)
        row = StoredDecision(
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
            slot=slot.text if slot else None,
            max_slowdown=decision.max_slowdown,
            learning=asdict(note) if note else None,
            request=asdict(request),
            exclusive_tres=whole or exclusive_tres(request, shape),
            may_requeue=request.batch and request.requeue != 0 and bool(whole),
            bound=0,
        )
        self._store.decisions.add(row)
        told = {name: getattr(row, name) for name in LOGGED}
        log.info("decision", decision=row.id, estimate=by, **told)

    def _pinned_on(self, shape: ClusterShape, limits: SiteLimits) -> frozenset[str]:
        """The nodes on which colocd pins jobs to GPUs."""
        place = self._config.placement
        if place.mode != "steered":
            return frozenset()
        of, under, found = self._pins
        if of is not shape or under is not limits:
            found = pinned_on(shape, limits, self._config.pool.partitions, place.nodes)
            self._pins = shape, limits, found
        return found

    def _steered(self, shape: ClusterShape) -> bool:
        """Whether colocd chooses the GPUs."""
        return self._config.placement.mode == "steered" and bool(shape.steerable)

    def _line(self, decision: Decision, estimated: Estimated, learned: bool) -> str:
        shard_mib = self._config.pool.shard_mib
        return line_of(decision, estimated.estimate, shard_mib, learned=learned)

    def _lines(
        self, job: Submission, decision: Decision, estimated: Estimated, learned: bool
    ) -> list[str]:
        """What the user is told, before time slots."""
        lines = [self._line(decision, estimated, learned)]
        if decision.action is not Action.COLLOCATE:
            return lines
        if decision.max_slowdown is not None:
            steered, gate = self._steered(job.shape), self._config.placement.node_gate
            lines.append(limit_text(decision.max_slowdown, steered=steered, node_gate=gate))
        if job.coloc.kind != "batch":
            lines.append(f"{NO_REQUEUE}: it is no batch job")
        elif job.request.requeue == 0:
            lines.append(f"{NO_REQUEUE}: --no-requeue")
        return lines


def _fewest_shards(shape: ClusterShape) -> int:
    return min((k.node.shards_per_gpu for k in shape.kinds if k.node.shards), default=0)


def _answer(decision: Decision, decision_id: str, change: Rewrite, lines: list[str]) -> Answer:
    answer = {
        "action": str(decision.action),
        "decision": decision_id,
        "reason": str(decision.reason),
    }
    answer |= {f"message.{number}": fitted(line) for number, line in enumerate(lines, start=1)}
    answer |= {f"set.{name}": str(value) for name, value in change.fields.items()}
    answer |= {f"env.{name}": "" for name in change.empty_env}
    return answer
