# SPDX-License-Identifier: Apache-2.0
"""A sweep of Hydra as one job array: python3 train.py --multirun lr=0.1,0.01,0.001"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

HERE = Path(__file__).resolve().parent


@hydra.main(version_base=None, config_path=".", config_name="config")
def main(config: DictConfig) -> float:
    program = os.environ.get("TRAIN", f"{sys.executable} {HERE}/../plain/train.py --lr={config.lr}")
    print(f"lr {config.lr} on GPU {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
    subprocess.run(shlex.split(program), check=True)
    return float(config.lr)


if __name__ == "__main__":
    main()
