# SPDX-License-Identifier: Apache-2.0
"""A cgroup (v2) for each MPS daemon: its processes are in no job's, so they get limits and an end
of their own.

The group is root's: nobody else puts a process into it. At the end the kernel kills all of it at
once (``cgroup.kill``, Linux 5.14). Where the groups may not be written, as in a container and in
the agent's unit, what is there is ended by pid (``processes``).
"""

import contextlib
import os
import signal
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
TOP = "slurm-coloc"
#: a server has some threads for each of its 48 clients; neither figure was measured on a GPU
LIMITS = {"pids.max": "2048", "memory.max": str(8 << 30)}
EMPTY_S = 1.0


def of(folder: Path) -> Path:
    """The group of the daemon with this folder."""
    import hashlib  # OpenSSL: 3 ms that a hook without MPS does without

    return ROOT / TOP / f"mps-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"


def put(folder: Path, pid: int) -> str:
    """Put a daemon that has just been started into its group; "" or what it lacks."""
    if not (ROOT / "cgroup.controllers").is_file():
        return "no cgroup of its own: this node has no cgroup v2"
    group = of(folder)
    try:
        wanted = {name.partition(".")[0] for name in LIMITS}
        group.parent.mkdir(mode=0o755, exist_ok=True)
        there = set((ROOT / "cgroup.controllers").read_text("ascii").split()) & wanted
        for parent in (ROOT, group.parent):
            _pass_on(parent, there)
        group.mkdir(mode=0o755, exist_ok=True)
        for name, value in LIMITS.items():
            if name.partition(".")[0] in there:
                (group / name).write_text(value, "ascii")
        (group / "cgroup.procs").write_text(str(pid), "ascii")
    except OSError as err:
        return f"no cgroup of its own: {(err.strerror or str(err)).lower()}"
    missing = sorted(wanted - there)
    return f"no limit of {' and '.join(missing)}: not in cgroup v2 here" if missing else ""


def end(folder: Path) -> None:
    """Kill what is in the daemon's group and remove it; nothing where there is none. Never
    raises."""
    group = of(folder)
    with contextlib.suppress(OSError):
        if not group.is_dir():
            return
        _kill(group)
        end_s = time.monotonic() + EMPTY_S
        while _members(group) and time.monotonic() < end_s:
            time.sleep(0.005)
        group.rmdir()


def _kill(group: Path) -> None:
    try:
        (group / "cgroup.kill").write_text("1", "ascii")
    except OSError:  # Linux before 5.14
        for pid in _members(group):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _members(group: Path) -> list[int]:
    return [int(word) for word in (group / "cgroup.procs").read_text("ascii").split()]


def _pass_on(parent: Path, controllers: set[str]) -> None:
    control = parent / "cgroup.subtree_control"
    missing = controllers - set(control.read_text("ascii").split())
    if missing:
        control.write_text(" ".join(f"+{name}" for name in sorted(missing)), "ascii")
