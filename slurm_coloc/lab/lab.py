# SPDX-License-Identifier: Apache-2.0
"""A private one-machine Slurm with emulated GPUs, from `coloc lab up` to `coloc lab down`.

Everything lies below one folder. Accounts and device nodes, which lie elsewhere, are in the
registry, so that `coloc lab down` removes them also after a lab that was killed.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

from slurm_coloc.errors import SlurmError, UsageFault
from slurm_coloc.lab import bringup, parts, procs, registry
from slurm_coloc.lab.daemons import Daemons
from slurm_coloc.lab.spec import LabSpec


class Lab(Daemons):
    """One lab. Make it with ``Lab.up(spec)``, find a running one with ``Lab.attach``."""

    @classmethod
    def up(cls, spec: LabSpec) -> Self:
        """Bring a lab up, or leave nothing behind.

        Raises UsageFault (no root, a specification that cannot be met, a lab of this name is up) or
        SlurmError (Slurm missing, or a daemon failed: its log's tail is in the message).
        """
        lab = cls(spec)
        programs = bringup.check(lab)
        cls._remove_dead(spec.name)
        ports = bringup.claim(lab)
        try:
            bringup.bring_up(lab, programs, ports)
        except BaseException:
            lab.down(grace_s=2.0)
            raise
        return lab

    @classmethod
    def plan(cls, spec: LabSpec) -> Self:
        """Check a specification as ``up`` does and change nothing; raises as ``up`` does."""
        lab = cls(spec)
        bringup.check(lab)
        return lab

    @classmethod
    def attach(cls, name: str = "lab") -> Self:
        """The lab of this name, alive or not; raises UsageFault when there is none."""
        with registry.locked() as data:
            entry = data["labs"].get(name)
        if entry is None:
            raise UsageFault(f"no lab is called {name!r} here")
        lab = cls(LabSpec(name=name, dir=Path(entry["dir"]), users=0))
        try:
            lab.load()
        except (OSError, ValueError):
            pass  # killed before it wrote its record: down still works
        return lab

    @classmethod
    def _remove_dead(cls, name: str) -> None:
        """Take away the remains of a lab of this name whose daemons are all dead."""
        try:
            old = cls.attach(name)
        except UsageFault:
            return
        if old.daemons and not any(one.alive() for one in old.daemons.values()):
            old.down()

    def down(self, grace_s: float = 5.0) -> None:
        """Stop this lab's processes and no others, and remove its folder, accounts and devices.

        May be called on a lab that is half up, half down or gone. Raises SlurmError when something
        of it could not be removed.
        """
        with registry.locked() as data:
            entry = data["labs"].get(self.spec.name)
        if entry is None:
            return
        # colocd first: it must not act on jobs that end because the lab does.
        for kinds in ("colocd", "agent-", "slurm", ("munged", "mariadbd")):
            stopped = [one for one in self.daemons.values() if one.name.startswith(kinds)]
            procs.stop(stopped, grace_s)
        uids = frozenset(u for name in entry["users"] if (u := parts.uid_of(name)) is not None)
        self._end_leftovers(uids)
        _unmount_below(self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)
        if self.dir.exists():
            left = [path.name for path in self.dir.iterdir()]
            raise SlurmError(f"{self.dir}: cannot be removed: {left}")
        for name in entry["users"]:
            parts.remove_user(name)
        with registry.locked() as data:
            gone = data["labs"].pop(self.spec.name, None)
            registry.drop_devices(data, gone["devices"] if gone else [])

    def _end_leftovers(self, uids: frozenset[int]) -> None:
        """Kill job steps and what jobs left; again while killing brings new ones to light."""
        left: list[procs.Proc] = []

        def none_left() -> bool:
            left[:] = procs.leftovers(self.dir, uids)
            procs.stop(left, 0.0)
            return not left

        if not procs.wait_until(none_left, 10.0):
            names = ", ".join(f"{one.name} {one.pid}" for one in left)
            raise SlurmError(f"processes of lab {self.spec.name} do not end: {names}")

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

    def status(self) -> dict[str, Any]:
        """The answer of `coloc lab status --json`; a part that does not answer is null."""
        daemons = {
            name: {"pid": proc.pid, "alive": proc.alive()} for name, proc in self.daemons.items()
        }
        return {
            "schema": 1,
            "name": self.spec.name,
            "dir": str(self.dir),
            "slurm_version": self.version,
            "alive": bool(daemons) and all(one["alive"] for one in daemons.values()),
            "daemons": daemons,
            "nodes": self._nodes(),
            "gpus": {node: self._gpus(node) for node in self.spec.node_names},
            "jobs": self._jobs(),
        }

    def _ctld_dead(self) -> bool:
        """Whether slurmctld is dead: its commands would hang for a long time."""
        ctld = self.daemons.get("slurmctld")
        return ctld is None or not ctld.alive()

    def _nodes(self) -> list[dict[str, str]] | None:
        if self._ctld_dead():
            return None
        try:
            text = self.run(["sinfo", "-h", "-N", "-o", "%N %T %C %G"], timeout=15, cwd="/").stdout
        except (SlurmError, OSError):
            return None
        rows = [line.split(None, 3) for line in text.splitlines()]
        return [dict(zip(("node", "state", "cpus", "gres"), row, strict=False)) for row in rows]

    def _gpus(self, node: str) -> Any:
        argv = [f"{self.dir}/bin/coloc-emu", "show", f"{self.dir}/nodes/{node}/ledger", "--json"]
        try:
            return json.loads(self.run(argv, timeout=15, cwd="/").stdout)
        except (SlurmError, OSError, ValueError):
            return None

    def _jobs(self) -> list[dict[str, str]] | None:
        if self._ctld_dead():
            return None
        try:
            jobs = self.jobs()
        except (SlurmError, OSError):
            return None
        keys = ("JobId", "UserId", "JobState", "Reason", "NodeList", "TresPerNode", "AdminComment")
        return [{key: job[key] for key in keys if key in job} for job in jobs]


def _unmount_below(folder: Path) -> None:
    """The folders of MPS daemons whose jobs' Epilogs did not run are file systems of their own."""
    for line in Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines():
        place = Path(line.split()[1])
        if place.is_relative_to(folder):
            subprocess.run(["/bin/umount", "-l", place], check=False, stderr=subprocess.DEVNULL)
