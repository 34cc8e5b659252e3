# SPDX-License-Identifier: Apache-2.0
"""colocd's main thread goes first, and does not for long where it computes."""

import os
import subprocess
import sys

import pytest

from slurm_coloc.adapters import realtime

from .conftest import ROOT, USER
from .test_installed import unit

BEGIN = """
import asyncio, os, resource, subprocess, sys, threading, time
from slurm_coloc.adapters import realtime
from slurm_coloc.adapters.realtime import Realtime

def policy(): return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
def of_a_thread():
    found = []
    one = threading.Thread(target=lambda: found.append(policy()))
    one.start(); one.join()
    return found[0]
def of_a_child():
    show = "import os; print(os.sched_getscheduler(0))"
    return int(subprocess.run([sys.executable, "-c", show], stdout=-1).stdout)
def compute(most_s):
    end = time.monotonic() + most_s
    while policy() == os.SCHED_RR and time.monotonic() < end: pass
    return policy()
async def main():
    mine = Realtime(asyncio.get_running_loop())
"""
ORDINARY, FIRST = os.SCHED_OTHER, os.SCHED_RR


PLAIN = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
ALLOWED = (*PLAIN, "--inh-caps=+sys_nice", "--ambient-caps=+sys_nice")
LIMITED = ("prlimit", "--rtprio=1", *PLAIN)  # as the unit does


def run(body: str, *way: str) -> list[int]:
    """What the body prints, started by these words."""
    code = BEGIN + "".join(f"    {line}\n" for line in body.splitlines()) + "asyncio.run(main())\n"
    words = [*way, "/usr/bin/python3" if way else sys.executable, "-c", code]
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": path}, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split("\n")[-2].split()]


@pytest.fixture
def way() -> tuple[str, ...]:
    return ()


@pytest.fixture
def may(as_root: None, way: tuple[str, ...]) -> None:
    if run("print(int(mine.begin()))") == [0]:
        pytest.skip("no real-time scheduling here: a container without CAP_SYS_NICE")
    if way is LIMITED and subprocess.run(["prlimit", "--rtprio=1", "true"], stderr=-3).returncode:
        pytest.skip("the limit may not be raised here: no CAP_SYS_RESOURCE")


WAYS = pytest.mark.parametrize("way", [(), ALLOWED, LIMITED], ids=["root", "capability", "limit"])


@WAYS
def test_what_it_starts_is_ordinary(may: None, way: tuple[str, ...]) -> None:
    body = "mine.begin()\nprint(policy(), of_a_thread(), of_a_child())"
    assert run(body, *way) == [FIRST, ORDINARY, ORDINARY]


@WAYS
def test_one_that_computes_gives_it_up_for_a_while(may: None, way: tuple[str, ...]) -> None:
    body = """realtime.AGAIN_S = 0.2
mine.begin()
first = compute(20)
await asyncio.sleep(0.01)
thread = of_a_thread()
await asyncio.sleep(1)
print(first, thread, policy(), compute(20))"""
    assert run(body, *way) == [ORDINARY, ORDINARY, FIRST, ORDINARY], "each time, too"


def test_what_has_ended_does_not_begin_again(may: None) -> None:
    body = """realtime.AGAIN_S = 0.1
mine.begin()
first = compute(20)
mine.end()
await asyncio.sleep(0.5)
print(first, policy())"""
    assert run(body) == [ORDINARY, ORDINARY]


def test_many_short_turns_are_no_reason(may: None) -> None:
    body = f"""mine.begin()
end = time.monotonic() + {5 * realtime.LIMIT_S}
while time.monotonic() < end:
    turn = time.monotonic() + 0.02
    while time.monotonic() < turn: pass
    await asyncio.sleep(0.001)
print(policy())"""
    assert run(body) == [FIRST]


def test_without_the_right_to_it_all_goes_on(as_root: None) -> None:
    body = "print(int(mine.begin()), policy(), compute(1))"
    assert run(body, *PLAIN) == [0, ORDINARY, ORDINARY]


def test_the_unit_lets_it() -> None:
    assert unit("LimitRTPRIO") == ["1"]
    assert unit("RestrictRealtime") == ["no"]
    allowed = {word for line in unit("SystemCallFilter") for word in line.split()}
    assert {"sched_setscheduler", "setrlimit", "prlimit64"} <= allowed
