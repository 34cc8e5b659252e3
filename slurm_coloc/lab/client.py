# SPDX-License-Identifier: Apache-2.0
"""Using a lab as its users do: commands as root or as a user, jobs submitted and waited for."""

import pwd
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import parts, procs
from slurm_coloc.lab.spec import LabSpec

Done = subprocess.CompletedProcess[str]


class Client:
    """The side of a lab that its users see."""

    def __init__(self, spec: LabSpec) -> None:
        self.spec = spec
        self.dir = spec.folder

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
            "PATH": f"{self.dir}/bin:{parts.path_of(self.spec.slurm)}",
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
        words = [str(word) for word in argv]
        if user:
            # subprocess' own user= copies this process first: 3 ms of a core more than the program.
            who = pwd.getpwnam(user)
            ids = ("--reuid", str(who.pw_uid), "--regid", str(who.pw_gid), "--clear-groups")
            words = ["setpriv", *ids, "--", *words]
        try:
            done = subprocess.run(
                words,
                input=input if input is not None else "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                env=self.login_env(user) | dict(env or {}),
                cwd=cwd or self.home(user),
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
