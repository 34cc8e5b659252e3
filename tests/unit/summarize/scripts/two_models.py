# SPDX-License-Identifier: Apache-2.0
"""Two models with an optimizer each in one step, the first layer of one frozen."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

made = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 784))
judge = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 1))
made[0].requires_grad_(False)
of_made = torch.optim.Adam([p for p in made.parameters() if p.requires_grad])
of_judge = torch.optim.Adam(judge.parameters())
loss = nn.BCEWithLogitsLoss()
for (real,) in DataLoader(TensorDataset(torch.randn(256, 784)), batch_size=32):
    ones = torch.ones(len(real), 1)
    fake = made(torch.randn(len(real), 16))
    of_judge.zero_grad()
    (loss(judge(real), ones) + loss(judge(fake.detach()), 0 * ones)).backward()
    of_judge.step()
    of_made.zero_grad()
    loss(judge(fake), ones).backward()
    of_made.step()
