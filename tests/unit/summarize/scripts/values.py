# SPDX-License-Identifier: Apache-2.0
"""Decides by values: it cannot run on fake tensors."""

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(32, 4)
optimizer = torch.optim.Rprop(model.parameters())
for (x,) in DataLoader(TensorDataset(torch.randn(64, 32)), batch_size=16):
    y = model(x)
    y[y > -1e9].sum().backward()
    optimizer.step()
