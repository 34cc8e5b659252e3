# SPDX-License-Identifier: Apache-2.0
"""Random U-Nets: of segmentation (Ronneberger et al. 2015), and of diffusion (Ho et al. 2020) with
time embeddings and attention, written as those who train them do."""

from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from estimator.gpumemnet.models.drawn import Drawn


class DoubleConv(nn.Module):
    """Two convolutions with their norms."""

    def __init__(self, read: int, made: int, inplace: bool) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(read, made, 3, padding=1, bias=False), nn.BatchNorm2d(made),
            nn.ReLU(inplace), nn.Conv2d(made, made, 3, padding=1, bias=False),
            nn.BatchNorm2d(made), nn.ReLU(inplace),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class Segmenter(nn.Module):
    """Down, up, and what was on the way down beside what comes up."""

    def __init__(self, width: int, depth: int, classes: int, learned: bool, inplace: bool) -> None:
        super().__init__()
        self.inc, self.pool = DoubleConv(3, width, inplace), nn.MaxPool2d(2)
        sides = [width << level for level in range(depth + 1)]
        self.downs = nn.ModuleList(DoubleConv(a, 2 * a, inplace) for a in sides[:-1])
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(2 * a, a, 2, 2)
            if learned
            else nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2 * a, a, 1))
            for a in reversed(sides[:-1])
        )
        self.convs = nn.ModuleList(DoubleConv(2 * a, a, inplace) for a in reversed(sides[:-1]))
        self.outc = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = [self.inc(x)]
        for down in self.downs:
            seen.append(down(self.pool(seen[-1])))
        x = seen.pop()
        for up, conv in zip(self.ups, self.convs, strict=True):
            x = conv(torch.cat((seen.pop(), up(x)), 1))
        return self.outc(x)


class ResnetBlock(nn.Module):
    """Norm, SiLU, convolution, twice; the time's embedding between."""

    def __init__(self, read: int, made: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, read), nn.Conv2d(read, made, 3, padding=1)
        self.time_emb_proj, self.norm2 = nn.Linear(time, made), nn.GroupNorm(8, made)
        self.dropout, self.conv2 = nn.Dropout(0.1), nn.Conv2d(made, made, 3, padding=1)
        self.nonlinearity = nn.SiLU()
        self.conv_shortcut = nn.Conv2d(read, made, 1) if read != made else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        seen = self.conv1(self.nonlinearity(self.norm1(x)))
        seen = seen + self.time_emb_proj(self.nonlinearity(time))[:, :, None, None]
        seen = self.conv2(self.dropout(self.nonlinearity(self.norm2(seen))))
        return seen + self.conv_shortcut(x)


class AttentionBlock(nn.Module):
    """Attention over the places of a picture."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.group_norm, self.to_qkv = nn.GroupNorm(8, width), nn.Linear(width, 3 * width)
        self.to_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, width, high, wide = x.shape
        seen = self.to_qkv(self.group_norm(x).flatten(2).transpose(1, 2))
        query, key, value = seen.chunk(3, -1)
        seen = self.to_out(F.scaled_dot_product_attention(query, key, value))
        return x + seen.transpose(1, 2).reshape(rows, width, high, wide)


class Diffuser(nn.Module):
    """A noisy picture and a time to the noise."""

    def __init__(self, width: int, grow: tuple[int, ...], each: int, attends: int) -> None:
        super().__init__()
        time = 4 * width
        self.conv_in = nn.Conv2d(3, width, 3, padding=1)
        self.time_embedding = nn.Sequential(
            nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time)
        )
        self.downs, self.shrink = nn.ModuleList(), nn.ModuleList()
        read, sides = width, [width]
        for level, factor in enumerate(grow):
            for _ in range(each):
                self.downs.append(self._block(read, width * factor, time, level >= attends))
                read = width * factor
                sides.append(read)
            last = level == len(grow) - 1
            self.shrink.append(nn.Identity() if last else nn.Conv2d(read, read, 3, 2, 1))
            if not last:
                sides.append(read)
        self.mid = self._block(read, read, time, True)
        self.ups, self.enlarge = nn.ModuleList(), nn.ModuleList()
        for level, factor in reversed(list(enumerate(grow))):
            for _ in range(each + 1):
                self.ups.append(
                    self._block(read + sides.pop(), width * factor, time, level >= attends)
                )
                read = width * factor
            self.enlarge.append(
                nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(read, read, 3, padding=1))
                if level
                else nn.Identity()
            )
        self.conv_norm_out, self.conv_act = nn.GroupNorm(8, read), nn.SiLU()
        self.conv_out = nn.Conv2d(read, 3, 3, padding=1)
        self.each = each

    def _block(self, read: int, made: int, time: int, attends: bool) -> nn.Module:
        parts = [ResnetBlock(read, made, time), AttentionBlock(made) if attends else nn.Identity()]
        return nn.ModuleList(parts)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        time = self.time_embedding(time)
        x = self.conv_in(x)
        seen = [x]
        for number, (resnet, attention) in enumerate(self.downs):
            x = attention(resnet(x, time))
            seen.append(x)
            level = number // self.each
            if number % self.each == self.each - 1 and level < len(self.shrink) - 1:
                x = self.shrink[level](x)
                seen.append(x)
        resnet, attention = self.mid
        x = attention(resnet(x, time))
        for number, (resnet, attention) in enumerate(self.ups):
            x = attention(resnet(torch.cat((x, seen.pop()), 1), time))
            if number % (self.each + 1) == self.each:
                x = self.enlarge[number // (self.each + 1)](x)
        return self.conv_out(self.conv_act(self.conv_norm_out(x)))


def _pixel_loss(output: Tensor, batch: int) -> Tensor:
    aim = torch.zeros(output.shape[0], *output.shape[2:], dtype=torch.long)
    return F.cross_entropy(output, aim)


def _noise_loss(output: Tensor, batch: int) -> Tensor:
    return F.mse_loss(output, torch.zeros_like(output))


def draw(random: Random) -> Drawn:
    """One U-Net."""
    if random.random() < 0.5:
        width, depth = random.choice((16, 32, 64)), random.randint(2, 4)
        size, classes = random.choice((64, 128, 256)), random.choice((2, 21))
        learned, inplace = random.random() < 0.5, random.random() < 0.7
        return Drawn(
            "u-net",
            lambda: Segmenter(width, depth, classes, learned, inplace),
            lambda batch: (torch.randn(batch, 3, size, size),),
            _pixel_loss,
            {"kind": "segmentation"},
        )
    width, each = random.choice((32, 64, 96, 128)), random.randint(1, 2)
    grow = random.choice(((1, 2), (1, 2, 2), (1, 2, 4), (1, 2, 3, 4)))
    attends, size = random.randint(1, 4), random.choice((32, 64))
    return Drawn(
        "u-net",
        lambda: Diffuser(width, grow, each, attends),
        lambda batch: (torch.randn(batch, 3, size, size), torch.randn(batch, width)),
        _noise_loss,
        {"kind": "diffusion"},
    )
