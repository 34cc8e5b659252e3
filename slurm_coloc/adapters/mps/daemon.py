# SPDX-License-Identifier: Apache-2.0
"""One MPS control daemon: start it for one GPU, ask it, stop it."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.adapters.mps import folder as place
from slurm_coloc.adapters.mps import group, limits, processes, untraceable
from slurm_coloc.adapters.mps.processes import Process
from slurm_coloc.errors import GpuError

#: of the control socket: the kernel refuses a connection of another kind
KINDS = (socket.SOCK_SEQPACKET, socket.SOCK_STREAM)
START_S = 3.0
COMMAND_S = 1.0
QUIT_S = 1.0
CLIENTS_S = 1.0  # for all clients that are to be ended
#: a Unix socket's name has room for 107 bytes; the longest that MPS makes in its pipe directory
_LONGEST = len("/control_privileged")
ROOM = 107 - _LONGEST


class Who(NamedTuple):
    """The user that a daemon runs as and serves; root's serves all (``-multiuser-server``)."""

    uid: int
    gid: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return str(self.uid) if self.uid else "all"


class Started(NamedTuple):
    """``lacks``: what the daemon could not be given here, in words: limits of its folder and
    processes, protection from its user's debuggers."""

    process: Process
    lacks: list[str]


def start(control: Path, folder: Path, uuid: str, who: Who, environ: Mapping[str, str]) -> Started:
    """A daemon that sees this GPU (or MIG device) alone and listens. Raises GpuError or OSError;
    then nothing is left."""
    import subprocess  # 3 ms that a job on whole GPUs need not wait

    pipe, log = folder / "pipe", folder / "log"
    if len(os.fsencode(pipe)) > ROOM:
        raise GpuError(f"{pipe} is too long a name for a socket", "mps")
    group.end(folder)  # of one that was killed
    place.take_away(folder)
    lacks = [place.make(folder, who.uid, who.gid)]
    apart = untraceable.prefix(who.uid, who.gid) if who.uid else []
    if who.uid and not apart:
        lacks.append("its user's processes can trace it")
    try:
        made = subprocess.Popen(
            [*apart, control, "-f", *(() if who.uid else ("-multiuser-server",))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(environ, uuid, pipe, log),
            cwd="/",
            start_new_session=True,  # slurmd ends the Prolog's process group
            user=None if apart else who.uid,
            group=None if apart else who.gid,
            extra_groups=[],
        )
    except OSError as err:
        place.take_away(folder)
        raise GpuError(f"{control} cannot be started: {err.strerror}", "mps") from err
    began = processes.started(made.pid)
    process = Process(made.pid, began or 0)
    lacks.append(group.put(folder, made.pid))
    end_s = time.monotonic() + START_S
    while not listens(pipe):
        ended = made.poll() is not None
        if ended or time.monotonic() > end_s:
            stop(control, folder, process, environ)
            why = "ended at once" if ended else f"did not listen within {START_S:.0f} s"
            raise GpuError(f"the MPS control daemon {why}", "mps")
        time.sleep(0.005)
    return Started(process, [one for one in lacks if one])


def limit(control: Path, folder: Path, environ: Mapping[str, str], mib: int) -> bool:
    """Hold each client to come to ``mib`` by the server; whether that reads back."""
    return limits.apply(lambda text: _command(control, folder, text, environ), mib)


def listens(pipe: Path) -> bool:
    """Whether a daemon accepts connections at the control socket."""
    return any(_accepts(pipe / "control", kind) for kind in KINDS)


def _accepts(path: Path, kind: int) -> bool:
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.settimeout(0.2)
        try:
            sock.connect(str(path))
        except BlockingIOError:
            return True  # it listens, and its queue is full
        except OSError:
            return False
        return True


def stop(control: Path, folder: Path, process: Process | None, environ: Mapping[str, str]) -> None:
    """End the daemon's clients, send it ``quit``, kill what is left, and take its folder away.
    ``process``: the daemon as it was started, dead or alive; None where that is not known. Raises
    GpuError for what cannot be ended, OSError for folders that stay in their place."""
    left = processes.of_daemon(folder / "pipe", process)
    if process is not None and processes.alive(process):
        end_clients(control, folder, environ)
        _command(control, folder, "quit", environ)
        processes.wait(process, QUIT_S)
        left.append(process)
    stubborn = [one for one in left if not processes.end(one, 0.5)]
    group.end(folder)
    if stubborn:
        raise GpuError(f"an MPS daemon cannot be ended (pid {stubborn[0].pid})", "mps")
    place.take_away(folder)


def end_clients(
    control: Path,
    folder: Path,
    environ: Mapping[str, str],
    whose: Callable[[int], bool] = lambda pid: True,
) -> list[int]:
    """Have the server end the GPU work of clients (by pid) before anybody kills them: NVIDIA's MPS
    guide calls the server's state undefined after a client that was killed amid its work, while
    terminate_client leaves the others alone. Their processes stay. Returns the pids of the clients
    that were ended; those that remain after CLIENTS_S stay."""
    ended: list[int] = []
    end_s = time.monotonic() + CLIENTS_S
    for server in _numbers(_command(control, folder, "get_server_list", environ)):
        if time.monotonic() > end_s:
            break  # a user may answer in the daemon's place, with as many servers as they like
        for pid in _numbers(_command(control, folder, f"get_client_list {server}", environ)):
            if time.monotonic() < end_s and whose(pid):
                _command(control, folder, f"terminate_client {server} {pid}", environ)
                ended.append(pid)
    return ended


def _numbers(text: str) -> list[int]:
    """The number at the start of each line; other lines are words of an error."""
    words = [line.split()[0] for line in text.splitlines() if line.strip()]
    return [int(word) for word in words if word.isdigit() and len(word) <= 10]


def _command(control: Path, folder: Path, text: str, environ: Mapping[str, str]) -> str:
    """The daemon's answer; "" where it gives none in time. The daemon's user runs the program."""
    import subprocess  # 3 ms that a job on whole GPUs need not wait

    try:
        uid, gid = _owner(folder)
        done = subprocess.run(
            [control],
            input=f"{text}\n",
            capture_output=True,
            encoding="ascii",
            errors="replace",  # the answer may be the user's
            timeout=COMMAND_S,
            env=_environment(environ, "", folder / "pipe", folder / "log"),
            cwd="/",
            user=uid,
            group=gid,
            extra_groups=[],
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _owner(folder: Path) -> tuple[int, int]:
    """User and group of a daemon: the user by the folder's name, which is root's to give."""
    uid = int(folder.name) if folder.name.isascii() and folder.name.isdigit() else 0
    status = (folder / "pipe").lstat()
    return uid, status.st_gid if uid == 0 or (status.st_uid == uid and status.st_gid) else 65534


def _environment(environ: Mapping[str, str], uuid: str, pipe: Path, log: Path) -> dict[str, str]:
    """The hook's own environment, without the variables of Slurm and of the user."""
    own = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("SPANK_", "SLURM_", "CUDA_"))
    }
    own["CUDA_MPS_PIPE_DIRECTORY"] = str(pipe)
    own["CUDA_MPS_LOG_DIRECTORY"] = str(log)
    if uuid:
        own["CUDA_VISIBLE_DEVICES"] = uuid
    return own
