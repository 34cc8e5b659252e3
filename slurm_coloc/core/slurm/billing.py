# SPDX-License-Identifier: Apache-2.0
"""The price of a GPU and of a shard: reads and proposes TRESBillingWeights.

Tried on 24.11 and 26.05 with slurmdbd:

- Billing is cut down to a whole number, the sum over all weights at once: 78 shards at 2/79 bill 1.
  Weights are proposed so that all shards of a GPU bill exactly that GPU.
- Running shards have no type in AllocTRES, whatever the job asked for: a weight of
  ``GRES/shard:a100`` bills nothing. Running GPUs have theirs, so ``GRES/gpu:a100`` bills; but a job
  that asks for ``gpu:1`` bills 0 until it runs, and a limit on billing lets it pass.
- A partition without weights bills its CPUs.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_coloc.core.slurm.cluster import ClusterShape

# Six digits rounded up: it takes 10^6 shards of a GPU to bill one too many.
_DIGITS = 1_000_000


@dataclass(frozen=True, slots=True)
class Weights:
    """TRESBillingWeights of one partition. ``gpu`` and ``shard`` are the untyped prices (0: none),
    ``typed`` those of GPU types, ``others`` the rest as written (``CPU``: ``1.0``)."""

    gpu: float = 0.0
    shard: float = 0.0
    typed: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    given: bool = False

    @property
    def only_gpus(self) -> bool:
        """Whether only GPUs and shards are billed, by untyped weights."""
        bare = all(_number(text) == 0 for text in self.others.values())
        return self.given and bare and not self.typed

    def billed(self, gpus: int, shards: int) -> int:
        """The bill of a job of this partition for GPUs and shards alone."""
        return math.floor(gpus * self.gpu + shards * self.shard)


def _number(text: str) -> float:
    found = re.match(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if found else 0.0


def parse_weights(text: str) -> Weights:
    """``CPU=1.0,Mem=0.25G,GRES/gpu=39,GRES/gpu:h100=79,GRES/shard=1``; "" for none."""
    gpu = shard = 0.0
    typed: dict[str, float] = {}
    others: dict[str, str] = {}
    for item in text.replace('"', "").split(","):
        name, sep, value = item.strip().partition("=")
        if not sep:
            continue
        low = name.lower()
        if low == "gres/gpu":
            gpu = _number(value)
        elif low == "gres/shard":
            shard = _number(value)
        elif low.startswith("gres/gpu:"):
            typed[name.split(":", 1)[1]] = _number(value)
        else:
            others[name] = value
    return Weights(gpu, shard, typed, others, bool(text.strip()))


def _shown(price: float) -> str:
    return f"{price:.6f}".rstrip("0").rstrip(".")


def share_price(gpu: float, shards_per_gpu: int) -> float:
    """Price of a shard at which all shards of a GPU bill what the GPU bills, in Slurm's own
    arithmetic: a product of two doubles, rounded down."""
    steps = math.ceil(gpu / shards_per_gpu * _DIGITS - 1e-6)
    while math.floor(steps / _DIGITS * shards_per_gpu) < math.floor(gpu):
        steps += 1
    return steps / _DIGITS


@dataclass(frozen=True, slots=True)
class Kind:
    """GPUs of a partition: their Slurm type ("" untyped) and the shards of one."""

    type: str
    shards: int


def kinds_of(shape: ClusterShape, partition: str) -> tuple[Kind, ...]:
    """The kinds of shared GPU in a partition, fewest shards first."""
    found = {
        Kind(node.gpu_type or "", node.shards_per_gpu)
        for node in (one.node for one in shape.kinds)
        if partition in node.partitions and node.shards_per_gpu
    }
    return tuple(sorted(found, key=lambda kind: (kind.shards, kind.type)))


def good(weights: Weights, kinds: Iterable[Kind]) -> bool:
    """Whether all shards of each kind of GPU bill as much as one such GPU."""
    return bool(weights.shard) and all(
        math.floor(kind.shards * weights.shard)
        == math.floor(weights.typed.get(kind.type, 0.0) + weights.gpu)
        for kind in kinds
    )


def coarse(weights: Weights, kinds: Iterable[Kind]) -> str:
    """A warning where a shard costs less than 1, so that small shares may cost nothing."""
    if not 0 < weights.shard < 1:
        return ""
    most = max((kind.shards for kind in kinds), default=0)
    return f"a shard costs less than 1: small shares are cut down; let a GPU cost {most} or more"


def off_by(weights: Weights, kinds: Iterable[Kind]) -> str:
    """How the price of shares differs from the GPU's, in words."""
    if not weights.shard:
        return "shares are billed no GPU"
    parts = []
    for kind in kinds:
        gpu = weights.typed.get(kind.type, 0.0) + weights.gpu
        shares = kind.shards * weights.shard
        if math.floor(shares) != math.floor(gpu):
            word = "dearer" if shares > gpu else "cheaper"
            name = kind.type or "GPU"
            parts.append(
                f"all shards of a {name} are {word} ({_shown(shares)}) than it ({_shown(gpu)})"
            )
    return ", ".join(parts)


def proposed(weights: Weights, kinds: tuple[Kind, ...]) -> str:
    """The partition's TRESBillingWeights under which a share costs its part of a GPU.

    A present price of a GPU is kept, else it is its number of shards; the weights of other
    resources are kept. With several shard counts each GPU type gets a price of its own, and the
    smallest one keeps its price: with one price the shards of a larger GPU would cost more than it.
    """
    rest = [f"{name}={value}" for name, value in weights.others.items()]
    counts = {kind.shards for kind in kinds}
    smallest = kinds[0]
    if len(counts) == 1:
        typed = [price for kind in kinds if (price := weights.typed.get(kind.type))]
        gpu = weights.gpu or (typed[0] if typed else float(smallest.shards))
        shard = share_price(gpu, smallest.shards)
        return ",".join([*rest, f"GRES/gpu={_shown(gpu)}", f"GRES/shard={_shown(shard)}"])
    least = weights.gpu + weights.typed.get(smallest.type, 0.0) or float(smallest.shards)
    shard = share_price(least, smallest.shards)
    prices = [f"GRES/gpu:{kind.type}={_shown(math.floor(kind.shards * shard))}" for kind in kinds]
    return ",".join([*rest, *prices, f"GRES/shard={_shown(shard)}"])


def one_price(shape: ClusterShape, weights: Mapping[str, Weights]) -> tuple[int, str]:
    """The price of a GPU where limits on billing count GPUs and shares exactly, else 0 and why not.

    A limit holds over all partitions, so each must bill only GPUs, all at one price, and all shards
    of a GPU must cost that price.
    """
    prices: set[float] = set()
    for part in shape.partitions:
        found = weights.get(part.name, Weights())
        if not found.only_gpus:
            return 0, f"partition {part.name} bills more than GPUs, or types of them"
        if (kinds := kinds_of(shape, part.name)) and not good(found, kinds):
            return 0, f"partition {part.name}: all shards of a GPU do not cost one GPU"
        if any(part.name in one.node.partitions for one in shape.kinds):
            prices.add(found.gpu)
    if len(prices) != 1:
        return 0, "a GPU does not cost the same in every partition"
    price = prices.pop()
    if price != int(price) or not price:
        return 0, f"the price of a GPU ({_shown(price)}) is no whole number"
    return int(price), ""
