# SPDX-License-Identifier: Apache-2.0
"""Random Transformers in the thesis' ranges, and the kinds that people train.

The thesis' ranges (its repository, NeuroNetGen_scripts/Transformer): widths 128 to 1024, 2 to 12
layers, 2 to 16 heads, feed-forward 2 to 4 widths, 128 to 512 tokens, vocabularies of 50,000 to
1,000,000, a classifier over the mean token, torch.nn's own layers. Beyond it:
language models with a vocabulary head (tied or not), eager and fused attention, image
Transformers of one width and in stages, widths to 2048 and 24 layers, for a classifier alone says
nothing of BERT, GPT-2 or Swin.
"""

from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from estimator.gpumemnet.models import stages
from estimator.gpumemnet.models.attention import LayerScale, SelfAttention
from estimator.gpumemnet.models.drawn import Drawn, cross_entropy

HEADS = (2, 4, 8, 12, 16, 20, 25)


class Layer(nn.Module):
    """Attention and feed-forward, normalised before or after."""

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        rate: float,
        eager: bool,
        joined: bool,
        first: bool,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.first = first
        self.attention = SelfAttention(width, heads, rate, eager, joined)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.act, self.fc2 = nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)
        # PyTorch's Dropout of nothing keeps nothing; published image models have none.
        self.drop1 = nn.Dropout(rate) if rate else nn.Identity()
        self.drop2 = nn.Dropout(rate) if rate else nn.Identity()
        self.scale1 = LayerScale(width) if scaled else nn.Identity()
        self.scale2 = LayerScale(width) if scaled else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = x + self.scale1(self.drop1(self.attention(self.norm1(x))))
            return x + self.scale2(self.drop2(self.fc2(self.act(self.fc1(self.norm2(x))))))
        x = self.norm1(x + self.drop1(self.attention(x)))
        return self.norm2(x + self.drop2(self.fc2(self.act(self.fc1(x)))))


class Text(nn.Module):
    """Embeddings, layers, and a head over the classes or the vocabulary."""

    def __init__(
        self, words: int, tokens: int, width: int, body: nn.Module, head: int, tied: bool
    ) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.drop, self.body = nn.Dropout(0.1), body
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, head or words, bias=not tied)
        self.pooled = bool(head)
        if tied and not head:
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1]).unsqueeze(0)
        x = self.drop(self.embedding(x) + self.position(place))
        x = self.norm(self.body(x))
        return self.head(x.mean(1) if self.pooled else x)


class Image(nn.Module):
    """ViT. ``token``: the class is read off a token of its own, else off the mean."""

    def __init__(
        self, patch: int, size: int, width: int, body: nn.Module, classes: int, token: bool
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width)) if token else None
        self.place = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + token, width))
        self.body, self.norm, self.head = body, nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1)
        x = self.norm(self.body(x + self.place))
        return self.head(x.mean(1) if self.token is None else x[:, 0])


def _word_loss(output: Tensor, batch: int) -> Tensor:
    """Cross entropy of every token, as language models are trained."""
    aim = torch.zeros(output.shape[0] * output.shape[1], dtype=torch.long)
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), aim)


def draw(random: Random) -> Drawn:
    """One Transformer: of the thesis' kind, a language model or an image model."""
    kind = random.choice(("classifier", "classifier", "words", "words", "image", "image", "stages"))
    if kind == "stages" or (kind == "image" and random.random() < 0.4):
        return _stages(random)
    thesis = kind == "classifier" and random.random() < 0.7
    small = (192, 384, 576) if kind == "image" else ()
    more = () if thesis else (384, 1280, 1600, 2048)
    width = random.choice((128, 256, 512, 768, 1024, *small, *more))
    layers = random.randint(2, 12) if thesis else random.choice((2, 4, 6, 8, 12, 12, 24))
    heads = random.choice([count for count in HEADS if width % count == 0])
    inner = random.randint(2 * width, 4 * width) if thesis else 4 * width
    rate = random.uniform(0.1, 0.5) if kind != "image" else random.choice((0.0, 0.0, 0.1))
    tokens = random.choice((128, 256, 512, *(() if thesis else (64, 384, 1024))))
    words = random.randint(50_000, 1_000_000) if thesis else random.choice(
        (21_128, 28_996, 30_522, 32_000, 50_257, 50_265, 119_547)
    )  # fmt: skip
    eager, joined, first, tied, token = (random.random() < 0.5 for _ in range(5))
    scaled = kind == "image" and random.random() < 0.3
    if kind == "image":  # as published: one projection, normalised first, fused more often
        joined, first, eager = True, True, eager and token
    patch, size = random.choice((8, 14, 16, 16, 16, 32)), random.choice((224, 224, 224, 256, 384))
    classes = random.randint(2, 1000)

    def body() -> nn.Module:
        if thesis:
            layer = nn.TransformerEncoderLayer(width, heads, inner, rate, batch_first=True)
            return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        return nn.Sequential(
            *(Layer(width, heads, inner, rate, eager, joined, first, scaled) for _ in range(layers))
        )

    def make() -> nn.Module:
        if kind == "image":
            return Image(patch, size, width, body(), classes, token)
        return Text(words, tokens, width, body(), classes if kind == "classifier" else 0, tied)

    def inputs(batch: int) -> tuple[Tensor, ...]:
        if kind == "image":
            return (torch.randn(batch, 3, size, size),)
        return (torch.zeros(batch, tokens, dtype=torch.long),)

    return Drawn(
        family="transformer",
        make=make,
        inputs=inputs,
        loss=_word_loss if kind == "words" else cross_entropy,
        words={"kind": kind, "width": width, "layers": layers, "tokens": tokens, "eager": eager},
    )


def _stages(random: Random) -> Drawn:
    plan, classes = stages.plan(random), random.randint(2, 1000)
    return Drawn(
        family="transformer",
        make=lambda: stages.make(plan, classes),
        inputs=lambda batch: (torch.randn(batch, 3, plan.size, plan.size),),
        loss=cross_entropy,
        words={"kind": "stages", "plan": plan},
    )
