# SPDX-License-Identifier: Apache-2.0
"""What scripts really do inside a rewritten job: steps that ask for the GPU again, launchers."""

import shutil

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, shards

STEPS = (
    "srun",
    "srun -n1 --gres=gpu:1",
    "srun --gpus=1",
    "srun --gpus-per-node=1",
    "srun --gpus-per-task=1 -n1",
)
ASKED = (
    ("--gpus=1",),
    ("--gpus-per-node=1",),
    ("--gres=gpu:1",),
    ("--gpus-per-task=1", "-n1"),
    ("--gpus=1", "--cpus-per-gpu=2"),
    ("--gpus=1", "--mem-per-gpu=100"),
    ("--gres=gpu:1", "--export=NONE"),
)


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_steps_that_ask_for_the_gpu_again_run(lab: Lab, asked: tuple[str, ...]) -> None:
    me = desk(lab, 100)
    srun = shutil.which("srun")
    lines = [
        f"{step.replace('srun', str(srun), 1)} /bin/echo step-{n}" for n, step in enumerate(STEPS)
    ]
    script = "#!/bin/bash\nset -e\n" + "\n".join(lines) + "\n"
    memory = () if "--mem-per-gpu=100" in asked else ("--mem=100",)
    job_id = me.submit(*memory, *asked, script=script)
    assert 0 < shards(lab.job(job_id)) < 39
    job = lab.wait(job_id, ("COMPLETED", "FAILED"), 60)
    text = lab.output(job_id)
    assert job["JobState"] == "COMPLETED", text
    assert [f"step-{n}" in text for n in range(len(STEPS))] == [True] * len(STEPS)


def test_a_step_that_asks_for_two_gpus_is_refused_by_slurm(lab: Lab) -> None:
    me = desk(lab, 100)
    job_id = me.submit("--mem=100", wrap="srun --gres=gpu:2 /bin/echo never")
    lab.wait(job_id, "FAILED", 60)
    assert "never" not in lab.output(job_id)


def test_a_multi_process_launcher_runs(lab: Lab) -> None:
    """Python's own multiprocessing stands for torchrun: several processes on the one GPU."""
    me = desk(lab, 100)
    code = (
        "import multiprocessing, os\n"
        "def rank(n): return os.environ['CUDA_VISIBLE_DEVICES']\n"
        "with multiprocessing.get_context('spawn').Pool(3) as pool:\n"
        "    print('ranks see', sorted(set(pool.map(rank, range(3)))))\n"
    )
    path = lab.home(me.user) / "launch.py"
    path.write_text(
        "if __name__ != '__main__':\n    import os\n"
        + code.replace("with ", "if __name__ == '__main__':\n  with ").replace(
            "    print", "      print"
        )
    )
    path.chmod(0o644)
    job_id = me.submit("--mem=500", "--gpus=1", wrap=f"srun /usr/bin/python3 {path}")
    lab.wait(job_id, ("COMPLETED", "FAILED"), 60)
    assert "ranks see ['" in lab.output(job_id), lab.output(job_id)


def test_torchrun_runs(lab: Lab) -> None:
    torchrun = shutil.which("torchrun")
    if torchrun is None:
        pytest.skip("torch is not installed here")
    me = desk(lab, 100)
    if lab.run(["/bin/sh", "-c", f"{torchrun} --help"], user=me.user, check=False).returncode:
        pytest.skip(f"{torchrun} cannot be run by other users")
    path = lab.home(me.user) / "ddp.py"
    path.write_text(
        "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"
    )
    path.chmod(0o644)
    job_id = me.submit("--mem=2000", "--gpus=1", wrap=f"{torchrun} --nproc-per-node=2 {path}")
    lab.wait(job_id, ("COMPLETED", "FAILED"), 120)
    assert "rank 1 of 2" in lab.output(job_id)
