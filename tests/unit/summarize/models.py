# SPDX-License-Identifier: Apache-2.0
"""Models for `coloc summarize`: called as tests.unit.summarize.models:NAME. Needs torch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Small(nn.Module):
    """Convolutions, a norm, a residual, a head."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.body = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = x + torch.relu(self.body(x))
        return self.head(x.mean((2, 3)))


def small() -> nn.Module:
    return Small()


def example() -> tuple[nn.Module, torch.Tensor]:
    return Small().cuda(), torch.randn(8, 3, 32, 32, device="cuda")


def frozen() -> tuple[nn.Module, torch.Tensor]:
    """Only the head trains."""
    model = Small()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("head"))
    return model, torch.randn(8, 3, 32, 32)


class WithKeywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 64)
        self.norm = nn.LayerNorm(64)
        self.out = nn.Linear(64, 100, bias=False)
        self.out.weight = self.words.weight  # tied

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids)) * mask[..., None]
        return self.out(x.softmax(-1))


class Job:
    """The protocol of slurm_coloc.summarize.jobs."""

    batch_size = 4
    seq_len = 16

    def __init__(self) -> None:
        self.model = WithKeywords()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def inputs(self, batch_size: int) -> dict[str, torch.Tensor]:
        shape = (batch_size, self.seq_len)
        return {"ids": torch.zeros(shape, dtype=torch.long), "mask": torch.ones(shape)}

    def loss(self, output: torch.Tensor) -> torch.Tensor:
        return output.square().mean()


class Contrastive(nn.Module):
    """Its logits are batch by batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.net(x)
        return y @ y.t()


def contrastive() -> tuple[nn.Module, torch.Tensor]:
    return Contrastive(), torch.randn(8, 32)


class Odd(nn.Module):
    """Another step at another batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(x.shape[0] // 4):
            x = x + self.net(x).sum()
        return x


def odd() -> tuple[nn.Module, torch.Tensor]:
    return Odd(), torch.randn(8, 32)


def attention() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Linear(32, 32), layer), torch.randn(8, 64, 32)


class Again(nn.Module):
    """Layers of a stack that run once more in the backward, as transformers' do."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        made = (nn.TransformerEncoderLayer(32, 4, 48, 0.1, batch_first=True) for _ in range(4))
        self.layers = nn.ModuleList(made)
        self.again = again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return x


def not_again() -> tuple[nn.Module, torch.Tensor]:
    return Again(False), torch.randn(8, 64, 32)


def again() -> tuple[nn.Module, torch.Tensor]:
    return Again(True), torch.randn(8, 64, 32)


def rms_norms() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(32, 96), nn.RMSNorm(96), nn.Linear(96, 48), nn.RMSNorm(48)]
    return nn.Sequential(*layers), torch.randn(8, 64, 32)


def misfit() -> tuple[nn.Module, torch.Tensor]:
    return Small(), torch.randn(8, 4, 32, 32)


def broken() -> nn.Module:
    raise RuntimeError("made to fail")


number = 3


class Mixed(nn.Module):
    """A convolution's weight for each sample, mixed of four (CondConv)."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(4, 8 * 3 * 9))
        self.gate = nn.Linear(3, 4)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        many, sides = x.shape[0], x.shape[2:]
        weight = (self.gate(x.mean((2, 3))) @ self.weights).view(many * 8, 3, 3, 3)
        x = F.conv2d(x.reshape(1, many * 3, *sides), weight, padding=1, groups=many)
        return self.head(x.view(many, 8, *sides).mean((2, 3)))


def mixed() -> tuple[nn.Module, torch.Tensor]:
    return Mixed(), torch.randn(8, 3, 32, 32)
