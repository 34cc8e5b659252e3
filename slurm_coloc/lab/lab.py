# SPDX-License-Identifier: Apache-2.0
"""A private one-machine Slurm with emulated GPUs: its life from up to down, and its use in tests.

Everything lies below one folder; what lies elsewhere (accounts, device nodes) is in the registry,
so that `coloc lab down` removes it also after a lab that was killed.
"""

import dataclasses
import json
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slurm_coloc.errors import SlurmError, UsageFault
from slurm_coloc.lab import parts, procs, registry
from slurm_coloc.lab.procs import Proc
from slurm_coloc.lab.spec import LabSpec

Done = subprocess.CompletedProcess[str]


class Lab:
    """One lab. Make it with ``Lab.up(spec)``, find a running one with ``Lab.attach``."""

    def __init__(self, spec: LabSpec) -> None:
        self.spec = spec
        self.dir = spec.folder
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
        fields = saved["spec"] | {"dir": spec.dir}
        lab = cls(LabSpec(**fields))
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
        from slurm_coloc.lab import bringup

        self.stop(name)
        self.start(name)
        bringup.wait_daemon(self, name)

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

    # ---- use -----------------------------------------------------------------------------

    @property
    def users(self) -> list[str]:
        """The lab's accounts."""
        return self.spec.user_names

    @property
    def env(self) -> dict[str, str]:
        """What a shell needs to use this lab."""
        return {
            "SLURM_CONF": f"{self.dir}/slurm.conf",
            "COLOC_CONFIG": f"{self.dir}/coloc.toml",
            "PATH": f"{self.dir}/bin:{parts.SYSTEM_PATH}",
        }

    def home(self, user: str | None = None) -> Path:
        """The writable folder of a user (root without one): jobs run and log there."""
        return self.dir / "home" / (user or "root")

    def login_env(self, user: str | None = None) -> dict[str, str]:
        """A clean environment as after a login, plus the lab's."""
        name = user or "root"
        return {
            "HOME": str(self.home(user)),
            "USER": name,
            "LOGNAME": name,
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            **self.env,
        }

    def run(
        self,
        argv: list[str],
        user: str | None = None,
        check: bool = True,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        cwd: Path | str | None = None,
    ) -> Done:
        """Run a command as ``user`` (root without one) in that user's folder of the lab.

        ``env`` is laid over the clean login environment; ``timeout`` is in seconds. Raises
        SlurmError when ``check`` and it failed, or when it ran past the time.
        """
        who = pwd.getpwnam(user) if user else None
        try:
            done = subprocess.run(
                [str(word) for word in argv],
                input=input if input is not None else "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                env=self.login_env(user) | dict(env or {}),
                cwd=cwd or self.home(user),
                user=who.pw_uid if who else None,
                group=who.pw_gid if who else None,
                extra_groups=[] if who else None,
                check=False,
            )
        except subprocess.TimeoutExpired as err:
            raise SlurmError(f"{argv[0]} did not end within {timeout:g} s: {argv}") from err
        if check and done.returncode != 0:
            raise SlurmError(
                f"{' '.join(map(str, argv))} ended with {done.returncode}: "
                f"{(done.stderr or done.stdout).strip()[-2000:]}"
            )
        return done

    def sbatch(
        self,
        *args: str,
        script: str | None = None,
        wrap: str | None = None,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Submit a job and return its id: ``wrap`` one command, or ``script`` a whole text.

        Further ``args`` come before the script. Raises SlurmError when sbatch refuses.
        """
        tail = [f"--wrap={wrap}"] if wrap is not None else []
        done = self.run(
            ["sbatch", "--parsable", *args, *tail], user=user, env=env, input=script or ""
        )
        # the last line: a plugin may have spoken before
        return int(done.stdout.strip().splitlines()[-1].split(";")[0])

    def job(self, job_id: int) -> dict[str, str]:
        """`scontrol show job -o` as a dictionary; raises SlurmError when Slurm forgot the job."""
        text = self.run(["scontrol", "show", "job", "-d", "-o", str(job_id)]).stdout
        return fields(text.splitlines()[0])

    def jobs(self) -> list[dict[str, str]]:
        """All jobs that slurmctld still knows."""
        text = self.run(["scontrol", "show", "job", "-d", "-o"]).stdout
        return [fields(line) for line in text.splitlines() if line.startswith("JobId=")]

    def wait(
        self, job_id: int, states: str | Iterable[str] = "COMPLETED", timeout: float = 60
    ) -> dict[str, str]:
        """Poll until the job is in one of ``states`` and return it; SlurmError after ``timeout``.

        A state is one word of JobState, e.g. RUNNING, PENDING, COMPLETED, FAILED.
        """
        wanted = {states} if isinstance(states, str) else set(states)
        last: dict[str, str] = {}

        def there() -> bool:
            last.update(self.job(job_id))
            return last["JobState"] in wanted

        if not procs.wait_until(there, timeout, 0.1):
            shown = {k: last.get(k) for k in ("JobState", "Reason", "ExitCode", "TresPerNode")}
            raise SlurmError(
                f"job {job_id} is not {' or '.join(sorted(wanted))} after {timeout:g} s: {shown}"
            )
        return last

    def clear(self, timeout: float = 60) -> None:
        """End all jobs and wait until the nodes are empty and usable again.

        Cancelled and killed at once: a job that ignores SIGTERM would cost KillWait.
        """

        def empty() -> bool:
            ids = self.run(["squeue", "-h", "-o", "%A"]).stdout.split()
            if ids:
                self.run(["scancel", "-Q", *ids], check=False)
                self.run(["scancel", "-Q", "--full", "-s", "KILL", *ids], check=False)
            return not ids

        if not procs.wait_until(empty, timeout, 0.2):
            raise SlurmError(f"jobs do not end:\n{self.run(['squeue']).stdout}")
        for node in self.spec.node_names:
            if "drain" in self.run(["sinfo", "-h", "-n", node, "-o", "%T"]).stdout:
                self.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)

    def output(self, job_id: int) -> str:
        """What the job wrote to its standard output so far."""
        path = Path(self.job(job_id)["StdOut"])
        return path.read_text(errors="replace") if path.is_file() else ""

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
        from slurm_coloc.lab import bringup

        self.lab.start(self.name)
        bringup.wait_daemon(self.lab, self.name)


_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:/.]*)=")


def fields(line: str) -> dict[str, str]:
    """One line of `scontrol -o`; a value may hold blanks and '='.

    >>> fields("JobId=7 Comment=two words ReqTRES=cpu=1,mem=2M")
    {'JobId': '7', 'Comment': 'two words', 'ReqTRES': 'cpu=1,mem=2M'}
    """
    marks = list(_FIELD.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        found.setdefault(mark[1], line[mark.end() : end].strip())
    return found
