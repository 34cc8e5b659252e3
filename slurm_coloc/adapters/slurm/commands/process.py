# SPDX-License-Identifier: Apache-2.0
"""One Slurm command as a process: with a time limit, and with an error that says whose fault."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from slurm_coloc.errors import SlurmError

NOTHING: Mapping[str, str] = MappingProxyType({})
KILLED_S = 1.0  # a killed process is waited for so long; one stuck in the kernel is left to init

# Words by which the commands of 22.05 to 26.05 say that slurmctld (or munged, or slurmdbd) does not
# answer. Anything else that they say is an answer: a refusal.
AWAY = (
    "Unable to contact",
    "timed out",
    "Zero Bytes",
    "standby",
    "Connection refused",
    "Connection reset",
    "Protocol authentication error",
    "authentication credential",
    "Unable to connect to database",
    "DBD_",
    "Resource temporarily unavailable",
)


def is_away(text: str) -> bool:
    """Whether an error text of Slurm's says that nobody answered."""
    return any(word in text for word in AWAY)


def environment() -> dict[str, str]:
    """Ours, without what would change the commands' output; times as Unix seconds, array task
    lists unabridged."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SQUEUE_", "SINFO_", "SCONTROL_", "SACCT_", "SLURM_JSON"))
    }
    return {**kept, "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


async def run(
    argv: tuple[str, ...],
    folder: Path | None,
    timeout_s: float,
    ends: tuple[int, ...] = (0,),
    more: Mapping[str, str] = NOTHING,
) -> bytes:
    """Standard output of a command. ``ends``: exit codes of an answer (`scontrol ping` ends with 1
    to say DOWN). ``more``: of its environment.

    Raises SlurmError: ``slurm-away`` when it did not end in ``timeout_s`` (it is killed with all of
    its process group), cannot be started or found no slurmctld; ``slurm-refused`` otherwise.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            str(folder / argv[0]) if folder else argv[0],
            *argv[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**environment(), **more},
            start_new_session=True,
        )
    except OSError as err:
        raise SlurmError(f"{argv[0]}: cannot be started: {err}", "slurm-away") from err
    try:
        async with asyncio.timeout(timeout_s):
            out, err_out = await process.communicate()
    except TimeoutError:
        text = f"{argv[0]}: no answer within {timeout_s:g} s"
        raise SlurmError(text, "slurm-away") from None
    finally:
        if process.returncode is None:
            await end(process)
    if process.returncode not in ends:
        lines = err_out.decode(errors="replace").strip().splitlines()
        text = f"{' '.join(argv[:3])}: {lines[-1] if lines else 'failed'}"
        raise SlurmError(text, "slurm-away" if is_away("\n".join(lines)) else "slurm-refused")
    return out


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill a process with all of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILLED_S):
            await process.wait()
