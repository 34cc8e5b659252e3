#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Submitted with --export=NONE: nothing of the login node's environment comes along.
# With pyxis the last line is
#   srun --container-image=nvcr.io/nvidia/pytorch:25.06-py3 --container-mounts="$PWD" python train.py
# ./contained stands for the runtime here: a new environment, a /tmp of its own where it may.
#SBATCH --job-name=container
#SBATCH --coloc=model.txt
#SBATCH --gpus=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=01:00:00

# shellcheck disable=SC2086 # TRAIN is words
srun ./contained ${TRAIN:-python3 train.py}
