# SPDX-License-Identifier: Apache-2.0
"""From users' texts to their estimates, and what is remembered of them.

Texts and options that were estimated before are answered at once, and so is a text that took too
much: its user does not have it tried again for a day, with other options either. Answers are in the
order of queue.py.
"""

import asyncio
import hashlib
from dataclasses import replace
from typing import Protocol

import structlog

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.decide.prepared import Prepared
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.estimators.calibrations import defaults_of, load_stacks
from slurm_coloc.flow.estimators.networks import require
from slurm_coloc.flow.prepare.children import Children, NoAnswer
from slurm_coloc.flow.prepare.limits import Ended, Limits
from slurm_coloc.flow.prepare.queue import TextQueue, Work
from slurm_coloc.flow.prepare.remembered import Remembered

log = structlog.get_logger()

START_S = 5.0  # waited for at most at colocd's start
KEPT = 512  # answers, some 3 KB each; the jobs of a sweep send the same text again and again
COSTLY = 4096  # texts, by their users, that took too much, and users who sent one
DAY_S = 86400.0
#: for which users who sent a text that took too much leave one worker to the others
COSTLY_USER_S = 600.0
#: by the clock over processor time: a slow text runs at a lower priority on a busy machine
WALL = 10
#: MiB of address space that onnxruntime and numpy take, where a network is to run
NETWORK_MIB = 2048
GIVEN = ("batch_size", "seq_len", "optimizer", "precision", "alloc_conf", "input", "training")


class Options(Protocol):
    """What of the user's options enters an estimate; ColocOptions of flow/submit/message has it."""

    @property
    def batch_size(self) -> int | None: ...
    @property
    def seq_len(self) -> int | None: ...
    @property
    def optimizer(self) -> str | None: ...
    @property
    def precision(self) -> str | None: ...
    @property
    def alloc_conf(self) -> str | None: ...
    @property
    def input(self) -> str | None: ...
    @property
    def training(self) -> str | None: ...


def limits_of(config: EstimateConfig) -> Limits:
    """Of one text."""
    cpu_s = config.cpu_limit_ms / 1000
    more_mib = NETWORK_MIB if config.estimator.startswith("gpumemnet") else 0
    return Limits(cpu_s, WALL * cpu_s, config.memory_limit_mib + more_mib)


class Estimates:
    """Estimates under one configuration."""

    def __init__(self, config: EstimateConfig) -> None:
        """Raises ConfigError for a calibration that is wrong, or an estimator that cannot run."""
        require(config.estimator)
        self._limit_s = config.time_limit_ms / 1000
        defaults = defaults_of(config, load_stacks(config))
        self.basis = defaults.basis  # what the estimates follow from, by name
        self._children = Children(defaults, limits_of(config))
        self._queue = TextQueue(config.workers)
        self._kept: Remembered[Prepared] = Remembered(KEPT, DAY_S)
        self._costly: Remembered[Prepared] = Remembered(COSTLY, DAY_S)
        self._costly_users: Remembered[bool] = Remembered(COSTLY, COSTLY_USER_S)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start what reads the texts, so that the first user does not wait for it. Never raises."""
        if not await self._children.start(START_S):
            log.warning("estimators", result="not ready yet: jobs get whole GPUs until they are")

    async def prepare(self, uid: int, packed: str, options: Options) -> Prepared:
        """The estimates of a forwarded summary. Never raises but when it is cancelled, and takes no
        longer than estimate.time_limit_ms; what runs by then is finished for the next time."""
        given = {name: getattr(options, name) for name in GIVEN}
        text = hashlib.sha256(packed.encode(errors="replace")).hexdigest()
        key = f"{text} {given}"
        if (known := self._kept.get(key)) is not None:
            return known
        if (costly := self._costly.get(f"{uid} {text}")) is not None:
            # With these options it was not tried: that counts for this user alone.
            return replace(costly, lasting=False)
        work = self._queue.same(uid, key)
        if work is None:
            done = asyncio.get_running_loop().create_future()
            work = Work(uid, key, text, packed, given, done)
            if not self._queue.add(work):
                return Prepared.without(Reason.USER_BUSY, lasting=False)
            self._go_on()
        return await self._wait(work)

    async def _wait(self, work: Work) -> Prepared:
        work.callers += 1
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.shield(work.done)
        except TimeoutError:
            if not self._queue.waits(work):
                detail = f"over {self._limit_s:g} s"
                return Prepared.without(Reason.SLOW_ESTIMATE, detail, lasting=False)
            if self._queue.runs(work.uid):
                return Prepared.without(Reason.USER_BUSY, lasting=False)
            detail = f"others' summaries were read for {self._limit_s:g} s"
            return Prepared.without(Reason.SLOW_ESTIMATE, detail, lasting=False)
        finally:
            work.callers -= 1
            if not work.callers:
                self._queue.remove(work)  # nobody waits for it; what runs goes on

    def _go_on(self) -> None:
        """Start what may run now."""
        while work := self._queue.next(lambda uid: bool(self._costly_users.get(str(uid)))):
            task = asyncio.create_task(self._run(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, work: Work) -> None:
        try:
            found = Prepared.read(await self._children.run(work.packed, work.given))
        except NoAnswer as err:
            found = self._without(work, err.how, str(err))
        except Exception as err:  # a defect of ours must not leave a submission waiting
            log.exception("estimate")
            why = err.message if isinstance(err, UsageFault) else type(err).__name__
            found = Prepared.without(Reason.NO_ESTIMATE, why, lasting=False)
        finally:
            self._queue.over(work)
            self._go_on()
        if found.lasting:
            self._kept.put(work.key, found)
        if not work.done.done():
            work.done.set_result(found)

    def _without(self, work: Work, how: Ended, text: str) -> Prepared:
        """Why there is no estimate. What the text itself did is remembered."""
        limits = self._children.limits
        log.warning("estimate", uid=work.uid, text=work.text[:12], ended=str(how), detail=text)
        found = {
            Ended.CPU: Prepared.without(
                Reason.SLOW_ESTIMATE, f"it takes more than {limits.cpu_s:g} s of processor time"
            ),
            Ended.MEMORY: Prepared.without(
                Reason.NO_ESTIMATE, f"the summary takes more than {limits.memory_mib} MiB to read"
            ),
            Ended.CRASH: Prepared.without(Reason.NO_ESTIMATE, f"the estimator failed: {text}"),
            Ended.WALL: Prepared.without(
                Reason.SLOW_ESTIMATE, f"over {limits.wall_s:g} s", lasting=False
            ),
            Ended.AWAY: Prepared.without(
                Reason.NO_ESTIMATE, "the estimating process ended", lasting=False
            ),
        }[how]
        if found.lasting:
            self._costly.put(f"{work.uid} {work.text}", found)
            self._costly_users.put(str(work.uid), True)
        return found

    def close(self) -> None:
        """End all children. Who still waits has no estimate, and may ask again."""
        for work in self._queue.works():
            self._queue.remove(work)
            if not work.done.done():
                why = "colocd has read its configuration again"
                work.done.set_result(Prepared.without(Reason.NO_ESTIMATE, why, lasting=False))
        for task in self._tasks:
            task.cancel()
        self._children.close()
