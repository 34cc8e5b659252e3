# SPDX-License-Identifier: Apache-2.0
"""A GPU that is not fit for a job, on a real Slurm: the job waits, and nothing else happens.

Tests have models of their own: what one run measured is remembered.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, until

GATE = {"gate": {"wait_s": 5.0, "exclude_s": 30.0}}


@contextlib.contextmanager
def foreigner(lab: Lab, memory_mib: int, node: str = "n1") -> Iterator[int]:
    """A training on GPU 0 of ``node`` that Slurm knows nothing of; its pid."""
    env = {
        "PATH": os.environ["PATH"],
        "COLOC_EMU_LEDGER": str(lab.dir / "nodes" / node / "ledger"),
        "CUDA_VISIBLE_DEVICES": "0",
    }
    program = str(lab.dir / "bin" / "emu-train")
    options = [
        "--memory-mib",
        str(memory_mib),
        "--smact",
        "0.1",
        "--work-s",
        "900",
        "--ramp-s",
        "0",
    ]
    quiet = subprocess.DEVNULL
    with subprocess.Popen([program, *options], env=env, user=65534, stdout=quiet) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def story(me: Desk, job_id: int, kind: str = "launch") -> str:
    return "\n".join(one["text"] for one in me.explain(job_id)["story"] if one["kind"] == kind)


def undrained(lab: Lab) -> None:
    assert "DRAIN" not in lab.run(["scontrol", "show", "node", "-o"]).stdout.upper()


def test_it_waits_until_the_foreign_process_has_gone(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(settings=GATE, nodes=1)
    me = desk(lab, 151)
    with foreigner(lab, 3000) as pid:
        job_id = me.submit("--mem=50", wrap=me.train(memory_mib=2000, smact=0.1, work_s=1))
        until(lambda: "put back" in story(me, job_id), 30, "it is put back")
        assert f"process {pid} (emu-train) of uid 65534 with 2.9 GiB" in story(me, job_id)
        until(lambda: lab.job(job_id)["JobState"] == "PENDING", 60, "it waits")
        until(lambda: lab.job(job_id)["Priority"] != "0", 20, "not held")
        assert lab.output(job_id) == ""  # its script has not begun
        told = lab.run(["coloc", "doctor"], check=False).stdout
        assert "unfit-gpus" in told and "jobs put back in the last hour: n1 (" in told
    lab.wait(job_id, "COMPLETED", 90)
    runs = me.explain(job_id)["runs"]
    assert runs[0]["outcome"] == "put-back"
    assert runs[-1]["outcome"] == "completed" or runs[-1]["open"]
    undrained(lab)


def test_it_goes_to_another_node(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(settings=GATE, nodes=2)
    me = desk(lab, 151)
    with foreigner(lab, 3000):
        job_id = me.submit("--mem=50", wrap=me.train(memory_mib=2000, smact=0.1, work_s=30))
        until(lambda: "put back" in story(me, job_id), 30, "it is put back")
        lab.wait(job_id, "RUNNING", 60)
        assert lab.job(job_id)["NodeList"] == "n2"
    undrained(lab)


def test_where_nothing_would_hold_it_it_waits(make_lab: Callable[..., Lab]) -> None:
    settings = {**GATE, "gate": {**GATE["gate"], "require_fence": True}}
    lab = make_lab(settings=settings, nodes=1)
    first, second = desk(lab, 160, user=0), desk(lab, 161, user=1)
    one = first.submit("--mem=50", wrap=first.train(memory_mib=3000, smact=0.1, work_s=600))
    until(lambda: "step " in lab.output(one), 60, "the first trains")
    other = second.submit("--mem=50", wrap=second.train(memory_mib=3000, smact=0.1, work_s=1))
    why = "nothing would hold its memory: another user has MPS on this GPU"
    until(lambda: why in story(second, other), 60, "the other is put back")
    lab.run(["scancel", str(one)])
    lab.wait(other, "COMPLETED", 120)
    assert "(MPS)" in lab.output(other)
    undrained(lab)
