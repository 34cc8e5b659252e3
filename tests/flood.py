# SPDX-License-Identifier: Apache-2.0
"""A flood of TCP connections, as anybody who reaches the port can make it: no account, no word.

``python -m tests.flood HOST PORT [SOURCE]`` connects as fast as one process can, keeps the newest
thousand open, and prints a line when so many have been made that the flood is under way, then one
every second with the number so far.
"""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPEN = 1000
UNDER_WAY = 3000


def flood(host: str, port: int, source: str) -> None:
    """Until this process is ended."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    held: deque[socket.socket] = deque()
    made, said_s = 0, time.monotonic()
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            if source:
                sock.bind((source, 0))
            sock.connect_ex((host, port))
        held.append(sock)
        if len(held) > OPEN:
            held.popleft().close()
        made += 1
        if made == UNDER_WAY or (made > UNDER_WAY and time.monotonic() - said_s >= 1):
            said_s = time.monotonic()
            print(made, flush=True)


@contextlib.contextmanager
def flooding(target: str, source: str = "", processes: int = 1) -> Iterator[None]:
    """A flood of ``host:port`` that is under way; it ends with the context."""
    host, _, port = target.rpartition(":")
    argv = [sys.executable, "-m", "tests.flood", host, port, source]
    running = [subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for one in running:
            assert one.stdout is not None and one.stdout.readline(), "the flood does not begin"
        yield
    finally:
        for one in running:
            one.kill()
            one.communicate()


if __name__ == "__main__":
    flood(sys.argv[1], int(sys.argv[2]), *(sys.argv[3:] or [""]))
