# SPDX-License-Identifier: Apache-2.0
"""Processes that a lab started, told from any other by pid and start time."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
LONGEST_POLL_S = 0.3
# Children of this very process: waited for here so that they leave no zombie behind.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Proc:
    """One process. ``start_ticks`` is field 22 of /proc/PID/stat: it tells a pid used again."""

    name: str
    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
            return False
        return _start_ticks(self.pid) == self.start_ticks

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; False when it is gone.

        The pid descriptor is opened before the start time is compared, so a pid that is used
        again in between is never hit.
        """
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if _start_ticks(self.pid) != self.start_ticks:
                return False
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the command's name: [0] state, [1] parent, [19] start."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _start_ticks(pid: int) -> int | None:
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return int(fields[19])


def proc(name: str, pid: int) -> Proc | None:
    """The process that has this pid now; None when there is none."""
    ticks = _start_ticks(pid)
    return None if ticks is None else Proc(name, pid, ticks)


def spawn(
    name: str,
    argv: list[str],
    log: Path,
    env: Mapping[str, str],
    user: tuple[int, int] | None,
    nice: int = 0,
) -> Proc | None:
    """Start a daemon in its own session, its output appended to ``log``.

    ``user`` is (uid, gid), None for root. ``nice``: its scheduling priority, where that may be set.
    Returns None when it died at once.
    """
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(env),
            cwd="/",
            start_new_session=True,
            user=user[0] if user else None,
            group=user[1] if user else None,
            extra_groups=[] if user else None,
        )
    _children[child.pid] = child
    if nice:
        with suppress(OSError):  # not in a container without CAP_SYS_NICE
            os.setpriority(os.PRIO_PROCESS, child.pid, nice)
    return proc(name, child.pid)


def wait_until(check: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> bool:
    """Poll ``check`` until it holds; False after ``timeout_s`` seconds."""
    began = time.monotonic()
    while not check():
        waited = time.monotonic() - began
        if waited > timeout_s:
            return False
        time.sleep(pause_s(waited, poll_s))
    return True


def pause_s(waited_s: float, poll_s: float) -> float:
    """Seconds until the next poll, after ``waited_s`` of them: a command of Slurm costs a core some
    10 ms, so that what takes long is not asked for ten times a second."""
    return max(poll_s, min(waited_s / 10, LONGEST_POLL_S))


def stop(procs: Iterable[Proc], grace_s: float) -> list[Proc]:
    """SIGTERM, then SIGKILL after ``grace_s`` seconds; returns those that had to be killed."""
    rest = [one for one in procs if one.signal(signal.SIGTERM)]
    for one in rest:
        one.signal(signal.SIGCONT)  # a process that a test had stopped must still hear SIGTERM
    wait_until(lambda: not any(one.alive() for one in rest), grace_s)
    killed = [one for one in rest if one.alive()]
    for one in killed:
        one.signal(signal.SIGKILL)
    wait_until(lambda: not any(one.alive() for one in killed), 5.0)
    return killed


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def _holds_file_below(pid: int, folder: Path) -> bool:
    """Whether a process has a file below the folder open."""
    try:
        links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.startswith(f"{folder}/") for link in links)


def own_pids() -> list[int]:
    """Every pid of this machine, less those of containers.

    The host sees a container's processes, and theirs may have the same folder and the same uids.
    """
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [int(pid) for pid in pids if not _in_a_container(pid)]


def _in_a_container(pid: str) -> bool:
    """Whether a process has a pid of its own in a namespace below this one.

    NSpid is readable for everybody; ns/pid of another user's process needs CAP_SYS_PTRACE, which
    root has not in a container.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return True  # gone
    found = [line.split() for line in text.splitlines() if line.startswith("NSpid:")]
    return len(found) == 1 and len(found[0]) > 2


def leftovers(folder: Path, uids: frozenset[int]) -> list[Proc]:
    """Processes of a lab that are in no record: job steps, what jobs left, unrecorded daemons.

    They are told by what only this lab gives: a lab daemon's own file in its arguments, or in
    COLOC_CONFIG of colocd, its agents and MPS daemons, make's BUILD=folder, a slurmstepd that logs
    below the folder, the variable COLOC_LAB_JOB that the lab's TaskProlog sets, a lab account as
    owner; and the descendants of all these. A shell that merely sourced the lab's env.sh is none of
    them.
    """
    mark = b"COLOC_LAB_JOB=" + os.fsencode(folder)
    below = os.fsencode(folder) + b"/"
    config = b"COLOC_CONFIG=" + below
    to = b"BUILD=" + below
    found: dict[int, str] = {}
    parents: dict[int, int] = {}
    for pid in own_pids():
        fields = _stat(pid)
        if fields is None or fields[0] in "ZX" or pid == os.getpid():
            continue
        parents[pid] = int(fields[1])
        name = _read(pid, "comm").decode(errors="replace").strip()
        words = _read(pid, "cmdline").split(b"\0")
        environ = _read(pid, "environ").split(b"\0")
        daemon = name in ("munged", "slurmctld", "slurmd") and any(below in w for w in words)
        ours = b"slurm_coloc" in words and (b"serve" in words or b"agent" in words)
        if ours or name.startswith("nvidia-cuda-mps"):  # root's own, of a Prolog of this lab
            daemon = any(one.startswith(config) for one in environ)
        # slurmstepd works in / and writes its title over its environment: its log tells it
        step = name == "slurmstepd" and _holds_file_below(pid, folder)
        # a build of a `lab up` that was killed goes on, and makes the folder again
        build = name == "make" and any(w + b"/" == to or w.startswith(to) for w in words)
        if daemon or step or build or mark in environ or _owner(pid) in uids:
            found[pid] = name
    grown = True
    while grown:
        more = {p for p, up in parents.items() if up in found and p not in found}
        found.update((p, "job process") for p in more)
        grown = bool(more)
    return [one for pid, name in found.items() if (one := proc(name, pid)) is not None]


def _owner(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1
