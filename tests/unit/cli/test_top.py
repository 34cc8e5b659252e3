# SPDX-License-Identifier: Apache-2.0
"""coloc top: its pictures at every size, its keys, and the whole of it in a terminal."""

import os
import pty
import select
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.cli.top.picture import SORTS, Known, View, picture
from tests.unit.cli.conftest import OWNER, Site
from tests.unit.cli.test_listing import run


def gpu(node: str, index: int, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "node": node, "index": index, "uuid": f"GPU-{node}-{index}", "total_mib": 40536,
        "name": "NVIDIA A100-SXM4-40GB", "free_mib": 30_000, "smact": 0.63, "dram": 0.4,
        "power_w": 204.0, "foreign_mib": 0, "at_s": time.time(), "jobs_here": 0, "jobs": [],
    }  # fmt: skip
    return row | changes


def on(job_id: int, *uuids: str, **changes: Any) -> dict[str, Any]:
    return run(job_id, **{"gpu_uuids": list(uuids), "idle_since_s": None, **changes})


def known() -> Known:
    return Known(
        [
            gpu("g1", 0, jobs=[{"job_id": 7, "mib": 9000}, {"job_id": 99, "mib": 4000}]),
            gpu("g1", 1, free_mib=500, smact=0.99, foreign_mib=700),
            gpu("gpu-node-with-a-long-name-02", 0, free_mib=40_000, smact=None, power_w=None),
        ],
        {"g9": "no NVML on this node"},
        [
            on(7, "GPU-g1-0", peak_mib=9000, time_left={"left_s": 4800.0}, speed=1.0),
            on(8, "GPU-g1-1", speed=0.82, overrun={"held_mib": 30_000, "promised_mib": 5120}),
            on(9, "GPU-g1-1", idle_since_s=time.time() - 900, name="notebook"),
            on(12, state="PENDING", node=None, start_s=None, submit_s=time.time() - 60),
            on(
                11, state="PENDING", node=None, start_s=None, reason="multi-gpu", action="exclusive"
            ),
        ],
        time.time(),
    )


def shown(
    view: View, width: int = 80, height: int | None = 24, seen: Known | None = None
) -> list[str]:
    return [line.plain for line in picture(seen or known(), view, width, height)]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (40, 10)])
def test_a_picture_fills_the_terminal_and_no_more(width: int, height: int) -> None:
    lines = shown(View(), width, height)
    assert len(lines) == height and max(map(len, lines)) <= width
    assert "3 GPUs, 49.9 of 118.8 GiB" in lines[0] or width < 60
    assert lines[-1].startswith("q end")


def test_who_is_where_and_who_waits() -> None:
    lines = shown(View(), 120, None)
    at = {line.split()[0]: number for number, line in enumerate(lines) if line.strip()}
    assert at["g1:0"] < at["7"] < at["g1:1"] < at["8"] < at["9"] < at["11"] < at["12"]
    assert "holds 8.8" in lines[at["7"]] and "12.0 of 39.0" in lines[at["7"]]
    assert "1h20m left" in lines[at["7"]] and "fast" not in lines[at["7"]]
    assert ", ~82% as fast as alone" in lines[at["8"]]
    assert ", ~82% fast" in "\n".join(shown(View()))
    assert "holds more than its share" in lines[at["8"]] and "idle 15m" in lines[at["9"]]
    assert "several GPUs are shared only with one" in lines[at["11"]]
    text = "\n".join(lines)
    assert "other jobs (GiB): 99: 3.9" in text and "of no job: 0.7 GiB" in text
    assert "g9: no NVML on this node" in text and "not measured" in text
    assert "2 waiting" in text and "multi-gpu" not in text.replace("multi-gpu-", "")


def test_keys() -> None:
    view = View()
    assert not any(view.press(key) for key in ("s", "w", "p", "", "x"))
    assert (view.sort, view.waiting, view.held) == ("memory", False, True)
    lines = shown(view, 120, None)
    order = [line.split(":")[0] for line in lines if " mem [" in line]
    assert order == ["g1", "g1", "gpu-node-with-a-long-name-02"] and "g1:1" in lines[2]
    assert "waiting" not in "\n".join(lines) and "held" in lines[1]
    assert view.press("u") and not view.everybody
    view.press("h")
    assert any(line.startswith("s  ") for line in shown(view))
    for _ in SORTS[1:]:
        view.press("s")
    assert view.sort == "node"


def test_what_is_wrong_with_a_job_is_read_at_80_columns() -> None:
    """Pictures of a cluster had it cut off behind the peak, and behind what it still takes."""
    at_80 = next(line for line in shown(View(), 80, None) if line.split()[:1] == ["8"])
    assert "39.0  over its share  1m, " in at_80
    assert "peak" not in at_80
    at_120 = next(line for line in shown(View(), 120, None) if line.split()[:1] == ["8"])
    assert "holds more than its share  1m, " in at_120


@given(st.lists(st.sampled_from(["up", "down", "page-down", "page-up", "home", "j", "k", "s"])))
def test_scrolling_stays_in_the_picture(keys: list[str]) -> None:
    view = View()
    for key in keys:
        view.press(key)
        lines = shown(view, 80, 10)
        assert len(lines) == 10 and any(line.strip() for line in lines[2:-1])


def test_a_fault_is_told_above_what_was_known() -> None:
    lines = shown(View(), seen=known()._replace(fault="no socket\x1b[31m"))
    assert "colocd does not answer: no socket?" in lines[1] and "g1:0" in lines[2]


@given(st.text(max_size=50), st.integers(20, 200))
def test_no_name_steers_the_terminal(name: str, width: int) -> None:
    seen = Known([gpu(name, 0)], {name: name}, [on(7, f"GPU-{name}-0", name=name)], 1.0)
    for line in shown(View(), width, 20, seen):
        assert not any(ord(one) < 32 or ord(one) == 127 for one in line)


def test_one_picture_where_there_is_no_terminal(site: Site) -> None:
    done = site.coloc("top")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("coloc top") and "1 waiting" in done.stdout
    assert f"7+1 {OWNER}" in done.stdout and "\x1b" not in done.stdout


def test_it_runs_in_a_terminal_until_q(site: Site) -> None:
    """Its terminal is as it was before."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"COLOC_CONFIG": str(site.config), "TERM": "xterm", "COLUMNS": "80"}
        words = [sys.executable, "-m", "slurm_coloc", "top", "-d", "0.5"]
        os.execv(sys.executable, words)
    said = b""

    def until(mark: bytes) -> None:
        nonlocal said
        deadline = time.monotonic() + 30
        while mark not in said:
            assert time.monotonic() < deadline, said
            if select.select([fd], [], [], 1.0)[0]:
                said += os.read(fd, 65536)

    until(b"coloc top")
    os.write(fd, b"h")
    until(b"hold the picture")
    os.write(fd, b"q")
    _, status = os.waitpid(pid, 0)
    while select.select([fd], [], [], 0.2)[0]:
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        said += more
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"\x1b[?1049h" in said and b"\x1b[?1049l" in said  # the alternate screen, and back
