# SPDX-License-Identifier: Apache-2.0
"""The jobs that use the MPS daemon of a GPU: the first one starts it, the last one stops it."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.adapters.mps import daemon, limits, processes
from slurm_coloc.adapters.mps.aside import aside
from slurm_coloc.adapters.mps.daemon import Who
from slurm_coloc.adapters.mps.lock import locked
from slurm_coloc.adapters.mps.processes import Process
from slurm_coloc.core.gpu.sharing import Chosen, Method, Rules, chosen
from slurm_coloc.errors import GpuError

LOCK_S = 4.0
#: how long an Epilog waits for a daemon's end, which takes a server's, too: contexts of real GPUs
PATIENCE_S = 0.1
KEPT = "running jobs have an MPS daemon from before sharing.users was changed"
_NAME = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})\.([0-9]{1,10})")


class MpsJob(NamedTuple):
    """A run of a job, and its owner."""

    job_id: int
    restart: int
    uid: int
    gid: int

    @property
    def name(self) -> str:
        """Of its file below jobs/."""
        return f"{self.job_id}.{self.restart}.{self.uid}"

    @classmethod
    def of(cls, name: str, gid: int = 0) -> "MpsJob | None":
        """From the name of a file, which has no gid; None for any other name."""
        match = _NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2]), int(match[3]), gid) if match else None


def _whose(rules: Rules, job: MpsJob) -> Who:
    """As whom the daemon of a job runs."""
    return Who(0, 0) if rules.users == "all" else Who(job.uid, job.gid)


class _Record(NamedTuple):
    """The daemon that we started, dead or alive. ``ends``: it is being stopped. It may listen for
    a while, but no job may use it any more. ``lacks``: see daemon.Started."""

    process: Process
    who: Who
    ends: bool = False
    lacks: tuple[str, ...] = ()


class Gpu(NamedTuple):
    """One GPU (or MIG device) and the jobs that use its daemon. ``run_dir``: the hooks' folder,
    where a job that has not ended has its state; ``control``: the program."""

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
            import hashlib  # OpenSSL: 3 ms that most hooks do without

            name = hashlib.sha256(name.encode()).hexdigest()
        return self.run_dir / "mps" / name[:12]

    def join(
        self, job: MpsJob, rules: Rules, share_mib: int = 0, total_mib: int = 0
    ) -> tuple[Chosen, Path | None]:
        """Let a job use the daemon, started where none runs: the method, and the pipe directory
        under MPS. Never raises: whatever fails is a reason to take turns. ``share_mib``: what it
        was promised, ``total_mib``: of the GPU; 0: not known."""
        try:
            if missing := self._missing(rules):
                return chosen(rules, job.uid, (), missing), None
            with self._locked():
                return self._join(job, rules, share_mib, total_mib)
        except Exception as err:  # of whatever kind: a user has a hand in these folders
            if isinstance(err, GpuError):
                why = err.message
            else:
                cause = (err.strerror if isinstance(err, OSError) else "") or type(err).__name__
                why = f"MPS cannot be set up: {cause}"
            return chosen(rules, job.uid, (), why), None

    def would_join(self, job: MpsJob, rules: Rules) -> Chosen:
        """What ``join`` would choose now; nothing is written or started."""
        uids = set()
        with contextlib.suppress(OSError):
            for entry in (self.folder / "jobs").iterdir():
                other = MpsJob.of(entry.name)
                if other and other.name != job.name and self._has_state(other):
                    uids.add(other.uid)
        missing = self._missing(rules)
        with contextlib.suppress(GpuError):
            return self._choose(job, rules, uids, missing)
        return chosen(rules, job.uid, uids, missing)

    def _choose(self, job: MpsJob, rules: Rules, uids: set[int], missing: str = "") -> Chosen:
        """The method beside the jobs of ``uids``. A daemon that serves them and would not serve
        this job stays: stopped, it would end their work. Raises GpuError."""
        found = chosen(rules, job.uid, uids, missing)
        if found.method is Method.MPS and uids:
            kept = KEPT if self._serves() not in (None, _whose(rules, job).uid) else ""
            return chosen(rules, job.uid, uids, kept)
        return found

    def _has_state(self, job: MpsJob) -> bool:
        """Whether the job has its state: else it has ended, and its Epilog stopped before ours."""
        return (self.run_dir / f"{job.job_id}.json").exists()

    def _missing(self, rules: Rules) -> str:
        if rules.method == "streams" or os.access(self.control, os.X_OK):
            return ""
        return f"{self.control} is not on this node"

    def _join(
        self, job: MpsJob, rules: Rules, share_mib: int, total_mib: int
    ) -> tuple[Chosen, Path | None]:
        who = _whose(rules, job)
        others = [other for other in self._jobs() if other.name != job.name]
        found = self._choose(job, rules, {other.uid for other in others})
        if found.method is not Method.MPS:
            return found, None
        if self._serves() != who.uid:
            self._stop()
            made = daemon.start(self.control, self._of(who), self.uuid, who, self.environ)
            self._write(_Record(made.process, who, lacks=tuple(made.lacks)))
        for other in others:
            if other.job_id == job.job_id:  # an earlier run, without its Epilog
                (self.folder / "jobs" / other.name).unlink(missing_ok=True)
        limits.write(self._file(job), limits.Share(share_mib))
        self._hold([*others, job], total_mib, new=job)
        return found, self._of(who) / "pipe"

    def bound_mib(self, job: MpsJob) -> int | None:
        """The most memory that the server let a process of this job have so far, as its limit was
        read back; None where it was not, or the job does not use the daemon."""
        return limits.read(self._file(job)).bound_mib

    def promised(self, job: MpsJob, share_mib: int) -> None:
        """Hold the clients to come by what is known of ``job``'s share only now. Raises GpuError or
        OSError."""
        with self._locked():
            share = limits.read(self._file(job))
            if self._file(job).exists():
                limits.write(self._file(job), share._replace(mib=share_mib))
                self._hold(self._jobs(), 0)  # as it was, where one share is not known

    @property
    def lacks(self) -> tuple[str, ...]:
        """What the daemon of this GPU could not be given, in words."""
        with contextlib.suppress(GpuError):
            if record := self._read():
                return record.lacks
        return ()

    def _file(self, job: MpsJob) -> Path:
        return self.folder / "jobs" / job.name

    def _hold(self, jobs: list[MpsJob], total_mib: int, new: MpsJob | None = None) -> None:
        """Set the server's limit to the largest share of these jobs, and note for each of them what
        it was held to. ``new``: the one that just came."""
        shares = {job: limits.read(self._file(job)) for job in jobs}
        mib, record = limits.largest(shares.values(), total_mib), self._read()
        if not mib or record is None:
            return
        held = daemon.limit(self.control, self._of(record.who), self.environ, mib)
        for job, share in shares.items():
            before = mib if job is new else share.bound_mib
            bound = max(before, mib) if held and before is not None else None
            limits.write(self._file(job), share._replace(bound_mib=bound))

    def leave(self, job: MpsJob, whose: Callable[[int], bool] | None = None) -> list[int]:
        """End a job's use of the daemon; the last job stops it, which goes on behind the caller
        where it takes longer than PATIENCE_S: the next hook here waits for it. ``whose``: whether
        a process is of the job that ends; where other jobs go on, such clients are ended. Returns
        the pids of the clients that were ended. Raises GpuError."""
        if not self.folder.is_dir():
            return []
        with self._locked():
            self._file(job).unlink(missing_ok=True)
            others = self._jobs()
            if not others:
                aside(self._stop, PATIENCE_S)
                return []
            self._hold(others, 0)  # may be less now; as it was, where one share is not known
            if whose and (record := self._read()) and processes.alive(record.process):
                folder = self._of(record.who)
                return daemon.end_clients(self.control, folder, self.environ, whose)
            return []

    def end_clients(self, whose: Callable[[int], bool]) -> list[int]:
        """Have the daemon end the GPU work of clients before somebody ends their processes; the
        pids of those that were ended. Without the hooks' lock, since a neighbour waits for the
        memory: a daemon that is being stopped ends them anyway. Raises GpuError."""
        record = self._read()
        if record is None or not processes.alive(record.process):
            return []
        return daemon.end_clients(self.control, self._of(record.who), self.environ, whose)

    def reap(self) -> bool:
        """Stop the daemon where no job uses it any more; whether there was one. Raises GpuError
        or OSError."""
        with self._locked():
            if self._jobs() or not self._record.exists():
                return False
            self._stop()
            return True

    def _jobs(self) -> list[MpsJob]:
        """The jobs that use the daemon; files of jobs that have ended are removed."""
        found = []
        for entry in list((self.folder / "jobs").iterdir()):
            job = MpsJob.of(entry.name)
            if job and self._has_state(job):
                found.append(job)
            else:
                entry.unlink(missing_ok=True)
        return found

    def _of(self, who: Who) -> Path:
        return self.folder / who.name

    @property
    def _record(self) -> Path:
        return self.folder / "daemon.json"

    def _write(self, record: _Record) -> None:
        plain = {**record.process._asdict(), "uid": record.who.uid, "uuid": self.uuid}
        text = json.dumps(plain | {"ends": record.ends, "lacks": record.lacks})
        new = self.folder / ".daemon.json"
        new.write_text(text + "\n", encoding="ascii")
        new.chmod(0o600)
        new.rename(self._record)

    def _read(self) -> _Record | None:
        """None without a record. Raises GpuError for that of another GPU."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            plain = json.loads(self._record.read_text(encoding="ascii"))
            if plain["uuid"] != self.uuid:
                raise GpuError(f"{self.folder} is that of another GPU ({plain['uuid']})", "mps")
            process = Process(int(plain["pid"]), int(plain["started"]))
            lacks = tuple(str(one) for one in plain.get("lacks", ()))
            return _Record(process, Who(int(plain["uid"]), 0), bool(plain.get("ends")), lacks)
        return None

    def _serves(self) -> int | None:
        """The uid of our daemon (0: of all), where it runs, listens and is to stay."""
        record = self._read()
        if record is None or record.ends or not processes.alive(record.process):
            return None
        return record.who.uid if daemon.listens(self._of(record.who) / "pipe") else None

    def _stop(self) -> None:
        """Stop the daemon, and what is left of one that was killed. The record says first that it
        ends: a hook that is killed here may have sent `quit` already."""
        record = self._read()
        if record is not None:
            self._write(record._replace(ends=True))
        for entry in list(self.folder.iterdir()):
            if entry.name == "jobs" or not entry.is_dir():
                continue
            ours = record is not None and entry.name == record.who.name
            process = record.process if record and ours else None
            daemon.stop(self.control, entry, process, self.environ)
        self._record.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Prologs and Epilogs of several jobs run at once. Raises GpuError after LOCK_S."""
        # Others pass through to their pipe, and see nothing of whose jobs are there.
        modes = {self.run_dir / "mps": 0o711, self.folder: 0o711, self.folder / "jobs": 0o700}
        for folder, mode in modes.items():
            folder.mkdir(mode=mode, exist_ok=True)
            if folder.stat().st_mode & 0o777 != mode:  # of an earlier release, or by the umask
                folder.chmod(mode)
        with locked(self.folder / "lock", LOCK_S) as taken:
            if not taken:
                raise GpuError(f"{self.folder} is in use by another hook", "mps")
            yield
