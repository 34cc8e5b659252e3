# SPDX-License-Identifier: Apache-2.0
"""Ways in and out of slurm.conf that must drain no node and lose no submission."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_coloc.lab import parts
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, known, until

ETC = parts.SOURCES / "etc"
SHARE = ("--gpus=1", "--mem=100")


def lines_of(name: str) -> str:
    """What an admin takes over of a file in etc/, without its comments."""
    text = (ETC / name).read_text()
    return "".join(f"{line}\n" for line in text.splitlines() if line and line[0] != "#")


def state(lab: Lab) -> str:
    return lab.run(["sinfo", "-h", "-n", "n1", "-o", "%T %E"]).stdout.strip()


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_a_node_without_our_files_is_not_drained(make_lab: Callable[..., Lab]) -> None:
    """slurm.conf and plugstack.conf have all of our lines, and no host has our files."""
    assert not Path("/usr/libexec/slurm-coloc").exists(), "slurm-coloc is installed here"
    lab = make_lab(coloc=False, emulator=False, users=1)
    shutil.copy(ETC / "job_submit.lua", lab.dir / "job_submit.lua")
    conf = lab.dir / "slurm.conf"
    own = re.sub(r"^(Prolog|Epilog)=.*\n", "", conf.read_text(), flags=re.MULTILINE)
    conf.write_text(own + lines_of("slurm-coloc.conf"))
    (lab.dir / "plugstack.conf").write_text(lines_of("plugstack.conf"))
    for name in ("slurmd-n1", "slurmctld"):
        lab.restart(name)
    job_id = lab.sbatch("--gres=gpu:1", wrap="true", user=lab.users[0])
    lab.wait(job_id, "COMPLETED")
    until(lambda: state(lab).split()[0] == "idle", 20, "the node is idle again")


BROKEN = {
    "missing": (None, 0o755),
    "not to be run": ("#!/bin/sh\n", 0o644),
    "failing": ("#!/bin/sh\nexit 3\n", 0o755),
    "killed": ("#!/bin/sh\nkill -9 $$\n", 0o755),
    "without its program": ("#!/bin/sh\nCOLOC_PROGRAM=/nowhere/coloc exec {hook}\n", 0o755),
    "of an older coloc": (
        "#!/bin/sh\nCOLOC_PROGRAM={dir}/old-coloc exec {hook}\n",
        0o755,
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.timeout(120)
def test_hooks_that_fail(lab: Lab, how: str) -> None:
    """The job runs, says that it ran without our setup, and the node stays up."""
    me = desk(lab)
    text, mode = BROKEN[how]
    (lab.dir / "old-coloc").write_text("#!/bin/sh\necho no such command >&2; exit 2\n")
    (lab.dir / "old-coloc").chmod(0o755)
    saved = {path: path.read_bytes() for path in (lab.dir / "hooks").glob("coloc-*")}
    try:
        for path in saved:
            path.unlink()
            if text is not None:
                hook = parts.SOURCES / path.name.removeprefix("coloc-") / path.name
                path.write_text(text.format(hook=hook, dir=lab.dir))
                path.chmod(mode)
        job_id = me.submit(*SHARE, wrap="echo it runs")
        lab.wait(job_id, "COMPLETED")
        until(lambda: state(lab).split()[0] == "idle", 20, "the node is idle again")
    finally:
        for path, was in saved.items():
            path.write_bytes(was)
            path.chmod(0o755)
    output = lab.output(job_id)
    assert "it runs" in output
    assert "coloc: not fenced and not measured, this node was not set up for the job: " in output
    until(lambda: known(lab, "explain", str(job_id), user=me.user), 30, "colocd has seen the job")
    until(
        lambda: me.explain(job_id)["setup"].startswith("n1 told colocd nothing"),
        60,  # no hook tells of the job's end: colocd looks by itself each 30 s
        "it says that the node told nothing",
    )


@pytest.mark.smoke
@pytest.mark.timeout(120)
def test_the_plugin_starts_the_hooks(lab: Lab) -> None:
    """slurm.conf of a lab has neither Prolog nor Epilog."""
    me = desk(lab)
    conf = lab.run(["scontrol", "show", "config"]).stdout
    assert not re.search(r"^(Prolog|Epilog)(\[0\])?\s*= /", conf, re.MULTILINE)
    job_id = me.submit(*SHARE, wrap="true")
    lab.wait(job_id, "COMPLETED")
    # Where an earlier job's server is still there it says what that server allows, too.
    assert re.search(r"GiB for this job \(MPS[;)]", lab.output(job_id))
    until(lambda: me.explain(job_id)["runs"][-1]["method"] == "mps", 30, "the Epilog has reported")
    assert me.explain(job_id)["setup"] == ""


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_shards_that_are_gone_cost_no_submission(make_lab: Callable[..., Lab]) -> None:
    """colocd saw the cluster a moment before: the next share would be refused by Slurm."""
    lab = make_lab(users=1, settings={"daemon": {"refresh_s": 600.0}})
    me = desk(lab)
    first = me.submit(*SHARE, wrap="true")
    assert "shard" in lab.job(first)["TresPerNode"]
    lab.wait(first, "COMPLETED")
    for name in ("slurm.conf", "gres.conf"):
        path = lab.dir / name
        text = path.read_text().replace("GresTypes=gpu,shard", "GresTypes=gpu")
        path.write_text(re.sub(r",shard:\d+|.*Name=shard.*\n", "", text))
    lab.restart("slurmctld")
    job_id = me.submit(*SHARE, wrap="true")
    shown = lab.job(job_id)
    assert "shard" not in shown.get("TresPerNode", "")
    lab.restart("slurmd-n1")
    lab.wait(job_id, "COMPLETED")


@pytest.mark.smoke
@pytest.mark.timeout(120)
def test_a_log_is_appended_to_for_coloc_jobs_alone(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(users=1, slurm_conf_extra="JobFileAppend=0")
    me = desk(lab)
    log = lab.home(me.user) / "log"
    told = {}
    for name, extra in (
        ("plain", None),
        ("coloc", ()),
        ("chosen", ("--open-mode=truncate",)),
    ):
        log.write_text("before\n")
        log.chmod(0o666)
        words = ("-o", str(log), "--gpus=1", "--mem=100")
        if extra is None:
            job_id = lab.sbatch(*words, wrap="echo after", user=me.user)
        else:
            job_id = me.submit(*words, *extra, wrap="echo after")
        lab.wait(job_id, "COMPLETED")
        told[name] = "before" in log.read_text()
    assert told == {"plain": False, "coloc": True, "chosen": False}
