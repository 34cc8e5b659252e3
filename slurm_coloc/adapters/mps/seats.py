# SPDX-License-Identifier: Apache-2.0
"""Which jobs use the MPS daemon of a GPU: the first brings it, the last takes it away."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.adapters.mps import daemon, processes, removal
from slurm_coloc.adapters.mps.aside import aside
from slurm_coloc.adapters.mps.daemon import Who
from slurm_coloc.adapters.mps.lock import locked
from slurm_coloc.adapters.mps.processes import Process
from slurm_coloc.core.gpu.sharing import Chosen, Method, Rules, chosen
from slurm_coloc.errors import GpuError

LOCK_S = 4.0
#: how long an Epilog waits for a daemon's end, which takes a server's, too: contexts of real GPUs
PATIENCE_S = 0.1
_SEAT = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})\.([0-9]{1,10})")


class Seat(NamedTuple):
    """A run of a job, and its owner."""

    job_id: int
    restart: int
    uid: int
    gid: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.job_id}.{self.restart}.{self.uid}"


class Gpu(NamedTuple):
    """The seats of one GPU (or MIG device). ``run_dir``: the hooks' folder, where a job that is
    still there has its state; ``control``: the program."""

    run_dir: Path
    uuid: str
    control: Path
    environ: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Short, for sockets' names are: the first part of the UUID tells the GPUs of a node
        apart, and the record in it holds the whole. Drivers before R470 call a MIG device by its
        GPU's UUID and two numbers, which have no first part of their own."""
        name = self.uuid.removeprefix("GPU-").removeprefix("MIG-")
        if "/" in name:
            name = hashlib.sha256(name.encode()).hexdigest()
        return self.run_dir / "mps" / name[:12]

    def sit(self, seat: Seat, rules: Rules) -> tuple[Chosen, Path | None]:
        """Take a seat: the method, and the pipe directory under MPS. Never raises: what does not
        work is a reason to take turns."""
        try:
            if missing := self._missing(rules):
                return chosen(rules, seat.uid, (), missing), None
            with self._locked():
                return self._sit(seat, rules)
        except Exception as err:  # of whatever kind: a user has a hand in these folders
            why = (
                err.message if isinstance(err, GpuError) else f"MPS cannot be set up: {_said(err)}"
            )
            return chosen(rules, seat.uid, (), why), None

    def would(self, seat: Seat, rules: Rules) -> Chosen:
        """What ``sit`` would choose now; nothing is taken or started."""
        present = set()
        with contextlib.suppress(OSError):
            for entry in (self.folder / "jobs").iterdir():
                match = _SEAT.fullmatch(entry.name)
                if match and entry.name != seat.name and self._there(match[1]):
                    present.add(int(match[3]))
        return chosen(rules, seat.uid, present, self._missing(rules))

    def _there(self, job_id: str) -> bool:
        """Whether the job has its state: else it has gone, and its Epilog did not come this far."""
        return (self.run_dir / f"{job_id}.json").exists()

    def _missing(self, rules: Rules) -> str:
        if rules.method == "streams" or os.access(self.control, os.X_OK):
            return ""
        return f"{self.control} is not on this node"

    def _sit(self, seat: Seat, rules: Rules) -> tuple[Chosen, Path | None]:
        who = Who(0, 0) if rules.users == "all" else Who(seat.uid, seat.gid)
        others = self._seats() - {seat.name}
        found = chosen(rules, seat.uid, {_uid(name) for name in others})
        if found.method is not Method.MPS:
            return found, None
        if self._serves() != who.uid:
            self._stop()
            self._keep(daemon.start(self.control, self._of(who), self.uuid, who, self.environ), who)
        for name in others:
            if int(name.partition(".")[0]) == seat.job_id:  # an earlier run, without its Epilog
                (self.folder / "jobs" / name).unlink(missing_ok=True)
        (self.folder / "jobs" / seat.name).touch(0o644)
        return found, self._of(who) / "pipe"

    def leave(self, seat: Seat, whose: Callable[[int], bool] | None = None) -> list[int]:
        """Give the seat back; the last one stops the daemon, which goes on behind the caller where
        it takes longer than PATIENCE_S: the next hook here waits for it. ``whose``: whether a
        process is of the job that ends: as a client it is ended, beside the others that go on. The
        pids of clients that were. Raises GpuError."""
        if not self.folder.is_dir():
            return []
        with self._locked():
            (self.folder / "jobs" / seat.name).unlink(missing_ok=True)
            if not self._seats():
                aside(self._stop, PATIENCE_S)
            elif whose is not None and (kept := self._kept()) and processes.alive(kept[0]):
                folder = self._of(Who(kept[1], 0))
                return daemon.end_clients(self.control, folder, self.environ, whose)
            return []

    def reap(self) -> bool:
        """Stop the daemon where no job has a seat any more; whether there was one. Raises GpuError
        or OSError."""
        with self._locked():
            if self._seats() or not self._record().exists():
                return False
            self._stop()
            return True

    def _seats(self) -> set[str]:
        """Taken ones; those of jobs that have gone are removed."""
        found = set()
        for entry in list((self.folder / "jobs").iterdir()):
            match = _SEAT.fullmatch(entry.name)
            if match and self._there(match[1]):
                found.add(entry.name)
            else:
                entry.unlink(missing_ok=True)
        return found

    def _of(self, who: Who) -> Path:
        return self.folder / who.name

    def _record(self) -> Path:
        return self.folder / "daemon.json"

    def _keep(self, process: Process, who: Who, *, ends: bool = False) -> None:
        """``ends``: it is being stopped. It may listen for a while, but nobody may count on it."""
        told = {"pid": process.pid, "started": process.started, "uid": who.uid, "uuid": self.uuid}
        text = json.dumps(told | {"ends": ends})
        new = self.folder / ".daemon.json"
        new.write_text(text + "\n", encoding="ascii")
        new.rename(self._record())

    def _kept(self) -> tuple[Process, int, bool] | None:
        """The daemon that we started, dead or alive, its uid, and whether somebody began to stop
        it. Raises GpuError."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._record().read_text(encoding="ascii"))
            if kept["uuid"] != self.uuid:
                raise GpuError(f"{self.folder} is that of another GPU ({kept['uuid']})", "mps")
            ends = bool(kept.get("ends"))
            return Process(int(kept["pid"]), int(kept["started"])), int(kept["uid"]), ends
        return None

    def _serves(self) -> int | None:
        """The uid of our daemon (0: of all), where it is there, listens and is to stay."""
        kept = self._kept()
        if kept is None or kept[2] or not processes.alive(kept[0]):
            return None
        return kept[1] if daemon.listens(self._of(Who(kept[1], 0)) / "pipe") else None

    def _stop(self) -> None:
        """Stop the daemon, and what is left of one that was killed. Whoever is killed here leaves
        the word that it ends: `quit` may have been said."""
        kept = self._kept()
        if kept is not None:
            self._keep(kept[0], Who(kept[1], 0), ends=True)
        for entry in list(self.folder.iterdir()):
            if entry.name == "jobs" or not entry.is_dir():
                continue
            ours = kept is not None and entry.name == Who(kept[1], 0).name
            daemon.stop(self.control, entry, kept[0] if kept and ours else None, self.environ)
        self._record().unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Prologs and Epilogs of several jobs run at once. Raises GpuError after LOCK_S."""
        for folder in (self.run_dir / "mps", self.folder, self.folder / "jobs"):
            folder.mkdir(mode=0o755, exist_ok=True)
        with locked(self.folder / "lock", LOCK_S) as taken:
            if not taken:
                raise GpuError(f"{self.folder} is in use by another hook", "mps")
            yield


def leave(
    run_dir: Path,
    control: Path,
    environ: Mapping[str, str],
    seat: Seat,
    whose: Callable[[int], bool] | None = None,
) -> list[str]:
    """Give back what this run and the earlier ones of its job have on any GPU of this node: an
    earlier one may have lost its Epilog, and a GPU that hangs is not in the state of a run.
    ``whose``: see Gpu.leave. What could not be done, and who had to be ended, in words."""
    faults: list[str] = []
    try:
        for entry in _folders(run_dir):
            for found in _of_job(entry / "jobs", seat):
                faults += _left(Gpu(run_dir, "", control, environ), entry, found, whose)
    except Exception as err:  # of whatever kind: the Epilog has more to do
        faults.append(_told(err))
    return faults


def _left(node: Gpu, entry: Path, seat: Seat, whose: Callable[[int], bool] | None) -> list[str]:
    """``leave`` for one seat in the folder ``entry`` of a GPU."""
    try:
        gpu = node._replace(uuid=_uuid(entry))
        ended = gpu.leave(seat, whose) if gpu.folder == entry else []
    except FileNotFoundError:  # a seat without a daemon
        (entry / "jobs" / seat.name).unlink(missing_ok=True)
    except Exception as err:  # of whatever kind: there are other GPUs
        return [_told(err)]
    else:
        if ended:
            return [f"clients of the job outlived it and were ended: {ended[:8]}"]
    return []


def _of_job(folder: Path, seat: Seat) -> list[Seat]:
    """Seats of a job, up to that of this run."""
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in folder.iterdir():
            match = _SEAT.fullmatch(entry.name)
            if match and int(match[1]) == seat.job_id and int(match[2]) <= seat.restart:
                found.append(Seat(seat.job_id, int(match[2]), int(match[3]), seat.gid))
    return found


def _folders(run_dir: Path) -> list[Path]:
    """Of the GPUs."""
    try:
        found = sorted((run_dir / "mps").iterdir())
    except FileNotFoundError:
        return []
    return [entry for entry in found if entry.name != removal.OLD]


def _uuid(folder: Path) -> str:
    """Of the GPU whose daemon this folder's record is. Raises OSError, ValueError, KeyError or
    TypeError."""
    return str(json.loads((folder / "daemon.json").read_text("ascii"))["uuid"])


class Reaped(NamedTuple):
    """``ended``: the UUIDs of the GPUs whose daemon was stopped; ``faults``: what could not be
    done."""

    ended: list[str]
    faults: list[str]


def reap(run_dir: Path, control: Path, environ: Mapping[str, str]) -> Reaped:
    """Stop the daemons of this node whose jobs' Epilogs never came, and go on with the removal of
    what users left in their folders. Never raises."""
    done = Reaped([], [])
    try:
        for entry in _folders(run_dir):
            _reap_one(Gpu(run_dir, "", control, environ), entry, done)
        removal.sweep(run_dir / "mps")
    except Exception as err:
        done.faults.append(_told(err))
    return done


def _reap_one(node: Gpu, entry: Path, done: Reaped) -> None:
    try:
        gpu = node._replace(uuid=_uuid(entry))
        if gpu.folder == entry and gpu.reap():
            done.ended.append(gpu.uuid)
    except FileNotFoundError:
        pass  # no daemon
    except Exception as err:  # of whatever kind: there are other GPUs, and the agent goes on
        done.faults.append(_told(err))


def _told(err: Exception) -> str:
    text = str(getattr(err, "message", "") or err)
    return (text if isinstance(err, GpuError) else f"{type(err).__name__}: {text}")[:200]


def _said(err: Exception) -> str:
    """In a line of the job's output."""
    return (err.strerror if isinstance(err, OSError) else "") or type(err).__name__


def _uid(seat: str) -> int:
    return int(seat.rpartition(".")[2])
