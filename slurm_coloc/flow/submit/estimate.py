# SPDX-License-Identifier: Apache-2.0
"""From a forwarded summary to an estimate, bounded in time, with the last answers kept."""

import asyncio
import base64
import hashlib
import zlib
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.decide.prepared import Estimated, Prepared
from slurm_coloc.core.slurm.script import script_fingerprint
from slurm_coloc.estimate.features import SCHEMA
from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.estimate.variants import prepared
from slurm_coloc.flow.estimators.calibrations import defaults_of, load_stacks
from slurm_coloc.flow.estimators.networks import provide, require
from slurm_coloc.flow.submit.message import ColocOptions, Submission

log = structlog.get_logger()

KEPT = 512  # answers; the jobs of a sweep send the same text again and again

WARM_UP_S = 5.0  # waited for at most


def given_of(options: ColocOptions) -> Given:
    """What the user says of the training."""
    return Given(
        options.batch_size,
        options.seq_len,
        options.optimizer,
        options.precision,
        options.alloc_conf,
    )


class Estimating:
    """Estimates off the event loop, so that a huge text delays no other submission."""

    def __init__(self, config: EstimateConfig) -> None:
        """Raises ConfigError for a calibration that is wrong, or an estimator that cannot run."""
        provide()
        require(config.estimator)
        self._config = config
        self._stacks = load_stacks(config)
        self._defaults = defaults_of(config, self._stacks)
        self._limit_s = config.time_limit_ms / 1000
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="estimate")
        self._kept: OrderedDict[str, Prepared] = OrderedDict()

    async def warm_up(self) -> None:
        """One estimate as of a submission, not kept, so that the first real one does not pay for
        what is done once. Never raises; waits WARM_UP_S at most."""
        packed = base64.b64encode(zlib.compress(WARM_UP.encode())).decode()
        try:
            work = self._pool.submit(prepared, packed, Given(batch_size=2), self._defaults)
            made = await asyncio.wait_for(asyncio.wrap_future(work), WARM_UP_S)
        except Exception as err:  # an estimator's defect must not cost the start
            log.warning("warm-up", error=f"{type(err).__name__}: {err}")
            return
        found = made.of("", "", 1)
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
        made = await self._prepared(options.summary, given_of(options))
        # Processes of one job are taken for one training by DDP, which needs more than each alone.
        chosen = self._stacks.choose(job.gpu_types)
        return made.of(chosen.stack, chosen.card, job.request.demand.processes)

    async def _prepared(self, packed: str, given: Given) -> Prepared:
        key = hashlib.sha256(f"{given}\n{packed}".encode()).hexdigest()
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        work = self._pool.submit(prepared, packed, given, self._defaults)
        try:
            # shielded: a late answer is still kept for the next submission of the same text
            late = self._remembered(key, work)
            return await asyncio.wait_for(asyncio.shield(late), self._limit_s)
        except TimeoutError:
            work.cancel()  # only what has not begun: a queue of slow texts must not grow
            return Prepared.without(Reason.SLOW_ESTIMATE, f"over {self._limit_s * 1000:.0f} ms")
        except Exception as err:  # an estimator's defect must not cost a submission
            return Prepared.without(Reason.NO_ESTIMATE, f"{type(err).__name__}: {err}")

    async def _remembered(self, key: str, work: Future[Prepared]) -> Prepared:
        found = await asyncio.wrap_future(work)
        self._kept[key] = found
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
