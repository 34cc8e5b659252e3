# SPDX-License-Identifier: Apache-2.0
"""A client of MPS that is ended amid its work: what becomes of the one beside it."""

import contextlib
import signal
import subprocess
import time
from pathlib import Path

from slurm_coloc.adapters.mps import daemon
from tests.gpu import work
from tests.gpu.place import Place
from tests.gpu.verdict import Found, judged, measured

#: emulated seconds, or steps on a real GPU, of the one beside it, and of the one that is ended
BESIDE, ENDED = (3.0, 600), (600.0, 1_000_000)
AMID_S = 1.0
LIMIT_S = 120.0


def ended(place: Place) -> list[Found]:
    """By the server itself (terminate_client, what the Epilog does), and by SIGKILL, as Slurm does
    where a job outlives its SIGTERM: the second is only measured, NVIDIA promises nothing of it."""
    with work.mps(place) as (folder, _):
        victim, other = _two(place, folder)
        env, pid = place.environment(), victim.pid
        pids = daemon.end_clients(place.control, folder, env, lambda one: one == pid)
        gone = work.finish(victim, LIMIT_S)
        beside = work.finish(other, LIMIT_S)
    with work.mps(place) as (folder, _):
        victim, other = _two(place, folder)
        victim.send_signal(signal.SIGKILL)
        work.finish(victim, LIMIT_S)
        killed = work.finish(other, LIMIT_S)
        after = work.finish(
            work.start(place, work.command(place, _amount(place) / 10), work.client(place, folder))
        )
    return [
        judged(
            "terminate_client ends one",
            pids == [pid] and gone.code != 0,
            f"{len(pids)} client(s) named; it ended with {gone.code}",
        ),
        judged("and spares the one beside it", beside.code == 0, _told(beside)),
        measured(
            "beside one that is killed",
            f"the other: {_told(killed)}; the next client: {_told(after)}",
            beside=killed.code,
            after=after.code,
        ),
    ]


def _two(place: Place, folder: Path) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """Both amid their work: the one to be ended, and the other."""
    env = work.client(place, folder)
    wait = ["--wait"] if place.real else []
    amounts = (ENDED[place.real], BESIDE[place.real])
    running = [work.start(place, work.command(place, one) + wait, env) for one in amounts]
    for each in running if place.real else ():
        each.stdout.readline()  # type: ignore[union-attr]
    for each in running if place.real else ():
        with contextlib.suppress(OSError):
            each.stdin.write("\n")  # type: ignore[union-attr]
            each.stdin.flush()  # type: ignore[union-attr]
    time.sleep(AMID_S)
    return running[0], running[1]


def _amount(place: Place) -> float:
    return BESIDE[place.real]


def _told(one: work.Ended) -> str:
    last = one.said.strip().splitlines()
    return "it trained" if one.code == 0 else f"exit {one.code}: {last[-1][:90] if last else ''}"
