# SPDX-License-Identifier: Apache-2.0
"""A private one-machine Slurm with emulated GPUs: its life from up to down, and its use in tests.

Everything lies below one folder; what lies elsewhere (accounts, device nodes) is in the registry,
so that `coloc lab down` removes it also after a lab that was killed.
"""

import dataclasses
import json
import shutil
import signal
from pathlib import Path
from typing import Any

from slurm_coloc.errors import SlurmError, UsageFault
from slurm_coloc.lab import parts, procs, registry
from slurm_coloc.lab.client import Client
from slurm_coloc.lab.procs import Proc
from slurm_coloc.lab.spec import LabSpec


class Lab(Client):
    """One lab. Make it with ``Lab.up(spec)``, find a running one with ``Lab.attach``."""

    def __init__(self, spec: LabSpec) -> None:
        super().__init__(spec)
        self.version = ""
        self.release = (0, 0)
        self.notes: list[str] = []
        self.daemons: dict[str, Proc] = {}
        self.commands: dict[str, dict[str, Any]] = {}

    # ---- life ----------------------------------------------------------------------------

    @classmethod
    def up(cls, spec: LabSpec) -> "Lab":
        """Bring a lab up, or leave nothing behind.

        Raises UsageFault (no root, a wish that cannot be met, a lab of this name is up) or
        SlurmError (Slurm missing, or a daemon failed: its log's tail is in the message).
        """
        from slurm_coloc.lab import bringup

        return bringup.up(cls(spec))

    @classmethod
    def attach(cls, name: str = "lab") -> "Lab":
        """The lab of this name, alive or not; raises UsageFault when there is none."""
        with registry.locked() as data:
            entry = data["labs"].get(name)
        if entry is None:
            raise UsageFault(f"no lab is called {name!r} here")
        spec = LabSpec(name=name, dir=Path(entry["dir"]), users=0)
        try:
            saved = json.loads((spec.folder / "lab.json").read_text())
        except (OSError, ValueError):
            return cls(spec)  # killed before it wrote its record: down still works
        known = {one.name for one in dataclasses.fields(LabSpec)}  # another version may have more
        wish = {key: value for key, value in saved["spec"].items() if key in known}
        lab = cls(LabSpec(**(wish | {"dir": spec.dir})))
        lab.version, lab.release = saved["version"], (saved["release"][0], saved["release"][1])
        lab.notes, lab.commands = saved["notes"], saved["commands"]
        lab.daemons = {one["name"]: Proc(**one) for one in saved["daemons"]}
        return lab

    @classmethod
    def plan(cls, spec: LabSpec) -> "Lab":
        """Check a wish as ``up`` does and change nothing; raises as ``up`` does."""
        from slurm_coloc.lab import bringup

        lab = cls(spec)
        bringup.check(lab)
        return lab

    def save(self) -> None:
        """Write lab.json: the record that attach and down read."""
        record = {
            "spec": dataclasses.asdict(self.spec) | {"dir": str(self.dir)},
            "version": self.version,
            "release": list(self.release),
            "notes": self.notes,
            "commands": self.commands,
            "daemons": [dataclasses.asdict(one) for one in self.daemons.values()],
        }
        new = self.dir / "lab.json.new"
        new.touch(mode=0o600)  # it holds no secret, but only root acts on it
        new.write_text(json.dumps(record, indent=1))
        new.rename(self.dir / "lab.json")

    def down(self, grace_s: float = 5.0) -> None:
        """Stop this lab's processes and remove all of it. May be called twice."""
        from slurm_coloc.lab import teardown

        teardown.down(self, grace_s)

    # ---- daemons -------------------------------------------------------------------------

    def start(self, name: str) -> Proc:
        """Start a daemon by the command that bringup recorded; raises SlurmError."""
        how = self.commands[name]
        user = (how["user"][0], how["user"][1]) if how["user"] else None
        started = procs.spawn(name, how["argv"], self.log_file(name, ".out"), how["env"], user)
        if started is None:
            raise SlurmError(f"{name} died at once:\n{self.log_tail(name)}")
        self.daemons[name] = started
        self.save()
        return started

    def stop(self, name: str, grace_s: float = 10.0) -> None:
        """Stop one daemon (SIGTERM, SIGKILL after ``grace_s``)."""
        procs.stop([self.daemons[name]], grace_s)

    def restart(self, name: str) -> None:
        """Stop and start munged, slurmctld, slurmd-n1, ... or colocd and wait until it serves."""
        from slurm_coloc.lab import serving

        self.stop(name)
        self.start(name)
        serving.wait_daemon(self, name)

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
        return parts.tail(self.log_file(name), lines) or parts.tail(
            self.log_file(name, ".out"), lines
        )

    def logs(self, lines: int = 60) -> str:
        """The tails of all logs, for the report of a failed test."""
        return "\n".join(f"---- {name}\n{self.log_tail(name, lines)}" for name in self.daemons)

    def status(self) -> dict[str, Any]:
        """Daemons, nodes, GPUs and jobs, each as far as it answers."""
        from slurm_coloc.lab import report

        return report.status(self)

    def describe(self) -> dict[str, Any]:
        """The answer of `coloc lab up --json`."""
        return {
            "schema": 1,
            "name": self.spec.name,
            "dir": str(self.dir),
            "slurm_conf": f"{self.dir}/slurm.conf",
            "slurm_version": self.version,
            "nodes": self.spec.node_names,
            "gpus_per_node": self.spec.cards.gpus,
            "shards_per_gpu": self.spec.cards.shards_per_gpu(self.spec.shard_mib),
            "users": self.users,
            "env": self.env,
            "notes": self.notes,
        }

    def forget(self) -> None:
        """Remove the folder (the last step of down)."""
        shutil.rmtree(self.dir, ignore_errors=True)
        if self.dir.exists():
            raise SlurmError(
                f"{self.dir}: cannot be removed: {[p.name for p in self.dir.iterdir()]}"
            )


@dataclasses.dataclass(frozen=True)
class Daemon:
    """A handle on one daemon of a lab."""

    lab: Lab
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
        """SIGKILL, and wait until it is gone."""
        self.proc.signal(signal.SIGKILL)
        procs.wait_until(lambda: not self.proc.alive(), 10)

    def term(self) -> None:
        """An orderly end by SIGTERM."""
        self.lab.stop(self.name)

    def start(self) -> None:
        """Start it again and wait until it serves."""
        from slurm_coloc.lab import serving

        self.lab.start(self.name)
        serving.wait_daemon(self.lab, self.name)
