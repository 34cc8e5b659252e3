# SPDX-License-Identifier: Apache-2.0
"""What ended jobs used, in slurmdbd as jobstats keeps it, read by the real reportseff."""

import base64
import gzip
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.core.slurm.job import mark_in
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, until
from tests.cluster.test_order import no_accounting

pytestmark = pytest.mark.skipif(bool(no_accounting()), reason=no_accounting() or "-")
WANTED: dict[str, dict[str, object]] = {"metrics": {"job_summaries": True}}
MIB = 2**20


def comment(lab: Lab, job_id: int) -> str:
    """A job's AdminComment in slurmdbd."""
    words = ["sacct", "-X", "-n", "-P", "--format=AdminComment", f"--jobs={job_id}"]
    return lab.run(words).stdout.strip()


def read(text: str) -> dict[str, Any]:
    """The summary in a comment, as its readers take it: all behind its prefix."""
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(text[4:])))
    return found


@pytest.mark.needs_slurm("24.11", "sacctmgr of 22.05 writes a comment in lower case")
@pytest.mark.timeout(240)
def test_each_sharer_has_its_own_figures(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(accounting=True, settings=WANTED, users=2)
    me, other = desk(lab, 190), desk(lab, 190, user=1)
    small = me.submit("--mem=50", wrap=me.train(memory_mib=2000, smact=0.2, work_s=12))
    large = me.submit("--mem=50", wrap=me.train(memory_mib=3000, smact=0.4, work_s=12))
    theirs = other.submit("--mem=50", wrap=other.train(memory_mib=2000, smact=0.2, work_s=12))
    tasks = me.submit(
        "--mem=50", "--array=0-1", wrap=me.train(memory_mib=2000, smact=0.1, work_s=12)
    )
    plain = lab.sbatch("--gres=gpu:1", wrap="sleep 1", user=me.user)
    for job_id in (small, large, theirs, plain):
        lab.wait(job_id, "COMPLETED", 90)
    ours = (small, large, theirs)
    until(
        lambda: all(comment(lab, job_id).startswith("JS1:") for job_id in ours),
        60,
        "slurmdbd has the summaries",
        each_s=2.0,
    )
    until(
        lambda: [line[:4] for line in comment(lab, tasks).splitlines()] == ["JS1:"] * 2,
        60,
        "and those of an array's tasks",
        each_s=2.0,
    )
    assert comment(lab, plain) == "", "a job without --coloc keeps its comment"
    assert all(mark_in(comment(lab, job_id)) for job_id in ours), "the marks are still there"
    for job_id, peak_mib in ((small, 2000), (large, 3000), (theirs, 2000)):
        found = read(comment(lab, job_id))
        (node,) = found["nodes"].values()
        assert found["gpus"] == 1 and found["total_time"] >= 10
        run = (
            me.explain(job_id)["runs"][0] if job_id != theirs else other.explain(job_id)["runs"][0]
        )
        assert node["gpu_total_memory"]["0"] == run["share_mib"] * MIB
        assert peak_mib <= node["gpu_used_memory"]["0"] / MIB <= peak_mib + 800
        assert 0 < node["gpu_utilization"]["0"] <= 100
        assert node["cpus"] >= 1 and 0 < node["used_memory"] <= node["total_memory"]
    shown = {job: busy(lab, job) for job in (small, large)}
    assert shown[large] > shown[small], "each sharer's own part"


def busy(lab: Lab, job_id: int) -> float:
    """GPUEff of reportseff."""
    program = shutil.which("reportseff", path=str(Path(sys.executable).parent))
    assert program
    words = [program, "--no-color", "--parsable", "--format=JobID,State,GPUEff,GPUMem", str(job_id)]
    title, row = lab.run(words).stdout.strip().splitlines()
    assert title.split("|") == ["JobID", "State", "GPUEff", "GPUMem"], title
    name, state, used, memory = row.split("|")
    assert (name, state) == (str(job_id), "COMPLETED") and 0 < float(memory.rstrip("%")) <= 100
    return float(used.rstrip("%"))
