#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Lightning wants srun, and as many tasks a node as devices=.
#SBATCH --job-name=lightning
#SBATCH --coloc=model.txt
#SBATCH --coloc-optimizer=adamw
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=01:00:00

# shellcheck disable=SC2086 # TRAIN is words
srun ${TRAIN:-python3 train.py}
