# SPDX-License-Identifier: Apache-2.0
"""A user of a lab who floods colocd's public socket: for tests and tests/bench/submit_bench.py."""

import pwd
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_coloc.adapters.store import Store
from slurm_coloc.lab.lab import Lab
from tests.unit.cli.conftest import decision, run_row

RUNS = 3000
# Eight connections with many questions each for the longest answer; new ones for those cut.
QUESTIONS = """
import json, socket, sys, threading, time
line = json.dumps({"v": 1, "op": "jobs", "all": True, "limit": 1000}).encode() + b"\\n"
def one():
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(sys.argv[1])
                peer.sendall(line * 50)
                while peer.recv(1 << 20):
                    pass
        except OSError:
            time.sleep(0.01)
for _ in range(8):
    threading.Thread(target=one, daemon=True).start()
print("floods", flush=True)
time.sleep(300)
"""
CONNECTS = """
import socket, sys
print("floods", flush=True)
while True:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.setblocking(False)
        try:
            peer.connect(sys.argv[1])
        except OSError:
            pass
"""


BOMBS = (Path(__file__).parent / "scripts" / "bombs.py").read_text()

FLOODS = {"questions": QUESTIONS, "connects": CONNECTS, "bombs": BOMBS}
#: No flood: what any user's program that computes on this host costs, to compare with.
COMPUTES = {"computes": 'print("floods", flush=True)\nwhile True: pass\n'}


@contextmanager
def flood(lab: Lab, kind: str) -> Iterator[None]:
    """The lab's second user floods the socket that everybody can reach."""
    who = pwd.getpwnam(lab.users[1])
    script, socket = (FLOODS | COMPUTES)[kind], lab.dir / "coloc" / "colocd.sock"
    flooding = subprocess.Popen(
        ["/usr/bin/python3", "-c", script, str(socket)],
        user=who.pw_uid, group=who.pw_gid, extra_groups=[], stdout=subprocess.PIPE, cwd="/",
    )  # fmt: skip
    try:
        assert flooding.stdout is not None
        assert flooding.stdout.readline() == b"floods\n"
        yield
        assert flooding.poll() is None, "it floods to the end"
    finally:
        flooding.kill()
        flooding.wait()


def remember(lab: Lab) -> None:
    """Give the lab's second user a history of ended runs, the answers to whose questions are
    long."""
    uid = pwd.getpwnam(lab.users[1]).pw_uid
    store = Store.open(lab.dir / "coloc" / "state")
    if store.queries.counts().decisions < RUNS:
        with store.transaction():
            for number in range(RUNS):
                name = f"{number:012x}"
                store.decisions.add(decision(name, uid=uid))
                run = run_row(name, 100_000 + number, uid=uid)
                store.runs.see(run)
                store.runs.close(run, state="COMPLETED", outcome="completed", end_s=time.time())
    store.close()
