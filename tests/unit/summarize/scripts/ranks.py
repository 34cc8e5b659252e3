# SPDX-License-Identifier: Apache-2.0
"""A training as torchrun starts it: a process group, DistributedDataParallel, a sampler."""

import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.unit.summarize.models import Small

distributed.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
data = TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,)))
loader = DataLoader(data, 8, sampler=DistributedSampler(data))
model = DistributedDataParallel(Small().cuda(rank), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for images, labels in loader:
    loss = nn.functional.cross_entropy(model(images.cuda(rank)), labels.cuda(rank))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
