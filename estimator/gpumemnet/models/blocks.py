# SPDX-License-Identifier: Apache-2.0
"""The blocks that published CNNs are made of, in random sizes: four stages after a stem.

Basic and bottleneck (He et al. 2016, groups as in ResNeXt), inverted residual with
squeeze-excitation (Sandler et al. 2018, Tan and Le 2019), ConvNeXt (Liu et al. 2022).
"""

from collections.abc import Callable
from random import Random

from torch import Tensor, nn

Act = Callable[[], nn.Module]


class Add(nn.Module):
    """A branch beside a shortcut, and what follows their sum."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut, self.after = branch, shortcut, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.branch(x) + self.shortcut(x))


class SqueezeExcite(nn.Module):
    """One scale a channel."""

    def __init__(self, width: int, inner: int, act: Act) -> None:
        super().__init__()
        self.reduce, self.act = nn.Conv2d(width, inner, 1), act()
        self.expand, self.gate = nn.Conv2d(inner, width, 1), nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        scale = x.mean((2, 3), keepdim=True)
        return x * self.gate(self.expand(self.act(self.reduce(scale))))


class ChannelsLast(nn.Module):
    """LayerNorm over channels and an MLP, as ConvNeXt has them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.fc1, self.act = nn.Linear(width, 4 * width), nn.GELU()
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + self.fc2(self.act(self.fc1(inside))).permute(0, 3, 1, 2)


def _conv(
    read: int, made: int, kernel: int, stride: int, groups: int, act: Act | None
) -> nn.Module:
    parts: list[nn.Module] = [
        nn.Conv2d(read, made, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(made),
    ]
    return nn.Sequential(*parts, act()) if act else nn.Sequential(*parts)


def _shortcut(read: int, made: int, stride: int) -> nn.Module:
    if read == made and stride == 1:
        return nn.Identity()
    return _conv(read, made, 1, stride, 1, None)


def _stem(random: Random, width: int, act: Act) -> list[nn.Module]:
    if random.random() < 0.5:
        return [_conv(3, width, 7, 2, 1, act), nn.MaxPool2d(3, 2, 1)]
    return [_conv(3, width, 3, 2, 1, act)]


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def _silu() -> nn.Module:
    return nn.SiLU(inplace=True)


def residual(random: Random) -> list[nn.Module]:
    """ResNet or ResNeXt."""
    act: Act = random.choice((_relu, _relu, nn.ReLU, _silu, nn.SiLU))
    width = random.choice((32, 48, 64, 64, 80, 96, 128))
    deep, groups = random.random() < 0.6, random.choice((1, 1, 4, 8, 32))
    body = _stem(random, width, act)
    read = width
    squeezed = random.random() < 0.3
    for stage in range(4):
        inner = width << stage
        made = 4 * inner if deep else inner
        for block in range(random.randint(1, 8 if stage == 2 else 4)):
            stride = 2 if stage and not block else 1
            if deep:
                parts = [
                    _conv(read, inner, 1, 1, 1, act),
                    _conv(inner, inner, 3, stride, groups if inner % groups == 0 else 1, act),
                    _conv(inner, made, 1, 1, 1, None),
                ]
            else:
                parts = [_conv(read, made, 3, stride, 1, act), _conv(made, made, 3, 1, 1, None)]
            if squeezed:
                parts.append(SqueezeExcite(made, max(8, made // 16), _relu))
            body.append(Add(nn.Sequential(*parts), _shortcut(read, made, stride), act()))
            read = made
    return body


def inverted(random: Random) -> list[nn.Module]:
    """MobileNetV2, V3, EfficientNet."""
    act: Act = random.choice((_silu, _silu, nn.SiLU, nn.ReLU6, nn.Hardswish))
    width = random.choice((16, 24, 32, 40))
    grow = random.choice((3, 4, 6, 6))
    squeezed = random.random() < 0.6
    body: list[nn.Module] = [_conv(3, width, 3, 2, 1, act)]
    read = width
    for stage in range(5):
        made = int(width * (1, 1.5, 2.5, 5, 8)[stage]) // 8 * 8 or 8
        for block in range(random.randint(1, 5)):
            stride = 2 if stage in (1, 2, 3) and not block else 1
            inner, kernel = read * grow, random.choice((3, 3, 5))
            parts = [
                _conv(read, inner, 1, 1, 1, act),
                _conv(inner, inner, kernel, stride, inner, act),
            ]
            if squeezed:
                parts.append(SqueezeExcite(inner, max(4, read // 4), act))
            parts.append(_conv(inner, made, 1, 1, 1, None))
            branch = nn.Sequential(*parts)
            same = stride == 1 and read == made
            body.append(Add(branch, nn.Identity(), nn.Identity()) if same else branch)
            read = made
    return [*body, _conv(read, 4 * read, 1, 1, 1, act)]


def mobile(width: int, grow: int) -> nn.Module:
    """An inverted residual branch of one width."""
    inner = grow * width
    parts = [
        _conv(width, inner, 1, 1, 1, _silu),
        _conv(inner, inner, 3, 1, inner, _silu),
        SqueezeExcite(inner, max(4, width // 4), _silu),
        _conv(inner, width, 1, 1, 1, None),
    ]
    return nn.Sequential(*parts)


def modern(random: Random) -> list[nn.Module]:
    """ConvNeXt."""
    width = random.choice((48, 64, 80, 96, 128, 192))
    body: list[nn.Module] = [nn.Conv2d(3, width, 4, 4)]
    for stage in range(4):
        if stage:
            body.append(nn.Conv2d(width, 2 * width, 2, 2))
            width *= 2
        body += [ChannelsLast(width) for _ in range(random.randint(1, 9 if stage == 2 else 3))]
    return body


def plain(random: Random) -> list[nn.Module]:
    """VGG."""
    act: Act = random.choice((_relu, nn.ReLU))
    width, read, body = random.choice((32, 48, 64, 64)), 3, list[nn.Module]()
    normed = random.random() < 0.5
    for stage in range(5):
        made = min(512, width << stage)
        for _ in range(random.randint(1, 4)):
            if normed:
                body.append(_conv(read, made, 3, 1, 1, act))
            else:
                body += [nn.Conv2d(read, made, 3, padding=1), act()]
            read = made
        body.append(nn.MaxPool2d(2))
    return body


BLOCKS: dict[str, Callable[[Random], list[nn.Module]]] = {
    "residual blocks": residual,
    "inverted residual blocks": inverted,
    "modern blocks": modern,
    "plain blocks": plain,
}
