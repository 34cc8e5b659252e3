# SPDX-License-Identifier: Apache-2.0
"""The agent beside two jobs under MPS: one keeps to its share, one takes more than its own."""

import contextlib
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.gpu import work
from tests.gpu.place import ROOT, Place
from tests.gpu.verdict import Found, judged, measured, untested

HONEST, GREEDY = 7, 8
HONEST_MIB, GREEDY_MIB = 1500, 6000
PROMISED_MIB = 2048  # to each
#: emulated seconds, or steps on a real GPU: it works until the other has been ended, and is killed
AMOUNT = (600.0, 10_000_000)
LIMIT_S = 60.0


def agent(place: Place) -> list[Found]:
    """What its records say of both, with ``fence.overrun = end``."""
    if not _may_trace():
        why = "root may not read others' processes here (no CAP_SYS_PTRACE, as in a container)"
        return [untested("the agent's samples of a job", why)]
    run_dir = place.scratch / "agent"
    run_dir.mkdir(mode=0o755)
    with work.mps(place) as (folder, _), _running(place, run_dir):
        honest, greedy = (
            _job(place, run_dir, folder, *one)
            for one in ((HONEST, HONEST_MIB), (GREEDY, GREEDY_MIB))
        )
        began = time.monotonic()
        _until(lambda: greedy.poll() is not None)
        ended_s = time.monotonic() - began
        ended = work.finish(greedy, 5)
        time.sleep(3.0)  # samples of the one that is left
        lives = honest.poll() is None
        first, second = (_record(run_dir, job) for job in (HONEST, GREEDY))
        honest.kill()
        honest.communicate()
    last = first.get("last") or {}
    return [
        judged(
            "the agent's samples of a job",
            last.get("held_mib", 0) >= HONEST_MIB,
            f"{first.get('samples', 0)} samples, {last.get('held_mib')} MiB held of {HONEST_MIB}"
            " taken, the context beside it",
            last=last,
        ),
        measured("its other figures", _figures(first), gpus=first.get("gpus")),
        judged(
            "one that overruns its share is ended",
            ended.code != 0 and _states(second)[:2] == ["begun", "ended"],
            f"{ended_s:.1f} s after its start, exit {ended.code}; noted: {_states(second)}",
            ended_s=ended_s,
        ),
        judged(
            "and the one beside it is neither ended nor noted",
            lives and not _states(first),
            f"{'it trains' if lives else 'it ended'}; noted: {_states(first)}",
        ),
    ]


def _may_trace() -> bool:
    """Whether this process has CAP_SYS_PTRACE (number 19)."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> 19 & 1)


@contextmanager
def _running(place: Place, run_dir: Path) -> Iterator[None]:
    """The agent, without a colocd and without DCGM."""
    config = place.scratch / "agent.toml"
    user = pwd.getpwuid(os.geteuid()).pw_name
    config.write_text(
        f'version = 1\n[daemon]\nslurm_user = "{user}"\nsocket = "{place.scratch}/none.sock"\n'
        f'[hooks]\nrun_dir = "{run_dir}"\nspool_dir = "{place.scratch}/agent-spool"\n'
        '[agent]\ndcgmi = "/nonexistent"\n[fence]\noverrun = "end"\n'
    )
    words = [sys.executable, "-m", "slurm_coloc", "agent", "--node", "n1"]
    env = {**place.environment(), "COLOC_CONFIG": str(config)}
    with (place.scratch / "agent.log").open("wb") as log:
        process = subprocess.Popen(words, env=env, cwd=ROOT, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _job(
    place: Place, run_dir: Path, folder: Path, job: int, memory_mib: int
) -> subprocess.Popen[str]:
    """Its state as the Prolog writes it, and its training."""
    state = {
        "job_id": job,
        "restart": 0,
        "uid": place.uid,
        "started_s": time.time(),
        "sharing": {"method": "mps"},
        "gpu": {"devices": [{"uuid": place.gpu.uuid}]},
        "reservation": {"available": True, "shards": PROMISED_MIB // 1024, "shard_mib": 1024},
    }
    new = run_dir / "new"
    new.write_text(json.dumps(state))
    new.rename(run_dir / f"{job}.json")
    words = work.command(place, AMOUNT[place.real], memory_mib)
    return work.start(place, words, work.client(place, folder, SLURM_JOB_ID=str(job)))


def _until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.1)


def _record(run_dir: Path, job: int) -> dict[str, Any]:
    with contextlib.suppress(OSError):
        found: dict[str, Any] = json.loads((run_dir / f"use/{job}.0.json").read_text())
        return found
    return {}


def _states(record: dict[str, Any]) -> list[str]:
    return [one["state"] for one in record.get("events", []) if one["kind"] == "overrun"]


def _figures(record: dict[str, Any]) -> str:
    told = [
        f"{name} {value:g}"
        for gpu in record.get("gpus", [])
        for name, value in gpu.items()
        if isinstance(value, int | float)
    ]
    missing = [f"{name}: {why}" for name, why in record.get("why", {}).items()]
    return ", ".join(told + missing)
