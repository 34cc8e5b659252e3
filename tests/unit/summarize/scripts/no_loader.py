# SPDX-License-Identifier: Apache-2.0
"""Batches made in the loop: their size cannot be changed from outside."""

import torch

model = torch.nn.Linear(32, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
