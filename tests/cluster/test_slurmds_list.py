# SPDX-License-Identifier: Apache-2.0
"""Asking slurmd for its list of GPUs leaves a running slurmd and the jobs that begin alone.

`slurmd -G` looks at the steps in SlurmdSpoolDir as slurmd does at its start. It takes a step that
is about to listen on its socket for a dead one and removes the job's script, so that a job of any
user ended with exit code 2 (seen on 24.11: one of about a thousand starts).
"""

import socket
from pathlib import Path

import pytest

from slurm_coloc.adapters import slurmd
from slurm_coloc.lab.lab import Lab

BATCH = 0xFFFFFFFB  # the step number of a batch script
JOB = 77_777


@pytest.mark.smoke
def test_a_step_that_does_not_listen_yet_keeps_its_script(lab: Lab) -> None:
    conf = lab.dir / "slurm.conf"
    spool, log = lab.dir / "nodes/n1/spool", lab.dir / "log/slurmd-n1.log"
    script = spool / f"job{JOB}/slurm_script"
    step = spool / f"n1_{JOB}.{BATCH}"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    with socket.socket(socket.AF_UNIX) as begins:
        begins.bind(str(step))  # as slurmstepd does before it listens
        before = log.read_bytes()
        found = slurmd.gpus_of_slurmd({}, "n1", conf)
        after = log.read_bytes()
    there = script.exists(), step.exists()
    for path in (step, script):
        path.unlink(missing_ok=True)
    if script.parent.exists():
        script.parent.rmdir()
    assert [one.files for one in found] == [("/dev/nvidia0",), ("/dev/nvidia1",)]
    assert there == (True, True)
    assert after == before  # slurmd's own log


@pytest.mark.smoke
def test_relative_includes_and_gres_conf_are_read(lab: Lab, tmp_path: Path) -> None:
    """slurm.conf in parts, one of them by a relative name: the list is the same."""
    whole = (lab.dir / "slurm.conf").read_text().splitlines()
    nodes = [line for line in whole if line.startswith("NodeName=")]
    (tmp_path / "nodes.conf").write_text("\n".join(nodes) + "\n")
    rest = [line for line in whole if not line.startswith("NodeName=")]
    conf = tmp_path / "slurm.conf"
    conf.write_text("\n".join(["Include nodes.conf", *rest]) + "\n")
    for name in ("gres.conf", "cgroup.conf", "plugstack.conf"):
        if (lab.dir / name).exists():
            (tmp_path / name).write_text((lab.dir / name).read_text())
    before = sorted(tmp_path.iterdir())
    told = slurmd.gres_counts({}, "n1", conf)
    assert told == slurmd.gres_counts({}, "n1", lab.dir / "slurm.conf") != {}
    assert sorted(tmp_path.iterdir()) == before
