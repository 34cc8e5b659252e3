# SPDX-License-Identifier: Apache-2.0
"""The daemons of a lab: started, waited for, stopped, and recorded in lab.json."""

import dataclasses
import json
import signal
import socket
from pathlib import Path

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import parts, procs
from slurm_coloc.lab.client import Client
from slurm_coloc.lab.procs import Proc
from slurm_coloc.lab.spec import LabSpec

START_TIMEOUT_S = 60.0
SOCKETS = {"munged": "munge/socket", "mariadbd": "db/socket", "colocd": "coloc/colocd.sock"}


@dataclasses.dataclass(frozen=True)
class Command:
    """How a daemon is started; ``user`` is (uid, gid), None for root."""

    argv: list[str]
    env: dict[str, str]
    user: tuple[int, int] | None = None
    nice: int = 0


class Daemons(Client):
    """A lab that bringup fills with daemons, by name: munged, slurmctld, slurmd-n1, colocd, ..."""

    def __init__(self, spec: LabSpec) -> None:
        super().__init__(spec)
        self.version = ""
        self.release = (0, 0)
        self.notes: list[str] = []
        self.daemons: dict[str, Proc] = {}
        self.commands: dict[str, Command] = {}

    def save(self) -> None:
        """Write lab.json, the record that ``load`` reads."""
        record = {
            "spec": dataclasses.asdict(self.spec) | {"dir": str(self.dir)},
            "version": self.version,
            "release": list(self.release),
            "notes": self.notes,
            "commands": {name: dataclasses.asdict(one) for name, one in self.commands.items()},
            "daemons": [dataclasses.asdict(one) for one in self.daemons.values()],
        }
        new = self.dir / "lab.json.new"
        new.touch(mode=0o600)  # it holds no secret, but only root acts on it
        new.write_text(json.dumps(record, indent=1))
        new.rename(self.dir / "lab.json")

    def load(self) -> None:
        """Take versions, commands and daemons from lab.json; raises OSError or ValueError."""
        saved = json.loads((self.dir / "lab.json").read_text())
        known = {one.name for one in dataclasses.fields(LabSpec)}  # another version may have more
        wish = {key: value for key, value in saved["spec"].items() if key in known}
        self.spec = LabSpec(**(wish | {"dir": self.dir}))
        self.version, self.release = saved["version"], (saved["release"][0], saved["release"][1])
        self.notes = saved["notes"]
        for name, one in saved["commands"].items():
            user = (one["user"][0], one["user"][1]) if one["user"] else None
            self.commands[name] = Command(one["argv"], one["env"], user, one.get("nice", 0))
        self.daemons = {one["name"]: Proc(**one) for one in saved["daemons"]}

    def start(self, name: str, command: Command | None = None) -> None:
        """Start a daemon, by its recorded command if none is given; raises SlurmError."""
        how = self.commands[name] = command or self.commands[name]
        log = self.log_file(name, ".out")
        started = procs.spawn(name, how.argv, log, how.env, how.user, how.nice)
        if started is None:
            raise SlurmError(f"{name} died at once:\n{self.log_tail(name)}")
        self.daemons[name] = started
        self.save()

    def launch(self, name: str, command: Command | None = None) -> None:
        """Start a daemon and wait until it serves; raises SlurmError."""
        self.start(name, command)
        self.wait_daemon(name)

    def wait_daemon(self, name: str) -> None:
        """Wait until a daemon serves; raises SlurmError with its log when it does not."""
        proc = self.daemons[name]

        def settled() -> bool:
            return not proc.alive() or self._serves(name)

        if procs.wait_until(settled, START_TIMEOUT_S, 0.05) and proc.alive():
            return
        how = f"does not serve after {START_TIMEOUT_S:g} s" if proc.alive() else "died"
        raise SlurmError(f"{name} {how}; the end of its log:\n{self.log_tail(name)}")

    def _serves(self, name: str) -> bool:
        """Whether a daemon answers what its users ask of it; a pid file would not tell."""
        if name in SOCKETS:
            return _connects(self.dir / SOCKETS[name])
        if name.startswith("agent-"):
            return True  # it links by itself, whenever colocd is there
        if name == "slurmdbd":
            return self._answer("sacctmgr", "-n", "show", "cluster") is not None
        if name == "slurmctld":
            return " is UP" in (self._answer("scontrol", "ping") or "")
        state = self._answer("sinfo", "-h", "-n", name.removeprefix("slurmd-"), "-o", "%T") or ""
        return state.split()[:1] in (["idle"], ["mixed"], ["allocated"])

    def _answer(self, *argv: str) -> str | None:
        done = self.run(list(argv), check=False, timeout=30)
        return done.stdout if done.returncode == 0 else None

    def stop(self, name: str, grace_s: float = 10.0) -> None:
        """Stop one daemon (SIGTERM, SIGKILL after ``grace_s``)."""
        procs.stop([self.daemons[name]], grace_s)

    def restart(self, name: str) -> None:
        """Stop a daemon, start it again and wait until it serves."""
        self.stop(name)
        self.launch(name)

    @property
    def colocd(self) -> "Daemon":
        """colocd, to be stopped, continued, killed and started by a test."""
        return Daemon(self, "colocd")

    def daemon(self, name: str) -> "Daemon":
        """Any daemon of the lab by its name."""
        return Daemon(self, name)

    def log_file(self, name: str, suffix: str = ".log") -> Path:
        """The daemon's own log, or with ``.out`` what it wrote to stdout and stderr."""
        return self.dir / "log" / (name + suffix)

    def log_tail(self, name: str, lines: int = 25) -> str:
        """Last lines of the daemon's log; of its output when it has written none."""
        files = (self.log_file(name), self.log_file(name, ".out"))
        return next((text for file in files if (text := parts.tail(file, lines))), "")

    def logs(self, lines: int = 60) -> str:
        """The tails of all logs, for the report of a failed test."""
        return "\n".join(f"---- {name}\n{self.log_tail(name, lines)}" for name in self.daemons)


@dataclasses.dataclass(frozen=True)
class Daemon:
    """A handle on one daemon of a lab."""

    lab: Daemons
    name: str

    @property
    def proc(self) -> Proc:
        """The process that was started last under this name."""
        return self.lab.daemons[self.name]

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.proc.pid

    def alive(self) -> bool:
        """Whether it runs (a stopped one does)."""
        return self.proc.alive()

    def stop(self) -> None:
        """SIGSTOP: it hangs, its sockets stay."""
        self.proc.signal(signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT after ``stop``."""
        self.proc.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. colocd's front takes connections until it has ended,
        too, and ``start`` would take them for the new one's."""
        self.proc.signal(signal.SIGKILL)
        procs.wait_until(lambda: not self.proc.alive(), 10)
        if self.name == "colocd":
            procs.wait_until(lambda: not _connects(self.lab.dir / SOCKETS["colocd"]), 10)

    def term(self) -> None:
        """An orderly end by SIGTERM."""
        self.lab.stop(self.name)

    def start(self) -> None:
        """Start it again and wait until it serves."""
        self.lab.launch(self.name)


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
