# SPDX-License-Identifier: Apache-2.0
"""From a forwarded summary to an estimate, bounded in time, with the last answers kept."""

import asyncio
import base64
import hashlib
import zlib
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Estimate, Reason
from slurm_coloc.core.slurm.script import script_fingerprint
from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.api import TrainingOptions, estimate, settled
from slurm_coloc.estimate.features import SCHEMA, features, fingerprint
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.allocconf import rules_of
from slurm_coloc.estimate.replay.stack import DEFAULT_RULES, Stack
from slurm_coloc.flow.estimators.calibrations import load_stacks
from slurm_coloc.flow.estimators.networks import provide, require
from slurm_coloc.flow.submit.message import ColocOptions, Submission, unpack_summary

log = structlog.get_logger()

BETWEEN = "\f\n"  # what the SPANK plugin puts between the summaries of an array
LARGER = 2**62
KEPT = 512  # answers; the jobs of a sweep send the same text again and again

# The text that the estimator is warmed up with. It loads parsers, kinds and estimators at their
# first use, which on a busy machine takes longer than a submission may.
WARM_UP_S = 5.0  # waited for at most
WARM_UP = """\
================================================================================
Layer (type:depth-idx)                   Output Shape              Param #
================================================================================
Net                                      [1, 10]                   --
├─Conv2d: 1-1                            [1, 8, 30, 30]            224
├─Linear: 1-2                            [1, 10]                   72,010
================================================================================
Total params: 72,234
Trainable params: 72,234
Non-trainable params: 0
================================================================================
"""


@dataclass(frozen=True, slots=True)
class Estimated:
    """An estimate, or why there is none, with what the history stores of the model.

    ``key``: the options without the batch size, under which measured runs are remembered; "" where
    a run says nothing of the model (an array whose tasks have different ones). ``batch``: 0 where
    it is not known. ``estimator``: name and version. ``context_mib``: that of the estimate.
    ``by_script``: it is a script that is known again (--coloc=auto), not a model.
    """

    estimate: Estimate | None
    no_estimate: Reason = Reason.NO_ESTIMATE
    detail: str = ""
    fingerprint: str = ""
    options: str = ""
    features: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    batch: int = 0
    estimator: str = ""
    context_mib: int = 0
    by_script: bool = False


def training_options(options: ColocOptions, config: EstimateConfig) -> TrainingOptions:
    """The user's options with the site's defaults where the user said nothing."""
    return TrainingOptions(
        batch_size=options.batch_size,
        seq_len=options.seq_len,
        optimizer=options.optimizer or config.default_optimizer,
        precision=options.precision or config.default_precision,
        default_seq_len=config.default_seq_len,
        level=config.level,
        assumed=tuple(
            name for name in ("optimizer", "precision") if getattr(options, name) is None
        ),
    )


def _options_key(options: TrainingOptions) -> str:
    return f"{options.seq_len or 0}/{options.optimizer}/{options.precision}"


@dataclass(frozen=True, slots=True)
class Setting:
    """The software stack that a job runs on, with notes for the user."""

    stack: Stack
    notes: tuple[str, ...] = ()


def with_allocator(stack: Stack, text: str | None) -> Setting:
    """``stack`` with the allocator as PYTORCH_CUDA_ALLOC_CONF of the job sets it."""
    if not text:
        return Setting(stack)
    try:
        rules, notes = rules_of(text)
    except UsageFault as err:
        return Setting(stack, (f"PYTORCH_CUDA_ALLOC_CONF is passed over: {err.message}",))
    if rules != stack.allocator:
        notes = ("the job's PYTORCH_CUDA_ALLOC_CONF is allowed for", *notes)
    return Setting(replace(stack, allocator=rules), tuple(notes))


def _estimate_now(
    packed: str, options: TrainingOptions, estimator: str, setting: Setting
) -> Estimated:
    # Several texts: an array whose tasks have summaries of their own. The array is one request, so
    # the largest task counts, and one that cannot be read counts as larger than any.
    texts = unpack_summary(packed).split(BETWEEN)
    found = [_one(text, options, estimator, setting) for text in texts]
    largest = max(found, key=lambda one: one.estimate.upper_mib if one.estimate else LARGER)
    return largest if len(found) == 1 else replace(largest, key="")


def _one(text: str, options: TrainingOptions, estimator: str, setting: Setting) -> Estimated:
    try:
        summary = parse_summary(text)
        result = estimate(summary, options, stack=setting.stack, estimator=estimator)
    except SummaryError as err:
        return Estimated(None, Reason.BAD_SUMMARY, err.message)
    options = settled(summary, options)
    batch = options.batch_size or summary.batch_in_text or 0
    key = _options_key(options)
    if setting.stack.allocator != DEFAULT_RULES:
        key += f"/{setting.stack.allocator}"
    if options.world_size > 1:
        key += f"/{options.world_size} processes"
    known: dict[str, Any] = {
        "fingerprint": fingerprint(summary),
        "options": f"{batch}/{_options_key(options)}",
        "features": features(summary, options),
        "key": key,
        "batch": batch,
        "estimator": f"{result.name} {result.version}",
        "context_mib": setting.stack.context_mib,
    }
    if result.memory_mib is None or result.upper_mib is None:
        return Estimated(None, Reason.NO_ESTIMATE, result.reason, **known)
    found = Estimate(result.name, result.memory_mib, result.upper_mib, result.smact)
    detail = "; ".join([result.reason, *result.notes, *setting.notes]).strip("; ")
    return Estimated(found, detail=detail, **known)


class Estimating:
    """Estimates off the event loop, so that a huge text delays no other submission."""

    def __init__(self, config: EstimateConfig) -> None:
        """Raises ConfigError for a calibration that is wrong, or an estimator that cannot run."""
        provide()
        require(config.estimator)
        self._config = config
        self._stacks = load_stacks(config)
        self._limit_s = config.time_limit_ms / 1000
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="estimate")
        self._kept: OrderedDict[str, Estimated] = OrderedDict()

    async def warm_up(self) -> None:
        """One estimate as of a submission, not kept, so that the first real one does not pay for
        what is done once. Never raises; waits WARM_UP_S at most."""
        training = training_options(ColocOptions(batch_size=2), self._config)
        packed = base64.b64encode(zlib.compress(WARM_UP.encode())).decode()
        try:
            setting = Setting(self._stacks.default)
            work = self._pool.submit(
                _estimate_now, packed, training, self._config.estimator, setting
            )
            found = await asyncio.wait_for(asyncio.wrap_future(work), WARM_UP_S)
        except Exception as err:  # an estimator's defect must not cost the start
            log.warning("warm-up", error=f"{type(err).__name__}: {err}")
            return
        if found.estimate is None:
            log.warning("warm-up", error=found.detail or str(found.no_estimate))

    def by_script(self, options: ColocOptions, uid: int) -> Estimated:
        """What a job of --coloc=auto is known by; there is no estimate but that of its history."""
        if options.script is None:
            too_long = "or it is longer than 64 KiB" if options.kind == "batch" else ""
            return Estimated(None, Reason.NO_SCRIPT, too_long)
        if not self._config.history:
            return Estimated(None, Reason.NO_ESTIMATE, "--coloc=auto needs estimate.history")
        key = "/".join(
            str(one or "")
            for one in (options.seq_len, options.optimizer, options.precision, options.alloc_conf)
        )
        batch = options.batch_size or 0
        return Estimated(
            None,
            Reason.FIRST_RUN,
            fingerprint=script_fingerprint(uid, options.script, options.arguments),
            options=f"{batch}/{key}",
            features={"schema": SCHEMA, "format": "script"},
            key=f"auto/{key}",
            batch=batch,
            context_mib=self._stacks.default.context_mib,
            by_script=True,
        )

    async def of(self, job: Submission) -> Estimated:
        """The estimate for a submission; never raises, never takes longer than the limit."""
        options = job.coloc
        if options.auto and options.summary is None:
            return self.by_script(options, job.request.uid)
        if options.summary is None:
            return Estimated(None, Reason.NO_SUMMARY)
        # Processes of one job are taken for one training by DDP, which needs more than each alone.
        processes = job.request.demand.processes
        training = replace(training_options(options, self._config), world_size=processes)
        setting = with_allocator(self._stacks.of_any(job.gpu_types), options.alloc_conf)
        key = hashlib.sha256(f"{training}\n{setting}\n{options.summary}".encode()).hexdigest()
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        work = self._pool.submit(
            _estimate_now, options.summary, training, self._config.estimator, setting
        )
        try:
            # shielded: a late answer is still kept for the next submission of the same text
            late = self._remembered(key, work)
            return await asyncio.wait_for(asyncio.shield(late), self._limit_s)
        except TimeoutError:
            work.cancel()  # only what has not begun: a queue of slow texts must not grow
            return Estimated(None, Reason.SLOW_ESTIMATE, f"over {self._limit_s * 1000:.0f} ms")
        except SummaryError as err:
            return Estimated(None, Reason.BAD_SUMMARY, err.message)
        except Exception as err:  # an estimator's defect must not cost a submission
            return Estimated(None, Reason.NO_ESTIMATE, f"{type(err).__name__}: {err}")

    async def _remembered(self, key: str, work: Future[Estimated]) -> Estimated:
        found = await asyncio.wrap_future(work)
        self._kept[key] = found
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
