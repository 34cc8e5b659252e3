# SPDX-License-Identifier: Apache-2.0
"""``python -m slurm_coloc.front FD PID``: the front of the colocd whose main process is PID; FD is
this end of the channel. Nobody but colocd starts it."""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys

from slurm_coloc import lean

PR_SET_PDEATHSIG = 1  # prctl(2)
NICE = 5  # slurmctld's hook waits for the main process, so that one goes first


def main() -> None:
    """Run until the main process ends."""
    lean.leave_out()
    from slurm_coloc.front.front import Front

    number, parent = int(sys.argv[1]), int(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it ended before the call
    # A terminal's Ctrl-C, systemd's SIGTERM and a reload are for the main process, which tells this
    # one to end in order.
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    asyncio.run(Front().run(socket.socket(fileno=number)))


if __name__ == "__main__":
    main()
