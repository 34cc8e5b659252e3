#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=plain
#SBATCH --coloc=model.txt
#SBATCH --gpus=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=01:00:00

# shellcheck disable=SC2086 # TRAIN is words
srun ${TRAIN:-python3 train.py}
