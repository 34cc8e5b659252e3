#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record what real Slurm answers to the commands that slurm_coloc.adapters.slurm.commands reads.

    .venv/bin/python tests/contract/record.py        (root; brings a lab of its own up and down)

writes tests/contract/slurm/<release>/*.txt, and data/*.json where the release has the layout. The
jobs cover the states that the parsers must tell apart; which job is which stands in jobs.json. Host
names and kernels are replaced and the JSON's core maps dropped, nothing else.

    tests/contract/record.py --sacct CONTAINER

writes sacct.txt from the last hour of a cluster with slurmdbd that a container belongs to
(docker/cluster): its jobs should have a requeued one, an array and a failed one.
"""

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from slurm_coloc.adapters.slurm.commands.accounting import ENDED, SACCT, SACCT_DELIMITER
from slurm_coloc.adapters.slurm.commands.parse import JOB
from slurm_coloc.adapters.slurm.commands.use import NEED
from slurm_coloc.core.slurm.releases import JSON_LAYOUTS
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec

HERE = Path(__file__).resolve().parent / "slurm"
EXTRA = """\
PartitionName=short Nodes=n1 MaxTime=UNLIMITED DefCpuPerGPU=4 DefMemPerGPU=8192 State=UP
PartitionName=closed Nodes=n2 MaxTime=30 State=DOWN
"""
HOSTILE = "x JobState=FAILED Reason=None"


def _until(lab: Lab, job: int, *states: str) -> None:
    # Not by lab.wait: it reads `scontrol show job`, which a hostile job name can forge.
    for _ in range(300):
        told = lab.run(["squeue", "-h", "--states=all", f"--jobs={job}", "-o", "%T"]).stdout.split()
        if told and told[0] in states:
            return
        time.sleep(0.2)
    raise SystemExit(f"job {job} is {told}, not {states}")


def spec(name: str) -> LabSpec:
    """The lab that ``situation`` needs."""
    return LabSpec(name=name, nodes=2, users=1, coloc=False, slurm_conf_extra=EXTRA)


def situation(lab: Lab, user: str) -> dict[str, int]:
    """Jobs in every state that matters; name -> job id."""

    def sbatch(*args: str, wrap: str = "sleep 600") -> int:
        return lab.sbatch("--output=/dev/null", *args, wrap=wrap, user=user)

    jobs: dict[str, int] = {}
    jobs["shards"] = sbatch("--gres=shard:12", "-wn1", "-c2", f"--job-name={HOSTILE}",
                            f"--comment={HOSTILE}", "--mem=3G")  # fmt: skip
    _until(lab, jobs["shards"], "RUNNING")
    jobs["big"] = sbatch("--gres=shard:39", "-wn1", "--mem=5G")
    jobs["whole"] = sbatch("--gpus=1", "-wn2", "-c4")
    _until(lab, jobs["big"], "RUNNING")
    _until(lab, jobs["whole"], "RUNNING")
    jobs["waits"] = sbatch("--gres=shard:39", "-wn1")
    jobs["closed"] = sbatch("--partition=closed", "--gres=shard:1")
    jobs["held"] = sbatch("--hold", "--gres=shard:3")
    jobs["depends"] = sbatch(f"--dependency=afterok:{jobs['shards']}")
    jobs["array"] = sbatch("--array=1-3%1")
    jobs["completed"] = sbatch(wrap="true")
    jobs["failed"] = sbatch("--gres=shard:1", wrap="exit 3")
    jobs["killed"] = sbatch(wrap="kill -9 $$")
    begun = lab.home(user) / "begun.txt"
    jobs["cancelled"] = sbatch(f"--output={begun}", wrap="echo begun; exec sleep 600")
    # Cancelled while slurmstepd starts it, it ends with 137; with a shell around the sleep, now and
    # then with 143. pyslurm shows these as 9 and 15.
    while not (begun.exists() and begun.read_text()):
        time.sleep(0.1)
    lab.run(["scancel", str(jobs["cancelled"])])
    for name, state in (
        ("completed", "COMPLETED"),
        ("failed", "FAILED"),
        ("killed", "FAILED"),
        ("cancelled", "CANCELLED"),
    ):
        _until(lab, jobs[name], state)
    jobs["requeued"] = sbatch("--requeue", "--gres=shard:2")
    _until(lab, jobs["requeued"], "RUNNING")
    comment = "AdminComment=a site's own; coloc:1:0123456789ab:collocate:fits:2"
    lab.run(["scontrol", "update", f"JobId={jobs['requeued']}", comment])
    lab.run(["scontrol", "requeuehold", str(jobs["requeued"])])
    _until(lab, jobs["requeued"], "PENDING")
    epilog = lab.dir / "hooks" / "epilog"
    epilog.write_text("#!/bin/bash\nexec sleep 60\n")
    for name in ("completing", "again"):
        jobs[name] = sbatch("--requeue", "--gres=shard:1", wrap="exit 3")
    for name in ("completing", "again"):
        _until(lab, jobs[name], "COMPLETING")
    lab.run(["scontrol", "requeuehold", str(jobs["again"])])
    time.sleep(2)  # one scheduling round: Slurm then shows its reasons
    return jobs


def scrub(text: str) -> str:
    """Without this machine's name and kernel."""
    host = socket.gethostname()
    text = re.sub(rf"\b{re.escape(host)}\b", "head", text)
    text = re.sub(rf"\b{re.escape(host.split('.')[0])}\b", "head", text)
    text = re.sub(r'"operating_system": "[^"]*"', '"operating_system": "Linux"', text)
    return re.sub(r"OS=Linux.*?(?= RealMemory=)", "OS=Linux", text)


def record_data(lab: Lab, folder: Path, layout: str) -> None:
    """The same in JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = {
        "jobs": ["squeue", "--states=all"],
        "nodes": ["scontrol", "show", "node", "-d"],
    }
    for name, argv in asked.items():
        answer = json.loads(scrub(lab.run([*argv, f"--json={layout}"]).stdout))
        for job in answer.get("jobs", []):
            for node in (job["job_resources"] or {}).get("nodes", {}).get("allocation", []):
                node.pop("sockets")
        (folder / f"{name}.json").write_text(json.dumps(answer, indent=1) + "\n")


def record_sacct(container: str) -> None:
    """Ended jobs of a cluster that is there already."""

    def run(*argv: str) -> str:
        environment = ["-e", "SLURM_TIME_FORMAT=%s"]
        argv = ("docker", "exec", *environment, container, *argv)
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    release = ".".join(run("sacct", "--version").split()[-1].split(".")[:2])
    text = run(
        *SACCT, f"--delimiter={SACCT_DELIMITER}", "--starttime=now-1hour", "--endtime=now", ENDED
    )
    (HERE / release / "sacct.txt").write_text(text)


def main() -> int:
    if sys.argv[1:2] == ["--sacct"]:
        record_sacct(sys.argv[2])
        return 0
    lab = Lab.up(spec("record"))
    try:
        jobs = situation(lab, lab.users[0])
        release = ".".join(lab.version.split()[-1].split(".")[:2])
        folder = HERE / release
        folder.mkdir(parents=True, exist_ok=True)
        asked = {
            "config": ["scontrol", "show", "config"],
            "nodes": ["scontrol", "show", "node", "-d", "-o"],
            "partitions": ["scontrol", "show", "partition", "-o"],
            "jobs": ["squeue", "--noheader", "--states=all", "--array", f"--Format={JOB.form}"],
            "ping": ["scontrol", "ping"],
            "needs": ["squeue", "--noheader", "--states=all", "--array", f"--Format={NEED.form}"],
        }
        for name, argv in asked.items():
            (folder / f"{name}.txt").write_text(scrub(lab.run(argv).stdout))
        unknown = lab.run([*asked["jobs"], "--jobs=99999"], check=False)
        told = {"returncode": unknown.returncode, "stderr": unknown.stderr, "out": unknown.stdout}
        (folder / "unknown-job.json").write_text(json.dumps(told, indent=1) + "\n")
        jobs_file = {"slurm": lab.version, "jobs": jobs}
        (folder / "jobs.json").write_text(json.dumps(jobs_file, indent=1) + "\n")
        for first, layout in JSON_LAYOUTS.items():
            if first <= lab.release:
                record_data(lab, folder / "data" / layout, layout)
        print(folder)
    finally:
        lab.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
