# SPDX-License-Identifier: Apache-2.0
"""Three hosts with Slurm as its packages leave it, and the commands of an admin on them.

Each host has its own /etc/slurm. What `make install DESTDIR=/stage` and pip gave lies in /stage.
"""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Done = subprocess.CompletedProcess[str]
CONTROLLER, NODE, LOGIN = "controller", "node", "login"
HOSTS = (CONTROLLER, NODE, LOGIN)

SITE = """ClusterName=site
SlurmctldHost=controller
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmdDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
PriorityWeightPartition=1000
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1
MpiDefault=none
ReturnToService=2
GresTypes=gpu
NodeName=node CPUs=16 RealMemory=32000 Gres=gpu:a100:2 State=UNKNOWN
PartitionName=main Nodes=node Default=YES MaxTime=1-00:00:00 DefMemPerCPU=100 State=UP
"""
GPUS = "AutoDetect=off\nNodeName=node Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
SHARDS = "NodeName=node Name=shard Count=78\n"
OURS = "Gres=gpu:a100:2,shard:a100:78"
# Of the three ways to share natively the one that leaves the site's partition as it is.
TOML = """version = 1
[daemon]
refresh_s = 5.0
reconcile_s = 1.0
[mode]
default = "MODE"
[estimate]
time_limit_ms = 2940
[network]
listen = ":6824"
controllers = ["controller:6824"]
[sharing]
with = "anyone"
"""


class HostError(Exception):
    """A command on a host failed, or something did not come in time."""


def until(check: Callable[[], Any], limit_s: float = 60, what: str = "it") -> Any:
    """Poll ``check`` until it is true; its value. HostError after ``limit_s``."""
    end = time.monotonic() + limit_s
    while not (found := check()):
        if time.monotonic() > end:
            raise HostError(f"not within {limit_s:g} s: {what}")
        time.sleep(0.3)
    return found


@dataclass
class Hosts:
    """The hosts of one compose project. ``jobs``: what was submitted, for the last look."""

    project: str
    ids: dict[str, str] = field(default_factory=dict)
    jobs: list[int] = field(default_factory=list)

    @classmethod
    def find(cls, project: str) -> "Hosts":
        """The running hosts; HostError where one is missing."""
        found = cls(project)
        for host in HOSTS:
            words = [
                "docker",
                "ps",
                "-q",
                "--filter",
                f"label=com.docker.compose.project={project}",
            ]
            words += ["--filter", f"label=com.docker.compose.service={host}"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if not done.stdout.split():
                raise HostError(f"{project} has no host {host}: docker/rollout up")
            found.ids[host] = done.stdout.split()[0]
        ready = ("test", "-e", "/run/cluster/ready")
        for host in HOSTS:
            until(lambda h=host: found.ok(h, *ready), 90, f"{host} is up")  # type: ignore[misc]
        return found

    def run(
        self, host: str, *argv: str, user: str = "root", check: bool = True, text: str = ""
    ) -> Done:
        """A command on a host as a user; HostError where it fails."""
        words = [
            "docker",
            "exec",
            "-i",
            "-u",
            user,
            "-w",
            "/" if user == "root" else f"/home/{user}",
        ]
        done = subprocess.run(
            [*words, self.ids[host], *argv],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=180,
            check=False,
        )
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-1500:]
            raise HostError(f"{host}: {' '.join(argv)}: {done.returncode}: {said}")
        return done

    def ok(self, host: str, *argv: str) -> bool:
        """Whether a command succeeds."""
        return self.run(host, *argv, check=False).returncode == 0

    def sh(self, host: str, script: str) -> str:
        """Lines of a shell, as an admin would type them."""
        return self.run(host, "bash", "-euc", script).stdout

    def put(self, host: str, path: str, text: str) -> None:
        """Write a file as root."""
        self.run(host, "sh", "-c", 'mkdir -p "$(dirname "$1")"; cat >"$1"', "sh", path, text=text)

    def read(self, host: str, path: str) -> str:
        """A file's text."""
        return self.run(host, "cat", path).stdout

    def daemon(self, host: str, verb: str, name: str) -> None:
        """What systemctl does elsewhere (docker/node/daemon)."""
        self.run(host, "daemon", verb, name)

    # Slurm

    def clean(self) -> None:
        """The hosts as the packages leave them, with the site's own slurm.conf, and Slurm up."""
        for host in HOSTS:
            for name in ("agent", "colocd", "slurmd", "slurmctld"):
                self.run(host, "daemon", "stop", name, check=False)
            self.sh(
                host,
                """
                pkill -KILL -x emu-train || true
                rm -rf /etc/slurm/* /etc/slurm-coloc /opt/slurm-coloc /usr/bin/coloc
                rm -rf /usr/libexec/slurm-coloc /var/lib/slurm-coloc /run/slurm-coloc*
                rm -rf /var/spool/slurm-coloc /var/spool/slurmctld/* /var/spool/slurmd/*
                rm -f /usr/lib/*/slurm-wlm/coloc.so /var/log/slurm/* /home/*/slurm-*.out
                """,
            )
            self.put(host, "/etc/slurm/slurm.conf", SITE)
            self.put(host, "/etc/slurm/cgroup.conf", self._cgroup())
        self.put(NODE, "/etc/slurm/gres.conf", GPUS)
        self.jobs.clear()
        self.daemon(CONTROLLER, "start", "slurmctld")
        self.daemon(NODE, "start", "slurmd")
        until(lambda: self.state() == "idle", 60, "the node is idle")

    def _cgroup(self) -> str:
        version = self.run(CONTROLLER, "slurmctld", "-V").stdout.split()[-1]
        new = tuple(int(part) for part in version.split(".")[:2]) >= (23, 11)
        return "CgroupPlugin=disabled\n" if new else "CgroupAutomount=no\n"

    def state(self) -> str:
        """The node's state and, where it is drained, why."""
        return self.run(
            CONTROLLER, "sinfo", "-h", "-n", "node", "-o", "%T", check=False
        ).stdout.strip()

    def reason(self) -> str:
        """Why the node is drained."""
        return self.run(CONTROLLER, "sinfo", "-h", "-R", "-o", "%E", check=False).stdout.strip()

    def sbatch(self, *words: str, user: str = "ada", script: str = "#!/bin/sh\nhostname\n") -> int:
        """Submit from the login node; HostError where sbatch refuses."""
        done = self.run(LOGIN, "sbatch", "--parsable", *words, user=user, text=script)
        self.jobs.append(int(done.stdout.strip().splitlines()[-1].split(";")[0]))
        return self.jobs[-1]

    def plain(self) -> None:
        """Somebody who never heard of slurm-coloc submits jobs, whatever goes on."""
        for words in (("--gres=gpu:1",), ("-n1",)):
            self.sbatch(*words, user="ben")

    def job(self, job_id: int) -> dict[str, Any]:
        """A job as squeue shows it."""
        words = ("squeue", "--all", "--states=all", "--json", f"--jobs={job_id}")
        found = json.loads(self.run(CONTROLLER, *words).stdout)["jobs"]
        assert isinstance(found, list) and found, job_id
        return dict(found[0])

    def job_state(self, job_id: int) -> str:
        """One word of JobState; of an array with tasks in several states one of each."""
        words = ("squeue", "-h", "--states=all", f"--jobs={job_id}", "-o", "%T")
        shown = self.run(CONTROLLER, *words, check=False).stdout
        return " ".join(sorted(set(shown.split())))

    def wait(self, job_id: int, *states: str, limit_s: float = 90) -> None:
        """Until the job is in one of these states (COMPLETED)."""
        wanted = states or ("COMPLETED",)
        until(lambda: self.job_state(job_id) in wanted, limit_s, f"job {job_id} {wanted}: {self}")

    def output(self, job_id: int, user: str = "ada") -> str:
        """What it wrote."""
        return self.run(LOGIN, "cat", f"/home/{user}/slurm-{job_id}.out", check=False).stdout

    def all_ran(self, limit_s: float = 180) -> None:
        """Every job that was ever submitted has run to its end."""
        for job_id in self.jobs:
            self.wait(job_id, limit_s=limit_s)

    # slurm-coloc

    def rollout(self, file: str = "") -> tuple[int, dict[str, dict[str, str]]]:
        """`coloc doctor --rollout`: its exit code, and the checks by name."""
        words = ("--slurm-conf", file) if file else ()
        done = self.run(CONTROLLER, "coloc", "doctor", "--rollout", "--json", *words, check=False)
        assert done.returncode in (0, 1), done.stderr
        rows = json.loads(done.stdout)["checks"]
        return done.returncode, {row["check"]: row for row in rows}

    def next_step(self) -> str:
        """The step that it names."""
        return self.rollout()[1]["rollout-next"]["found"]

    def status(self) -> dict[str, Any]:
        """What colocd says of itself; {} where it does not answer."""
        ask = (
            "import json, pathlib\n"
            "from slurm_coloc.flow.client.request import call_socket\n"
            "path = pathlib.Path('/run/slurm-coloc/colocd.sock')\n"
            "print(json.dumps(call_socket(path, 'status')))"
        )
        done = self.run(CONTROLLER, "/opt/slurm-coloc/bin/python", "-c", ask, check=False)
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {}

    def logs(self) -> str:
        """The ends of all logs, for a failed test."""
        parts = []
        for host in HOSTS:
            words = ("sh", "-c", "tail -n 40 /var/log/slurm/*.out /var/log/slurm/*.log")
            parts.append(f"---- {host}\n{self.run(host, *words, check=False).stdout}")
        return "\n".join(parts)


def with_ours(conf: str) -> str:
    """The site's slurm.conf with the lines of etc/slurm-coloc.conf, and shards on the node."""
    etc = Path(__file__).resolve().parents[2] / "etc" / "slurm-coloc.conf"
    ours = [line for line in etc.read_text().splitlines() if line and line[0] != "#"]
    names = {line.split("=")[0] for line in ours}
    kept = [line for line in conf.splitlines() if line.split("=")[0] not in names]
    text = "\n".join([*ours, *kept]) + "\n"
    return text.replace("Gres=gpu:a100:2", OURS)
