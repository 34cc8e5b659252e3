# SPDX-License-Identifier: Apache-2.0
"""A classifier of three linear layers on random data; any PyTorch program stands here.

python train.py --summary > model.txt     on a login node, without a GPU
"""

import argparse

import torch
from torch import nn

BATCH = 512


def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 2048),
        nn.BatchNorm1d(2048),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, 10),
    )


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--summary", action="store_true")
    args.add_argument("--steps", type=int, default=20)
    args.add_argument("--lr", type=float, default=1e-3)
    given = args.parse_args()
    if given.summary:
        from torchinfo import summary

        print(summary(model(), (BATCH, 784), verbose=0))
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = model().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=given.lr)
    for step in range(given.steps):
        x = torch.randn(BATCH, 784, device=device)
        y = torch.randint(10, (BATCH,), device=device)
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    print(f"trained on {device}")


if __name__ == "__main__":
    main()
