# SPDX-License-Identifier: Apache-2.0
"""Which trainings are measured: the same list on every machine. No torch."""

from dataclasses import dataclass
from itertools import cycle
from random import Random

TIMM = (
    "vgg11_bn", "vgg16", "resnet18", "resnet34", "resnet50", "resnet101", "resnext50_32x4d",
    "seresnet50", "wide_resnet50_2", "densenet121", "densenet201", "inception_v3", "inception_v4",
    "legacy_xception", "mobilenetv2_100", "mobilenetv3_large_100", "mobilenetv3_small_100",
    "efficientnet_b0", "efficientnet_b2", "efficientnetv2_rw_s", "mnasnet_100", "ghostnet_100",
    "regnety_008", "regnetx_032", "repvgg_a2", "res2net50_26w_4s", "dla60", "hrnet_w18",
    "dpn68", "cspresnet50", "cspdarknet53", "nfnet_l0", "convnext_tiny", "convnext_small",
    "convnextv2_nano", "poolformer_s12", "mixer_b16_224", "resmlp_12_224", "vit_tiny_patch16_224",
    "vit_small_patch16_224", "vit_base_patch16_224", "deit_small_patch16_224",
    "beit_base_patch16_224",
    "swin_tiny_patch4_window7_224", "cait_xxs24_224", "levit_128", "xcit_nano_12_p16_224",
    "maxvit_tiny_rw_224",
)  # fmt: skip
#: (precision, optimizer), of which each run has one
WAYS = (
    ("fp32", "sgd-momentum"), ("amp", "adamw"), ("fp32", "adam"), ("bf16", "adamw"),
    ("amp", "sgd-momentum"), ("fp32", "sgd"),
)  # fmt: skip
TIMM_BATCHES = (8, 16, 32, 32, 64, 128)
MLP_BATCHES = (64, 512, 2048, 8192, 32768)
#: inputs, width, layers, and whether layers have BatchNorm and dropout
MLPS = tuple(
    f"{inputs}-{width}x{layers}{extra}"
    for inputs, width, layers in (
        (784, 256, 2), (784, 1024, 3), (784, 4096, 2), (2048, 512, 8), (2048, 2048, 4),
        (2048, 8192, 2), (4096, 1024, 12), (4096, 4096, 6),
    )
    for extra in ("", "-bn", "-bn-drop")
)  # fmt: skip
#: architecture, width, layers, tokens a sample
WORDS = tuple(
    f"{kind}-{width}x{layers}-{tokens}"
    for kind in ("bert", "gpt2")
    for width, layers, tokens in (
        (256, 4, 128), (512, 8, 128), (512, 8, 512), (768, 12, 128), (768, 12, 512),
        (1024, 24, 256), (1024, 24, 512),
    )
)  # fmt: skip
WORDS_BATCHES = (1, 2, 4, 8, 8, 16, 32, 64, 16)
#: the order in which they are measured
SEED = 5


@dataclass(frozen=True)
class Run:
    """One training. ``kind``: timm, mlp or words; ``model``: a name, or the sizes of one."""

    kind: str
    model: str
    batch: int
    precision: str
    optimizer: str

    @property
    def key(self) -> str:
        """Tells it apart in the table of results."""
        return f"{self.kind}:{self.model}:{self.batch}:{self.precision}:{self.optimizer}"


def of_key(key: str) -> Run:
    """The run of a ``key``. Raises ValueError."""
    kind, model, batch, precision, optimizer = key.split(":")
    return Run(kind, model, int(batch), precision, optimizer)


#: what the context is taken from, before anything else: its convolutions and its matrix product
#: load the libraries
CONTEXT = Run("timm", "resnet18", 2, "fp32", "sgd")


def plan() -> list[Run]:
    """All runs, the kinds mixed, so that a part of the list says something of each."""
    runs: list[Run] = []
    for kind, models, batches in (
        ("timm", TIMM, TIMM_BATCHES),
        ("mlp", MLPS, MLP_BATCHES),
        ("words", WORDS, WORDS_BATCHES),
    ):
        ways = cycle(WAYS)
        for model in models:
            runs += [Run(kind, model, batch, *next(ways)) for batch in batches]
            next(ways)  # the next model begins with another way
    runs = list(dict.fromkeys(runs))
    Random(SEED).shuffle(runs)
    return runs
