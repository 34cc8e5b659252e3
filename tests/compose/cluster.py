# SPDX-License-Identifier: Apache-2.0
"""The Docker cluster in the hands of the tests: everything goes through `docker exec`.

Whose cluster: $SLURM (the Debian suite, default trixie) and $NAME, as for docker/cluster.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.harness.answers import as_documented

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = "/usr/share/slurm-coloc/examples"
Done = subprocess.CompletedProcess[str]
# proctrack/linuxproc follows parents: it can miss a training whose job is ended at its very start,
# and the gate then rightly keeps all later jobs off that GPU.
END_TRAININGS = """
for comm in $(grep -lsx emu-train /proc/[0-9]*/comm); do
  process=${comm%/comm}
  kill -KILL "${process#/proc/}" || true
done
"""
ASK = """
import json, pathlib
from slurm_coloc.flow.client.request import call_socket
print(json.dumps(call_socket(pathlib.Path("/run/slurm-coloc/colocd.sock"), "status")))
"""


class ClusterError(Exception):
    """A command on the cluster failed, or something did not come in time."""


@dataclass(frozen=True)
class Job:
    """One job as `squeue --json` shows it (scontrol's text can be forged by a job's name)."""

    id: int
    state: str
    reason: str
    node: str
    partition: str
    account: str
    qos: str
    restarts: int
    priority: int
    tres_per_node: str
    #: the use of each device by this job, one text a node: "shard:8(8/39,0/39,...)"
    gres: tuple[str, ...]
    #: seconds since 1970; 0 = not set
    start: int
    end: int

    @property
    def shards(self) -> int:
        """Shards a node that the job asks for; 0 where there are none."""
        found = re.search(r"shard(?::\w+)?[:=](\d+)", self.tres_per_node)
        return int(found[1]) if found else 0

    @property
    def device(self) -> int | None:
        """Index of the one device that the job is on; None where it is on none or on several."""
        used = [index for text in self.gres for index in _devices(text)]
        return used[0] if len(used) == 1 else None


@dataclass(frozen=True)
class Device:
    """One GPU of a node as `scontrol show node -d` shows it."""

    shards_used: int
    shards: int
    whole: bool


def _devices(text: str) -> list[int]:
    """Devices in a job's GRES detail: "shard:8(8/39,0/39)" or "gpu:a100:1(IDX:0-1,3)"."""
    inside = text[text.index("(") + 1 : text.rindex(")")] if "(" in text else ""
    if inside.startswith("IDX:"):
        return _indices(inside.removeprefix("IDX:"))
    return [i for i, part in enumerate(inside.split(",")) if re.match(r"[1-9]\d*/", part)]


def _indices(text: str) -> list[int]:
    """ "0-1,3" as numbers; "N/A" as none."""
    out: list[int] = []
    for part in text.split(","):
        if found := re.fullmatch(r"(\d+)(?:-(\d+))?", part):
            out += range(int(found[1]), int(found[2] or found[1]) + 1)
    return out


def _plain(value: Any) -> Any:
    """A number or a state of Slurm's JSON, which are objects and lists since 23.02."""
    if isinstance(value, dict) and "number" in value:
        return value["number"] if value.get("set", True) else 0
    if isinstance(value, list):
        return value[0] if value else ""
    return value


def pause(began: float) -> None:
    """Between two looks: each is a `docker exec`, a quarter of a second of a core."""
    time.sleep(0.2 if time.monotonic() - began < 2 else 0.5)


class Cluster:
    """A running cluster; make it with ``Cluster.find()``."""

    users = ("ada", "ben")
    accounts: Mapping[str, str] = {"ada": "physics", "ben": "biology"}
    nodes = ("g1", "g2")

    def __init__(self, project: str) -> None:
        self.project = project
        self._ids: dict[str, str] = {}

    @classmethod
    def find(cls) -> "Cluster":
        """The cluster that is up; ClusterError with the reason where there is none."""
        name = os.environ.get("NAME") or "slurm-coloc"
        suite = os.environ.get("SLURM") or "trixie"
        cluster = cls(f"{name}-{suite}")
        try:
            cluster.container("login")
        except (OSError, subprocess.SubprocessError) as err:
            raise ClusterError(f"no Docker engine answers ({err})") from err
        return cluster

    def container(self, machine: str) -> str:
        """Id of a machine's container; ClusterError where it does not run."""
        if machine not in self._ids:
            labels = {"project": self.project, "service": machine}
            words = [f"--filter=label=com.docker.compose.{k}={v}" for k, v in labels.items()]
            done = subprocess.run(
                ["docker", "ps", "--quiet", *words], capture_output=True, text=True, timeout=30
            )
            if done.returncode != 0:
                raise ClusterError(f"no Docker engine answers: {done.stderr.strip()[-200:]}")
            if not done.stdout.split():
                raise ClusterError(
                    f"{self.project} is not up: make cluster-up SLURM={self.project.split('-')[-1]}"
                )
            self._ids[machine] = done.stdout.split()[0]
        return self._ids[machine]

    @cached_property
    def version(self) -> str:
        """Slurm's version as found, e.g. 24.11.5."""
        return self.run(["sbatch", "-V"]).stdout.split()[1]

    @property
    def release(self) -> tuple[int, int]:
        """(major, minor), e.g. (24, 11)."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    # ---- commands ------------------------------------------------------------------------

    def run(
        self,
        argv: list[str],
        user: str | None = None,
        on: str = "login",
        check: bool = True,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
    ) -> Done:
        """Run a command on a machine as ``user`` (root without one), in that user's home.

        Raises ClusterError when ``check`` and it failed, or when it ran past ``timeout`` seconds.
        """
        words = ["docker", "exec", "-i", "-w", f"/home/{user}" if user else "/root"]
        words += ["-u", user] if user else []
        for key, value in {"LANG": "C.UTF-8", "USER": user or "root", **(env or {})}.items():
            words += ["-e", f"{key}={value}"]
        try:
            done = subprocess.run(
                [*words, self.container(on), *map(str, argv)],
                input=input or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as err:
            raise ClusterError(f"on {on}: not within {timeout:g} s: {argv}") from err
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise ClusterError(f"on {on}: {' '.join(map(str, argv))}: {done.returncode}: {said}")
        return done

    def coloc(self, *args: str, user: str | None = None, on: str = "login") -> dict[str, Any]:
        """`coloc ... --json`."""
        answer = json.loads(self.run(["coloc", *args, "--json"], user=user, on=on).stdout)
        assert isinstance(answer, dict)
        return as_documented(args, answer)

    def status(self, on: str = "controller") -> dict[str, Any]:
        """What a controller's colocd says of itself; {} where there is none."""
        done = self.run(["/opt/slurm-coloc/bin/python", "-c", ASK], on=on, check=False)
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
        assert isinstance(answer, dict)
        return answer

    def daemon(self, on: str, verb: str, name: str) -> None:
        """`daemon start|stop|restart|kill NAME` on a machine (docker/node/daemon)."""
        self.run(["daemon", verb, name], on=on)

    def put(self, path: str, text: str, user: str | None = None, on: str = "login") -> None:
        """Write a file as ``user``."""
        self.run(["sh", "-c", 'cat >"$1"', "sh", path], user=user, on=on, input=text)

    # ---- jobs ----------------------------------------------------------------------------

    def sbatch(
        self,
        *args: str,
        wrap: str | None = None,
        script: str | None = None,
        user: str | None = "ada",
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Submit from the login node and return the id; ClusterError where sbatch refuses."""
        tail = [f"--wrap={wrap}"] if wrap is not None else []
        done = self.run(
            ["sbatch", "--parsable", *args, *tail], user=user, input=script or "", env=env
        )
        return int(done.stdout.strip().splitlines()[-1].split(";")[0])

    def jobs(self) -> dict[int, Job]:
        """Every job that slurmctld remembers, by id."""
        text = self.run(["squeue", "--all", "--states=all", "--json"], on="controller").stdout
        return {job.id: job for job in map(_job, json.loads(text)["jobs"])}

    def job(self, job_id: int) -> Job:
        """One job; ClusterError when slurmctld has forgotten it."""
        words = ["squeue", "--all", "--states=all", "--json", f"--jobs={job_id}"]
        found = json.loads(self.run(words, on="controller").stdout)["jobs"]
        for one in map(_job, found):
            if one.id == job_id:
                return one
        raise ClusterError(f"slurmctld knows no job {job_id}")

    def wait(self, job_id: int, *states: str, timeout: float = 90) -> Job:
        """Poll until the job is in one of ``states`` (COMPLETED without any) and return it."""
        wanted = states or ("COMPLETED",)
        began = time.monotonic()
        while (job := self.job(job_id)).state not in wanted:
            if time.monotonic() > began + timeout:
                raise ClusterError(f"job is not {' or '.join(wanted)} after {timeout:g} s: {job}")
            pause(began)
        return job

    def output(self, job_id: int) -> str:
        """What a user's job wrote so far to the file that sbatch gives it by default.

        Not by the path that Slurm tells: 22.05 tells none, 26.05 one with %j in it.
        """
        words = ["sh", "-c", 'cat /home/*/slurm-"$1".out', "sh", str(job_id)]
        return self.run(words, check=False).stdout

    def sacct(self, job_id: int, *columns: str, runs: bool = True) -> list[dict[str, str]]:
        """What slurmdbd has of a job, one entry a run (``runs``: with those before a requeue).

        ``columns`` are sacct's own names and must not name what a user chooses (JobName, Comment).
        """
        wanted = columns or ("JobID", "State", "Account", "Restarts", "AllocTRES", "ExitCode")
        words = ["sacct", "-n", "-P", "-X", "-j", str(job_id), "-o", ",".join(wanted)]
        lines = self.run([*words, *(["-D"] if runs else [])], on="controller").stdout.splitlines()
        return [dict(zip(wanted, line.split("|"), strict=True)) for line in lines]

    def use(self, node: str) -> list[Device]:
        """The devices of a node in their order, from `scontrol show node -d` (24.11 and later)."""
        text = self.run(["scontrol", "show", "node", "-d", node], on="controller").stdout
        used = re.search(r"GresUsed=(\S+)", text)
        shards = re.search(r"shard[^,(]*\(([\d/,-]+)\)", used[1]) if used else None
        if used is None or shards is None:
            raise ClusterError(f"no use per device here: {text}")
        whole = re.search(r"gpu[^,(]*\(IDX:([^)]*)\)", used[1])
        gone = set(_indices(whole[1]) if whole else [])
        # 26.05 writes "-/39" where the GPU is taken whole, 24.11 "0/39".
        pairs = [part.replace("-", "0").split("/") for part in shards[1].split(",")]
        return [Device(int(a), int(b), i in gone) for i, (a, b) in enumerate(pairs)]

    # ---- keeping order -------------------------------------------------------------------

    def until(self, check: Callable[[], Any], timeout: float = 60, what: str = "it") -> Any:
        """Poll ``check`` until it is true; its value. ClusterError after ``timeout`` seconds."""
        began = time.monotonic()
        while not (found := check()):
            if time.monotonic() > began + timeout:
                raise ClusterError(f"not within {timeout:g} s: {what}")
            pause(began)
        return found

    def clear(self, timeout: float = 90) -> None:
        """End all jobs and wait until the nodes are usable again."""

        def empty() -> bool:
            ids = self.run(["squeue", "--all", "-h", "-o", "%A"], on="controller").stdout.split()
            if ids:
                self.run(["scancel", "-Q", *ids], on="controller", check=False)
                self.run(["scancel", "-Q", "-f", "-s", "KILL", *ids], on="controller", check=False)
            return not ids

        self.until(empty, timeout, "jobs end")
        for node in self.nodes:
            self.run(["sh", "-c", END_TRAININGS], on=node)
            state = self.run(["sinfo", "-h", "-N", "-n", node, "-o", "%T"], on="controller").stdout
            if "drain" in state or "down" in state:
                words = ["scontrol", "update", f"NodeName={node}", "State=RESUME"]
                self.run(words, on="controller", check=False)

    def configure(self, **values: str) -> None:
        """Set keys of the shared slurm.conf and start slurmctld and the slurmds again.

        A restart and not a reconfigure: SelectType and its like are read at the start only.
        """
        for key, value in values.items():
            done = self.run(["grep", "-q", f"^{key}=", "/etc/slurm/slurm.conf"], check=False)
            edit = f"s|^{key}=.*|{key}={value}|" if done.returncode == 0 else f"1a {key}={value}"
            self.run(["sed", "-i", edit, "/etc/slurm/slurm.conf"], on="controller")
        self.daemon("controller", "restart", "slurmctld")
        ping = ["scontrol", "ping"]
        self.until(lambda: " is UP" in self.run(ping, check=False).stdout, 60, "slurmctld answers")
        for node in self.nodes:
            self.daemon(node, "restart", "slurmd")
        self.until(self.idle, 60, "the nodes are there again")
        began_s = time.time()
        seen = lambda: (self.status().get("seen_s") or 0.0) > began_s  # noqa: E731
        self.until(seen, 60, "colocd has seen it")

    @contextmanager
    def selecting(self, parameter: str) -> Iterator[None]:
        """The cluster with one more of SelectTypeParameters, emptied and as before afterwards."""
        text = self.run(["scontrol", "show", "config"], on="controller").stdout
        [before] = [
            line.split("=")[1].strip() for line in text.splitlines() if "SelectTypeP" in line
        ]
        self.configure(SelectTypeParameters=f"{before},{parameter}")
        try:
            yield
        finally:
            self.clear()
            self.configure(SelectTypeParameters=before)

    def idle(self) -> bool:
        """Whether every node is up and without a job."""
        states = self.run(["sinfo", "-h", "-N", "-o", "%T"], on="controller").stdout.split()
        return set(states) == {"idle"}

    def logs(self) -> str:
        """The ends of all logs, for the report of a failed test."""
        parts = []
        for machine in ("controller", "g1", "g2", "dbd", "backup"):
            words = ["sh", "-c", "tail -n 40 /var/log/slurm/*.out /var/log/slurm/*.log"]
            with suppress(ClusterError):  # there is a backup in one test only
                parts.append(f"---- {machine}\n{self.run(words, on=machine, check=False).stdout}")
        return "\n".join(parts)


def _job(raw: dict[str, Any]) -> Job:
    """One job of `squeue --json`, of 22.05 to 26.05."""

    def get(key: str) -> Any:
        return _plain(raw.get(key))

    return Job(
        id=int(get("job_id")),
        state=str(get("job_state")),
        reason=str(get("state_reason") or ""),
        node=str(get("nodes") or ""),
        partition=str(get("partition") or ""),
        account=str(get("account") or ""),
        qos=str(get("qos") or ""),
        restarts=int(get("restart_cnt") or 0),
        priority=int(get("priority") or 0),
        tres_per_node=str(get("tres_per_node") or ""),
        gres=tuple(raw.get("gres_detail") or ()),
        start=int(get("start_time") or 0),
        end=int(get("end_time") or 0),
    )
