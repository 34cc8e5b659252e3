# SPDX-License-Identifier: Apache-2.0
"""Four hosts with systemd and Debian's own Slurm, and an admin's commands on them.

A controller, a login node, two GPU nodes with emulated cards; commands are counted and timed."""

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.rollout.hosts import Done, HostError, until

CONTROLLER, LOGIN, NODES = "controller", "login", ("n1", "n2")
HOSTS = (CONTROLLER, LOGIN, *NODES)
#: Debian's slurm.conf of a small site, as its admin has it before slurm-coloc
SITE = """\
# The site's own slurm.conf, with a comment that must survive.
ClusterName=site
SlurmctldHost=controller
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
MpiDefault=none
ReturnToService=2
GresTypes=gpu
NodeName=n[1-2] CPUs=16 RealMemory=32000 Gres=gpu:a100:2 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=1-00:00:00 DefMemPerCPU=100 State=UP
"""
GRES = "AutoDetect=off\nName=gpu Type=a100 File=/dev/nvidia[0-1]\n"
# The emulated driver writes its ledger, which a real one does not.
AGENT = "[Service]\nReadWritePaths=/var/lib/coloc-emu\nDevicePolicy=auto\n"
#: what a package may leave: the system's own records of it
NOT_OURS = (
    "/proc", "/sys", "/dev", "/run", "/tmp", "/var/log", "/var/cache", "/var/lib/dpkg",
    "/var/lib/apt", "/var/lib/systemd", "/var/lib/slurm", "/home", "/root", "/var/lib/coloc-emu",
    "/var/tmp",
)  # fmt: skip


@dataclass
class Hosts:
    """The hosts of one project; ``given``: the guide's commands as (host, command, seconds)."""

    project: str
    given: list[tuple[str, str, float]] = field(default_factory=list)

    def run(self, host: str, script: str, *, user: str = "root", check: bool = True) -> Done:
        """Lines of a shell on a host; HostError where they fail."""
        words = ["docker", "exec", "-i", "-u", user, "-w", "/root" if user == "root" else "/home"]
        done = subprocess.run(
            [*words, f"{self.project}-{host}", "bash", "-uc", script],
            capture_output=True, text=True, errors="replace", timeout=400, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            said = f"{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
            raise HostError(f"{host}: {script}: exit {done.returncode}: {said}")
        return done

    def guide(self, host: str, command: str, code: int = 0) -> str:
        """A command of the guide, as it stands there; what it prints."""
        begin = time.monotonic()
        done = self.run(host, command, check=False)
        self.given.append((host, command, time.monotonic() - begin))
        if done.returncode != code:
            said = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            raise HostError(f"{host}: {command}: exit {done.returncode}, not {code}: {said}")
        return done.stdout + done.stderr

    def put(self, host: str, path: str, text: str) -> None:
        """Write a file as root."""
        script = f"mkdir -p $(dirname {path}) && cat >{path}"
        words = ["docker", "exec", "-i", f"{self.project}-{host}", "sh", "-c", script]
        subprocess.run(words, input=text, text=True, check=True)

    def read(self, host: str, path: str) -> str:
        """A file's text."""
        return self.run(host, f"cat {path}").stdout

    # before slurm-coloc

    def site(self) -> None:
        """Slurm installed and running, as a site has it before."""
        for host in HOSTS:
            until(lambda h=host: self._booted(h), 90, f"{host} has booted")  # type: ignore[misc]
        key = self.run(CONTROLLER, "head -c 128 /dev/urandom | base64 -w0").stdout
        for host in HOSTS:
            self.put(host, "/etc/munge/munge.key", key)
            self.run(host, """
                chown munge: /etc/munge/munge.key && chmod 400 /etc/munge/munge.key
                systemctl restart munge
                install -d -o slurm -g slurm /var/log/slurm /var/lib/slurm/slurmctld
                install -d /var/lib/slurm/slurmd
                for user in ada ben; do install -d -m 750 -o $user -g $user /home/$user; done
            """)  # fmt: skip
            self.put(host, "/etc/slurm/slurm.conf", SITE)
            self.put(host, "/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n")
        for host in NODES:
            self.put(host, "/etc/slurm/gres.conf", GRES)
            self.put(host, "/etc/systemd/system/slurm-coloc-agent.service.d/emulated.conf", AGENT)
            self.run(host, f"""
                install -d /var/lib/coloc-emu
                coloc-emu init --machine 2xa100-40gb --uuid-seed {host} /var/lib/coloc-emu/ledger
                chmod 666 /var/lib/coloc-emu/ledger
                for minor in 0 1; do mknod -m 666 /dev/nvidia$minor c 195 $minor; done
                systemctl daemon-reload && systemctl enable --now slurmd
            """)  # fmt: skip
        self.run(CONTROLLER, "systemctl enable --now slurmctld")
        until(lambda: self.states() == {"idle"}, 60, f"the nodes are idle: {self.states()}")

    def _booted(self, host: str) -> bool:
        done = self.run(host, "systemctl is-system-running", check=False)
        return done.stdout.strip() in ("running", "degraded")

    def states(self) -> set[str]:
        """States of the nodes."""
        return set(self.run(CONTROLLER, "sinfo -h -N -o %T", check=False).stdout.split())

    def files(self, host: str) -> set[str]:
        """Every file that a package could have left."""
        prune = " -o ".join(f"-path {path}" for path in NOT_OURS)
        script = f"find / -xdev \\( {prune} \\) -prune -o -not -name '*.pyc' -print"
        return set(self.run(host, script, check=False).stdout.splitlines())

    # jobs

    def sbatch(self, words: str, script: str = "hostname", user: str = "ada") -> int:
        """Submit from the login node."""
        text = f"cd /home/{user} && printf '#!/bin/sh\\n{script}\\n' | sbatch --parsable {words}"
        return int(self.run(LOGIN, text, user=user).stdout.strip().splitlines()[-1])

    def job(self, job_id: int) -> dict[str, Any]:
        """A job as squeue shows it."""
        words = f"squeue --all --states=all --json --jobs={job_id}"
        return dict(json.loads(self.run(CONTROLLER, words).stdout)["jobs"][0])

    def wait(self, job_id: int, *states: str, limit_s: float = 90) -> None:
        """Until the job is in one of these states."""
        words = f"squeue -h --states=all --jobs={job_id} -o %T"

        def there() -> bool:
            return self.run(CONTROLLER, words, check=False).stdout.strip() in states

        until(there, limit_s, f"job {job_id} {states}")

    def ended(self, jobs: set[int]) -> bool:
        """Whether colocd has recorded that they completed."""
        runs = json.loads(self.run(CONTROLLER, "coloc history --json").stdout)["runs"]
        return jobs <= {run["job_id"] for run in runs if run["outcome"] == "completed"}

    def outcomes(self, job_id: int) -> list[str | None]:
        """How each of its runs ended, as colocd has it."""
        told = self.run(CONTROLLER, f"coloc explain --json {job_id}", check=False).stdout
        return [run["outcome"] for run in json.loads(told)["runs"]] if told else []

    def output(self, job_id: int, user: str = "ada") -> str:
        """What it wrote; the home is shared."""
        return self.run(LOGIN, f"cat /home/{user}/slurm-{job_id}.out").stdout

    def model(self) -> str:
        """The text of a summary."""
        etc = Path(__file__).resolve().parents[2] / "etc" / "examples"
        return (etc / "resnet50_torchinfo.txt").read_text()

    def logs(self) -> str:
        """The ends of all logs, for a failed test."""
        script = (
            "journalctl -q --no-pager -n 30 -u slurm-coloc -u slurm-coloc-agent -u slurmctld"
            " -u slurmd; tail -n 30 /var/log/slurm/*.log"
        )
        return "\n".join(f"---- {h}\n{self.run(h, script, check=False).stdout}" for h in HOSTS)
