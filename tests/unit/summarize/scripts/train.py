# SPDX-License-Identifier: Apache-2.0
"""A training as users write them: CUDA where it is, workers, autocast, accumulation, files."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.unit.summarize.models import Small

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--fail", action="store_true")
given = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
assert device.type == "cuda", "the script shall take the way that it takes on a GPU"
data = TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,)))
loader = DataLoader(data, given.batch, num_workers=2, pin_memory=True, persistent_workers=True)
model = torch.compile(Small().to(device))
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda", enabled=given.amp)
try:
    for number, (images, labels) in enumerate(loader, 1):
        images, labels = images.to(device, non_blocking=True), labels.cuda()
        with torch.autocast("cuda", dtype=torch.float16, enabled=given.amp):
            output = model(images)
            loss = nn.functional.cross_entropy(output, labels) / given.accumulate
        if given.fail:
            output.view(-1, 7)
        scaler.scale(loss).backward()
        print("loss", loss.item(), (output.argmax(1) == labels).sum().item())
        if number % given.accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
finally:
    if not given.fail:
        Path("written.txt").write_text("after the step")
torch.save(model.state_dict(), "written.pt")
