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
from tests.cluster.jobs import own_slurm
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


SCRIPTS = Path(__file__).parent / "scripts"
BOMBS = (SCRIPTS / "bombs.py").read_text()
# Submissions whose options have 30 MB, by a plugin of the user's own. slurmctld keeps what a job
# brought, so each is cancelled.
OPTIONS = """
import subprocess
def submit():
    words = ["sbatch", "--parsable", "--hold", "--gpus=1", "--output=/dev/null", "--wrap=true"]
    return subprocess.run(words, capture_output=True, text=True)
done = submit()
assert not done.returncode and "ignored" in done.stderr, done.stderr
print("floods", flush=True)
while True:
    subprocess.run(["scancel", done.stdout.strip()])
    done = submit()
"""

FLOODS = {"questions": QUESTIONS, "connects": CONNECTS, "bombs": BOMBS, "options": OPTIONS}
#: No flood: what any user's program that computes on this host costs, to compare with.
COMPUTES = {"computes": 'print("floods", flush=True)\nwhile True: pass\n'}


@contextmanager
def flood(lab: Lab, kind: str) -> Iterator[None]:
    """The lab's second user floods the socket that everybody can reach."""
    who = pwd.getpwnam(lab.users[1])
    script, socket = (FLOODS | COMPUTES)[kind], lab.dir / "coloc" / "colocd.sock"
    env = lab.login_env(lab.users[1])
    flooding = subprocess.Popen(
        ["/usr/bin/python3", "-c", script, str(socket)], env=env | _plugin(lab, kind),
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


def _plugin(lab: Lab, kind: str) -> dict[str, str]:
    """What makes a user's options long, in the environment of that flood."""
    if kind != "options":
        return {}
    plugin = lab.home(lab.users[1]) / "flood.so"
    if not plugin.exists():
        source = str(SCRIPTS / "flood.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(plugin), source], check=True)
        plugin.chmod(0o755)
    return own_slurm(lab, lab.users[1], f"required {plugin} COLOC_V:1 COLOC_TICKET=30000000")


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
