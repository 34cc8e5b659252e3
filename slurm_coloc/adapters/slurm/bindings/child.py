# SPDX-License-Identifier: Apache-2.0
"""The parent's side of the pyslurm worker: starts it, asks with a time limit, kills it."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.slurm.commands.process import end, environment, is_away
from slurm_coloc.errors import SlurmError

WORKER = Path(__file__).with_name("worker.py")  # by its path: the package is not imported there
LONGEST_ANSWER = 1 << 28  # bytes; 1,000 jobs are 0.6 MB


class Fault(Exception):
    """pyslurm is not here, does not load, or is not as we know it: the commands can do it."""


class Child:
    """One worker at a time, one question at a time."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._sound = True  # no question has its answer still to come
        self.version = ""

    async def start(self) -> None:
        """Start the worker, if there is none; ``version`` is then that of its pyslurm. Nothing is
        asked of Slurm. Raises as ``call``."""
        async with self._lock:
            if self._process is not None:
                return
            try:
                async with asyncio.timeout(self._timeout_s):
                    hello = await self._start()
            except TimeoutError:
                await self.close()
                raise Fault(f"it does not load within {self._timeout_s:g} s") from None
            except (OSError, EOFError, ValueError) as err:
                await self.close()
                raise SlurmError(f"pyslurm: the worker died ({err})", "worker-died") from err
            if "fault" in hello:
                await self.close()
                raise Fault(str(hello["fault"]))
            self.version = str(hello["version"])

    async def call(self, op: str, **arguments: Any) -> Any:
        """The worker's answer.

        Raises SlurmError (``slurm-away``: no answer in time, or the worker died; ``slurm-refused``)
        or Fault. A worker that failed is killed; the next question starts another.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await self._exchange({"op": op, "with": arguments})
            except TimeoutError:
                text = f"pyslurm: no answer within {self._timeout_s:g} s"
                raise SlurmError(text, "slurm-away") from None
            except (OSError, EOFError, ValueError) as err:
                raise SlurmError(f"pyslurm: the worker died ({err})", "worker-died") from err
            finally:
                if not self._sound:
                    await self.close()
        if "fault" in answer:
            raise Fault(answer["fault"])
        if "slurm" in answer:
            text = str(answer["slurm"])
            raise SlurmError(f"pyslurm: {text}", "slurm-away" if is_away(text) else "slurm-refused")
        return answer["answer"]

    async def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._sound = False
        if self._process is None:
            hello = await self._start()
            if "fault" in hello:
                return hello
            self.version = str(hello["version"])
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()
        answer = await self._read()
        self._sound = True
        return answer

    async def _start(self) -> dict[str, Any]:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", str(WORKER),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment(), start_new_session=True, limit=LONGEST_ANSWER,
        )  # fmt: skip
        return await self._read()

    async def _read(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError("its answer broke off")
        answer = await asyncio.to_thread(json.loads, line)
        if not isinstance(answer, dict):
            raise ValueError("an answer of another form")
        return answer

    async def close(self) -> None:
        """End the worker, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            await end(process)
