#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# print(model) shows no shapes: batch size and length of the sequences are options.
#SBATCH --job-name=hf-trainer
#SBATCH --coloc=model.txt
#SBATCH --coloc-batch-size=8
#SBATCH --coloc-seq-len=128
#SBATCH --coloc-optimizer=adamw-fused
#SBATCH --gpus=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=01:00:00

# shellcheck disable=SC2086 # TRAIN is words
srun ${TRAIN:-python3 train.py}
