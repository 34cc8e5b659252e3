# SPDX-License-Identifier: Apache-2.0
"""A slurmctld that hangs: nothing here may hang with it, pile up, or outlive its time limit.

The commands are scripts that behave as Slurm's do while slurmctld is stopped; that the real ones
do so is checked on a real cluster (tests/cluster/test_colocd_faults.py).
"""

import asyncio
import os
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from slurm_coloc.adapters.slurm.commands import SlurmCommands
from slurm_coloc.adapters.slurm.commands.parse import JOB
from slurm_coloc.adapters.slurm.gate import AT_ONCE, MISSES, WAITING, Gate
from slurm_coloc.errors import SlurmError


def script(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


async def code(ask: Awaitable[object]) -> str:
    """The error code of a question, "" for an answer."""
    try:
        await ask
    except SlurmError as err:
        return err.code
    return ""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_hung_command_ends_with_all_that_it_started(tmp_path: Path) -> None:
    script(tmp_path, "scontrol", f"sleep 300 & echo $! >{tmp_path}/pid; wait")
    began = time.monotonic()
    assert asyncio.run(code(SlurmCommands(0.5, tmp_path).config())) == "slurm-away"
    assert time.monotonic() - began < 10
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_hung_command_ends_with_its_asker(tmp_path: Path) -> None:
    script(tmp_path, "scontrol", f"echo $$ >{tmp_path}/pid; exec sleep 300")

    async def run() -> None:
        task = asyncio.create_task(SlurmCommands(60, tmp_path).config())
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert not alive(int((tmp_path / "pid").read_text()))


def test_many_questions_to_a_hung_slurmctld(tmp_path: Path) -> None:
    """Few processes, a bounded queue, and all askers have their answer after two time limits."""
    script(tmp_path, "scontrol", f"echo >>{tmp_path}/asked; exec sleep 300")

    async def run() -> list[str]:
        slurm = SlurmCommands(1.0, tmp_path)
        return await asyncio.gather(*(code(slurm.config()) for _ in range(AT_ONCE + WAITING + 50)))

    began = time.monotonic()
    codes = asyncio.run(run())
    assert time.monotonic() - began < 15
    assert codes.count("slurm-busy") == 50
    assert codes.count("slurm-away") == AT_ONCE + WAITING
    assert len((tmp_path / "asked").read_text()) <= MISSES + AT_ONCE


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("squeue: error: Unable to contact slurm controller (connect failure)", "slurm-away"),
        ("slurm_update error: Socket timed out on send/recv operation", "slurm-away"),
        ("scontrol: error: Zero Bytes were transmitted or received", "slurm-away"),
        ("slurm_update error: Slurm backup controller in standby mode", "slurm-away"),
        ("slurm_load_ctl_conf error: Protocol authentication error", "slurm-away"),
        ("slurm_update error: Invalid generic resource (gres) specification", "slurm-refused"),
        ("slurm_update error: Access/permission denied", "slurm-refused"),
        ("Job is no longer pending execution", "slurm-refused"),
        ("", "slurm-refused"),
    ],
)  # fmt: skip
def test_away_or_refused(tmp_path: Path, words: str, expected: str) -> None:
    script(tmp_path, "scontrol", f"echo '{words}' >&2; exit 1")
    assert asyncio.run(code(SlurmCommands(30, tmp_path).release("7"))) == expected


def test_no_such_command(tmp_path: Path) -> None:
    assert asyncio.run(code(SlurmCommands(30, tmp_path).config())) == "slurm-away"


def test_the_breaker_tries_again_one_at_a_time() -> None:
    now = 0.0
    asked = 0
    away = True

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if away:
            raise SlurmError("no answer", "slurm-away")
        return 7

    async def run() -> None:
        nonlocal now, away
        gate = Gate("slurmctld", lambda: now)
        for _ in range(10):
            assert await code(gate.through(ask)) == "slurm-away"
        assert asked == MISSES
        for pause in (1.0, 2.0, 4.0, 8.0, 15.0, 15.0):
            now += pause - 0.01
            assert await code(gate.through(ask)) == "slurm-away"
            before = asked
            now += 0.01
            await asyncio.gather(*(code(gate.through(ask)) for _ in range(5)))
            assert asked == before + 1
        away = False
        now += 15
        assert await gate.through(ask) == 7
        assert await asyncio.gather(*(gate.through(ask) for _ in range(5))) == [7] * 5

    asyncio.run(run())


def test_a_refusal_is_an_answer() -> None:
    async def ask() -> None:
        raise SlurmError("Access denied", "slurm-refused")

    async def run() -> None:
        gate = Gate("slurmctld")
        for _ in range(3 * MISSES):
            assert await code(gate.through(ask)) == "slurm-refused"

    asyncio.run(run())


def test_text_where_there_is_no_json(tmp_path: Path) -> None:
    """A Slurm whose JSON plugins are not installed is read as text from then on."""
    script(
        tmp_path,
        "scontrol",
        f"""
case "$*" in
  --version) echo slurm 24.11.5 ;;
  *--json*) echo >>{tmp_path}/tried
    echo 'scontrol: error: load_plugins: unable to find plugin: serializer/json' >&2; exit 1 ;;
  *) echo 'NodeName=n1 Gres=gpu:2,shard:78 State=IDLE CPUTot=8 Partitions=p' ;;
esac""",
    )
    script(tmp_path, "squeue", "exit 0")
    slurm = SlurmCommands(30, tmp_path)

    async def run() -> None:
        for _ in range(3):
            assert [node.name for node in await slurm.usage()] == ["n1"]

    asyncio.run(run())
    assert (tmp_path / "tried").read_text() == "\n"


def test_the_layout_of_json_follows_an_upgrade_of_slurm(tmp_path: Path) -> None:
    """A Slurm that was upgraded below us is asked for its own newest layout, not read as text."""
    (tmp_path / "release").write_text("slurm 24.11.5")
    script(
        tmp_path,
        "scontrol",
        f"""
grep -q 24.11 {tmp_path}/release && has=v0.0.42 || has=v0.0.45
case "$*" in
  --version) cat {tmp_path}/release ;;
  *--json=$has) echo '{{"nodes": []}}'; echo $has >>{tmp_path}/asked ;;
  *--json*) echo 'scontrol: error: Unable to find plugin: data_parser' >&2; exit 1 ;;
  *) echo text >>{tmp_path}/asked ;;
esac""",
    )
    script(tmp_path, "squeue", "exit 0")
    slurm = SlurmCommands(30, tmp_path)

    async def run() -> None:
        await slurm.usage()
        (tmp_path / "release").write_text("slurm 26.05.1")
        await slurm.usage()
        await slurm.usage()

    asyncio.run(run())
    assert (tmp_path / "asked").read_text().split() == ["v0.0.42", "v0.0.45", "v0.0.45"]


def test_names_beyond_ascii(tmp_path: Path) -> None:
    """squeue pads its columns in bytes; a letter of several does not shift what stands behind it,
    and 0x85, a letter's second byte here, ends no line."""
    wide = {"JobID": "7", "State": "PENDING", "Account": "\u00c5ngstr\u00f6m", "QOS": "normal"}
    row = b"".join(wide.get(name, "").encode().ljust(width) for name, width in JOB.widths.items())
    (tmp_path / "row").write_bytes(row)
    end = r"${SQUEUE_FORMAT2##*:1030}"  # what stands behind the last column
    script(tmp_path, "squeue", f'cat {tmp_path}/row; echo "{end}"')
    found = asyncio.run(SlurmCommands(30, tmp_path).all_jobs())
    assert [(one.job_id, one.account, one.qos) for one in found] == [
        (7, "\u00c5ngstr\u00f6m", "normal")
    ]


def test_the_environment_cannot_change_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    script(tmp_path, "scontrol", "env; true")
    told = asyncio.run(SlurmCommands(30, tmp_path).config())
    assert "SQUEUE_FORMAT" not in told
    assert told["SLURM_TIME_FORMAT"] == "%s"
    assert told["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("release", "tres", "updates"),
    [
        ("22.05.8", "gres/shard:39", ["gres:shard:39"]),
        ("22.05.8", "gres/gpu:2g.10gb:1", ["", "gres:gpu:2g.10gb:1"]),
        ("24.11.5", "gres/gpu:a100:1", ["gres/gpu:a100:1"]),
    ],
)
def test_another_type_of_gres(tmp_path: Path, release: str, tres: str, updates: list[str]) -> None:
    """22.05 joins a type to the one that a job asks for already, unless it asks for nothing."""
    script(
        tmp_path,
        "scontrol",
        f"""
case "$*" in
  "show config") echo 'SLURM_VERSION = {release}' ;;
  update*) echo "$3" >>{tmp_path}/updates ;;
  --version) echo slurm {release} ;;
  *--json*) echo 'unrecognized option' >&2; exit 1 ;;
esac""",
    )
    asyncio.run(SlurmCommands(30, tmp_path).set_gres("7", tres))
    told = (tmp_path / "updates").read_text().splitlines()
    assert told == [f"TresPerNode={one}" for one in updates]
