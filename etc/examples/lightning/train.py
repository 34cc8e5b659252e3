# SPDX-License-Identifier: Apache-2.0
"""A classifier by Lightning's Trainer, one process on one GPU.

python train.py --summary > model.txt
"""

import sys

import lightning
import torch
from torch import nn

BATCH = 512


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    model = Classifier()
    if "--summary" in sys.argv:
        from torchinfo import summary

        print(summary(model, (BATCH, 784), verbose=0))
        return
    data = torch.utils.data.TensorDataset(
        torch.randn(4 * BATCH, 784), torch.randint(10, (4 * BATCH,))
    )
    trainer = lightning.Trainer(
        max_epochs=1, devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=BATCH))
    print(f"trained on {trainer.strategy.root_device}")


if __name__ == "__main__":
    main()
