#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# While it runs, look into it:
#   srun --jobid=<jobid> --overlap --pty bash
#SBATCH --job-name=attach
#SBATCH --coloc=model.txt
#SBATCH --gpus=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=01:00:00

# shellcheck disable=SC2086 # TRAIN is words
srun --overlap ${TRAIN:-python3 train.py --steps=100000}
