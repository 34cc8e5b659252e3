# SPDX-License-Identifier: Apache-2.0
"""Submits a Python function by submitit; --coloc goes into slurm_additional_parameters."""

import os
import subprocess
import sys
from pathlib import Path

import submitit

HERE = Path(__file__).resolve().parent


def train(lr: float) -> str:
    """What runs on the GPU."""
    program = os.environ.get("TRAIN", f"{sys.executable} {HERE}/../plain/train.py --lr={lr}")
    subprocess.run(program.split(), check=True)
    return f"lr {lr} on GPU {os.environ['CUDA_VISIBLE_DEVICES']}"


def main() -> None:
    executor = submitit.SlurmExecutor(folder="log")
    executor.update_parameters(
        job_name="submitit",
        time=60,
        gpus_per_node=1,
        cpus_per_task=2,
        mem="4G",
        additional_parameters={"coloc": str(HERE / "model.txt")},
    )
    job = executor.submit(train, 1e-3)
    print("job", job.job_id, flush=True)
    print(job.result())


if __name__ == "__main__":
    main()
