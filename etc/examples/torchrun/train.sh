#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two GPUs, one for each of two tasks: so both can be shared. torchrun starts its processes itself,
# from the batch script, which sees both GPUs.
#SBATCH --job-name=torchrun
#SBATCH --coloc=model.txt
#SBATCH --coloc-optimizer=adamw
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=01:00:00

${TRAIN:-torchrun --standalone --nproc-per-node="$SLURM_GPUS_ON_NODE" train.py}
