# SPDX-License-Identifier: Apache-2.0
"""History first: what earlier runs of the same model took corrects the estimate of the next one.

At submit `Learning.corrected` asks for them; when a run ends `Learning.note` adds it. What connects
the two stands in the decision (column ``learning``): the estimate as it was without history, the
batch size and the key under which the run is remembered.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Action
from slurm_coloc.core.decide.learned import Past, correct, warm_up
from slurm_coloc.core.decide.prepared import Estimated
from slurm_coloc.core.gpu import usage
from slurm_coloc.core.gpu.usage import OwnPeak
from slurm_coloc.core.records.runs import (
    EndedRun,
    ModelPeaks,
    Report,
    Run,
    StoredDecision,
    Use,
    shared,
)
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.hosts import count_nodes
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.submit.message import Submission

log = structlog.get_logger()

#: the type of a node's GPUs, "" where it has none or the node is not known
TypeOf = Callable[[str | None], str]

TAKEN_AT_ONCE = (
    "nothing is learned from this run: it took most of the GPU at once, as JAX and TensorFlow do by"
    " default (XLA_PYTHON_CLIENT_PREALLOCATE=false or TF_FORCE_GPU_ALLOW_GROWTH=true)"
)
#: outcomes of runs that no fault cut short
WHOLE = (Outcome.COMPLETED, Outcome.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Note:
    """What a decision keeps for its runs: where they are remembered, and what was estimated
    without history (0: nothing). ``why`` is empty where history changed nothing."""

    fingerprint: str
    options: str
    batch: int
    estimator: str = ""
    memory_mib: int = 0
    upper_mib: int = 0
    context_mib: int = 0
    runs: int = 0
    why: str = ""


class Learning:
    """Estimates corrected by history, and the history of runs."""

    def __init__(self, config: EstimateConfig, store: Store) -> None:
        self._config = config
        self._store = store
        if config.history:
            warm_up(config.level)

    def corrected(self, job: Submission, estimated: Estimated) -> tuple[Estimated, Note | None]:
        """``estimated`` as history corrects it, and what is to be remembered with the decision.
        Never raises: without history the estimate stands."""
        if not self._config.history or not estimated.key or not estimated.fingerprint:
            return estimated, None
        try:
            return self._corrected(job, estimated)
        except Exception as err:  # a defect here must not cost a submission
            log.warning("history", error=f"{type(err).__name__}: {err}")
            return estimated, None

    def _corrected(self, job: Submission, estimated: Estimated) -> tuple[Estimated, Note]:
        found, context_mib = estimated.estimate, estimated.context_mib
        demand = job.request.demand
        note = Note(
            estimated.fingerprint,
            f"{demand.tasks}/{demand.gpus}/{estimated.key}",
            estimated.batch,
            estimated.estimator,
            found.memory_mib if found else 0,
            found.upper_mib if found else 0,
            context_mib if found else 0,
        )
        rows = self._store.peaks.of_model(job.request.uid, note.fingerprint, note.options)
        types = {kind or "" for kind in job.gpu_types}
        past = [_past(row, note.estimator, types) for row in rows]
        estimated = _busy(estimated, note.batch, rows, types)
        found = estimated.estimate
        what = "script" if estimated.by_script else "model"
        learned = correct(found, note.batch, context_mib, past, self._config.level, what)
        if learned is None:
            return estimated, note
        detail = "; ".join(text for text in (learned.why, estimated.detail) if text)
        return (
            replace(estimated, estimate=learned.estimate, detail=detail),
            replace(note, runs=learned.runs, why=learned.why),
        )

    def note(
        self,
        run: EndedRun,
        decision: StoredDecision,
        outcome: Outcome,
        peak: OwnPeak | None,
        uses: list[Use],
        gpu: str,
        *,
        victim: bool = False,
    ) -> None:
        """Remember how an ended run did; within the transaction that closes it.
        ``peak``: its own, measured; ``uses``: what its nodes' agents saw; ``gpu``: the
        type that it ran on; ``victim``: others ended it."""
        if not decision.learning or not self._config.history:
            return
        kept = Note(**decision.learning)
        lasted_s = run.end_s - run.start_s if run.start_s else 0.0
        own_mib = peak.peak_mib if peak else 0
        lasted = outcome in WHOLE and lasted_s >= self._config.history_min_run_s
        whole = lasted and peak is not None and peak.whole
        if not shared(run.tres, decision) and usage.taken_at_once(uses):
            self._store.note(run.decision, run.job_id, "history", TAKEN_AT_ONCE)
            return
        # A run that others ended says nothing of what the model needs.
        ran_out = outcome is Outcome.OOM_GPU and not victim
        learned = ModelPeaks(
            fingerprint=kept.fingerprint,
            uid=run.uid,
            options=kept.options,
            gpu=gpu,
            batch=kept.batch,
            peak_mib=own_mib if whole else 0,
            at_least_mib=own_mib if not whole and not ran_out else 0,
            oom_mib=run.share_mib if ran_out else 0,
            estimator=kept.estimator,
            memory_mib=kept.memory_mib,
            context_mib=kept.context_mib,
            last_s=time.time(),
            smact=usage.alone_smact(uses) if lasted else None,
        )
        if learned.peak_mib or learned.at_least_mib or learned.oom_mib:
            self._store.peaks.add(learned)


def _busy(estimated: Estimated, batch: int, rows: list[ModelPeaks], types: set[str]) -> Estimated:
    """With the SM activity that a run alone had with this batch size on this type of GPU."""
    known = [
        row.smact
        for row in rows
        if row.smact is not None and row.batch == batch and types == {row.gpu}
    ]
    if not known or estimated.estimate is None:
        return estimated
    return replace(estimated, estimate=replace(estimated.estimate, smact=known[0]))


def _past(row: ModelPeaks, estimator: str, types: set[str]) -> Past:
    same = row.estimator == estimator  # another one's figures say nothing about today's
    return Past(
        batch=row.batch,
        runs=row.runs,
        peak_mib=row.peak_mib,
        low_mib=row.low_mib,
        at_least_mib=row.at_least_mib,
        oom_mib=row.oom_mib,
        memory_mib=row.memory_mib if same else 0,
        context_mib=row.context_mib if same else 0,
        # "": the run's node was not known, or its GPUs have no type. A job that may get one of
        # several types: what was measured on one of them is not that of all.
        other_gpu=bool(row.gpu) and not types <= {row.gpu},
    )


def own_peak(
    store: Store, run: EndedRun, decision: StoredDecision, body: Report, uses: list[Use]
) -> OwnPeak | None:
    """The run's own measured peak, or None where it was not measured or where others' may be in it.
    ``uses``: what its nodes' agents saw of it, told apart from others.

    Without them the driver's accounting counts, which tells of all processes that began on a GPU
    meanwhile: they are this run's where it had the GPU whole, or where nothing else was there.
    """
    if found := usage.own_peak(uses, run.start_s, run.end_s):
        # A node that said nothing may have held more.
        every = len(uses) >= count_nodes(run.node or "")
        return replace(found, whole=found.whole and every)
    peak, start_s = body.peak_mib, run.start_s
    if not peak:
        return None
    if decision.action == Action.EXCLUSIVE or (
        decision.action == Action.COLLOCATE and not shared(run.tres, decision)
    ):
        return OwnPeak(peak, whole=True)
    if not body.alone or not start_s:
        return None
    mine = {*body.gpu_uuids, *(run.gpu_uuids or ())}
    # Slurm's clock has whole seconds: who came or went within one may have been there.
    for other in store.runs.beside(run, start_s - 1, run.end_s + 1):
        theirs = set(other.gpu_uuids or ())
        if mine & theirs or (not theirs and other.node == run.node):
            return None
    return OwnPeak(peak, whole=True)


def ended(run: Run, view: JobView | None, end_s: float, share_mib: int) -> EndedRun:
    """``run`` with its times and its share (MiB), as its end showed them."""
    start_s = (view.start_s if view else None) or run.start_s
    known = {one.name: getattr(run, one.name) for one in fields(run)}
    return EndedRun(**known | {"start_s": start_s, "end_s": end_s, "share_mib": share_mib})
