# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training by torchrun: one process a GPU, each with a whole model.

python train.py --summary > model.txt     of one process, with the batch of one process
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

BATCH = 256  # of one process


def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)
    )


def main() -> None:
    if "--summary" in sys.argv:
        from torchinfo import summary

        print(summary(model(), (BATCH, 784), verbose=0))
        return
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    net = nn.parallel.DistributedDataParallel(
        model().to(device), device_ids=[local] if cuda else None
    )
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(10):
        x = torch.randn(BATCH, 784, device=device)
        y = torch.randint(10, (BATCH,), device=device)
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} trained, loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
