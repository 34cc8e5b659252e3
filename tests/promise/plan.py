# SPDX-License-Identifier: Apache-2.0
"""The jobs of `make promise`, drawn from a seed: who submits what, and what it really does.

The GPU is emulated, so each training is told how much memory it takes (``truth_mib``). Of an honest
job that is below what its estimate reserves, of a lying one above.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.cluster.jobs import mlp_summary


class Kind(StrEnum):
    """What a job of the plan does."""

    HONEST = "honest"  # holds less than its share
    LYING = "lying"  # needs more than its share; its fence ends it
    UNFENCED = "takes its fence off"  # unsets the variables of MPS, and takes more than its share
    LORA = "LoRA"  # print(model) of a transformer with adapters
    ARRAY = "array"
    CANCELLED = "cancelled"
    REQUEUED = "requeued by its user"
    FAILING = "ends with an error of its own"
    WHOLE = "whole GPU, without --coloc"


#: how many of 300
MIX = {
    Kind.HONEST: 140,
    Kind.LYING: 36,
    Kind.UNFENCED: 14,
    Kind.LORA: 22,
    Kind.ARRAY: 12,
    Kind.CANCELLED: 26,
    Kind.REQUEUED: 18,
    Kind.FAILING: 14,
    Kind.WHOLE: 18,
}
TASKS = 3  # of an array
#: MiB that a training of ``mlp_summary(n)`` takes, a million parameters under Adam
MIB_A_MILLION = 16.3
CONTEXT_MIB = 700


@dataclass(frozen=True)
class Planned:
    """One submission. ``truth_mib``: what the training takes; ``work_s``: its seconds alone;
    ``after_s``: the pause before it is submitted; ``strike_s``: seconds after its submission at
    which it is cancelled or requeued."""

    number: int
    user: int
    kind: Kind
    millions: int
    truth_mib: int
    smact: float
    work_s: int
    after_s: float
    strike_s: float

    @property
    def coloc(self) -> bool:
        """Whether it is submitted with --coloc."""
        return self.kind is not Kind.WHOLE

    @property
    def tasks(self) -> int:
        """Jobs that it becomes."""
        return TASKS if self.kind is Kind.ARRAY else 1

    @property
    def summary(self) -> str:
        """The text of its model."""
        if self.kind is Kind.LORA:
            return lora_summary(self.millions)
        return mlp_summary(self.millions)

    @property
    def options(self) -> list[str]:
        """Of sbatch, without --coloc."""
        if self.kind is Kind.ARRAY:
            return [f"--array=1-{TASKS}"]
        if self.kind is Kind.WHOLE:
            return ["--gres=gpu:1"]
        if self.kind is Kind.LORA:
            return ["--coloc-batch-size=4", "--coloc-seq-len=128"]
        return []

    def command(self, train: Path) -> str:
        """The line of the script that trains."""
        line = (
            f"{train} --memory-mib {self.truth_mib} --smact {self.smact:.2f}"
            f" --work-s {self.work_s} --ramp-s 2"
        )
        if self.kind is Kind.UNFENCED:
            line = f"env -u CUDA_MPS_PINNED_DEVICE_MEM_LIMIT -u CUDA_MPS_PIPE_DIRECTORY {line}"
        if self.kind is Kind.FAILING:
            line += " --exit-code 3"
        return line


def plan(jobs: int, users: int, seed: int) -> list[Planned]:
    """``jobs`` submissions of ``users`` users (two of them submit most), in their order."""
    dice = random.Random(f"promise/{seed}")
    kinds = list(MIX)
    drawn = dice.choices(kinds, [MIX[kind] for kind in kinds], k=jobs)
    weights = [3.0, 3.0, *([1.0] * (users - 2))][:users]
    return [
        _planned(dice, number, kind, dice.choices(range(users), weights)[0])
        for number, kind in enumerate(drawn)
    ]


def _planned(dice: random.Random, number: int, kind: Kind, user: int) -> Planned:
    # Each lying model is one of its own: colocd learns what a model took.
    millions = dice.choice((100, 150, 200, 300, 400)) + (number if kind is Kind.LYING else 0)
    need_mib = CONTEXT_MIB + millions * MIB_A_MILLION
    factor = dice.uniform(0.6, 0.97)
    if kind in (Kind.LYING, Kind.UNFENCED):
        factor = dice.uniform(1.6, 2.5)
    return Planned(
        number=number,
        user=user,
        kind=kind,
        millions=millions,
        truth_mib=min(int(need_mib * factor), 36_000),
        smact=dice.choice((0.1, 0.2, 0.3, 0.5)),
        work_s=dice.randint(4, 14),
        after_s=dice.expovariate(2.0),
        strike_s=dice.uniform(0.5, 12.0),
    )


def lora_summary(millions: int) -> str:
    """print(model) of a small decoder whose attention has LoRA adapters, as peft shows it."""
    blocks, width = max(2, millions // 50), 512
    lora = (
        "          (lora_dropout): ModuleDict(\n"
        "            (default): Dropout(p=0.05, inplace=False)\n"
        "          )\n"
        "          (lora_A): ModuleDict(\n"
        "            (default): Linear(in_features={i}, out_features=8, bias=False)\n"
        "          )\n"
        "          (lora_B): ModuleDict(\n"
        "            (default): Linear(in_features=8, out_features={o}, bias=False)\n"
        "          )\n"
    )
    rows = [
        "Decoder(",
        f"  (embed): Embedding(32000, {width})",
        "  (layers): ModuleList(",
        f"    (0-{blocks - 1}): {blocks} x Block(",
        "      (attention): Attention(",
        "        (qkv): lora.Linear(",
        f"          (base_layer): Linear(in_features={width}, out_features={3 * width}, bias=True)",
        lora.format(i=width, o=3 * width).rstrip("\n"),
        "        )",
        f"        (proj): Linear(in_features={width}, out_features={width}, bias=True)",
        "      )",
        f"      (norm1): LayerNorm(({width},), eps=1e-05, elementwise_affine=True)",
        "      (mlp): Sequential(",
        f"        (0): Linear(in_features={width}, out_features={4 * width}, bias=True)",
        "        (1): GELU(approximate='none')",
        f"        (2): Linear(in_features={4 * width}, out_features={width}, bias=True)",
        "      )",
        f"      (norm2): LayerNorm(({width},), eps=1e-05, elementwise_affine=True)",
        "    )",
        "  )",
        f"  (head): Linear(in_features={width}, out_features=32000, bias=False)",
        ")",
    ]
    return "\n".join(rows) + "\n"
