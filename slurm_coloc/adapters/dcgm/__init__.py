# SPDX-License-Identifier: Apache-2.0
"""DCGM by its program, dcgmi, which speaks to the host engine: no right is needed here, and a node
without DCGM costs nothing.

``Dcgmi`` starts it, for one question with its answer or for a stream of lines. ``counters`` reads
the profiling counters that it prints each second, ``jobs`` has it keep statistics of a job.
"""

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from pathlib import Path

COMMAND_S = 5.0


class Dcgmi:
    """The program of this node."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def missing(self) -> str:
        """Why it cannot be started; "" where it can."""
        return "" if os.access(self.path, os.X_OK) else f"DCGM: {self.path} is not on this node"

    async def start(self, *words: str) -> Process:
        """A child whose lines can be read. Raises OSError."""
        return await asyncio.create_subprocess_exec(
            str(self.path), *words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
        )

    async def run(self, *words: str) -> tuple[bool, str]:
        """Whether it succeeded within COMMAND_S, and its output."""
        try:
            child = await self.start(*words)
        except OSError as err:
            return False, err.strerror or ""
        try:
            async with asyncio.timeout(COMMAND_S):
                out, _ = await child.communicate()
        except TimeoutError:
            return False, f"no answer within {COMMAND_S:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        return child.returncode == 0, out.decode("utf-8", "replace")


def first(text: str) -> str:
    """The first line that says something, cut to a message's length."""
    return next((line.strip()[:120] for line in text.splitlines() if line.strip()), "")
