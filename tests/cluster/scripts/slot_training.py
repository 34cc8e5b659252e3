# SPDX-License-Identifier: Apache-2.0
"""A small training on the CPU whose end shows every number that was drawn: dropout, momentum,
shuffled batches with noise. ``slot_training.py CHECKPOINT WEIGHTS [CUTS]``: slow, so that a slot
never suffices, until it has been cut so often."""

import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from slurm_coloc.checkpoint import Checkpointer

EPOCHS, SAMPLES, BATCH = 4, 400, 10


def main(checkpoint: str, weights: str, cuts: int = 0) -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    x = torch.randn(SAMPLES, 16)
    data = TensorDataset(x, x.sum(1, keepdim=True).sin())
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    loader = DataLoader(data, BATCH, shuffle=True)
    slow = int(os.environ.get("SLURM_RESTART_COUNT", "0")) < cuts
    with Checkpointer(checkpoint, model=model, optimizer=optimizer, schedule=schedule) as run:
        print(f"begins at step {run.steps}", flush=True)
        for _ in run.epochs(EPOCHS):
            for inputs, wanted in run.batches(loader):
                noisy = inputs + 0.01 * torch.randn_like(inputs)
                loss = nn.functional.mse_loss(model(noisy), wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step()
                time.sleep(0.4 if slow else 0)
            schedule.step()
    torch.save(model.state_dict(), weights)
    print(f"ended at step {run.steps}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(word) for word in sys.argv[3:]))
