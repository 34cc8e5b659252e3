# SPDX-License-Identifier: Apache-2.0
"""Summaries of models that colocd reserves a wanted number of shards for.

A trace has no summaries. Each job gets one of a network of linear layers, as many as its
reservation takes, so it goes the way of every --coloc job: plugin, hook, parser, estimator,
decision.
"""

from functools import cache

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decide import shards_needed
from slurm_coloc.core.decide.decision import Estimate
from slurm_coloc.errors import ColocError
from slurm_coloc.estimate.activity.cards import name_of
from slurm_coloc.estimate.api import Estimate as Estimated
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.flow.estimators.calibrations import Stacks
from tests.tracelab.workload import SIZING

RULE, THIN = "=" * 64, "-" * 64
#: widths of the large and the small layers, and their millions of parameters
LARGE, SMALL, LARGE_M, BETWEEN_M = 4000, 1000, 16, 4
MOST_M = 8000


def linear(millions: int) -> str:
    """torchsummary's text of linear layers with so many million parameters, batch 32."""
    wide = max(0, (millions - BETWEEN_M) // LARGE_M)
    narrow = millions - wide * LARGE_M - (BETWEEN_M if wide else 0)
    layers = [(LARGE, LARGE_M)] * wide + [(SMALL, BETWEEN_M)] * bool(wide) + [(SMALL, 1)] * narrow
    rows = [
        f"{f'Linear-{number}':>18} {f'[32, {width}]':>26} {f'{size * 1_000_000:,}':>15}"
        for number, (width, size) in enumerate(layers, 1)
    ]
    total = f"{millions * 1_000_000:,}"
    return (
        f"{THIN}\n        Layer (type)               Output Shape         Param #\n{RULE}\n"
        + "\n".join(rows)
        + f"\n{RULE}\nTotal params: {total}\nTrainable params: {total}\nNon-trainable params: 0\n"
        f"{THIN}\nInput size (MB): 0.49\nForward/backward pass size (MB): 1.00\n"
        f"Params size (MB): {millions * 3.81:.2f}\nEstimated Total Size (MB): {millions * 4:.2f}\n"
        f"{THIN}\n"
    )


def colocds_stack() -> Stack:
    """What colocd takes of the lab's card, as it is configured by default."""
    return Stacks(Stack(EstimateConfig().context_mib), {}).of(name_of("a100"))


def _estimated(text: str, gpus: int = 1) -> Estimated:
    """What colocd makes of this text, as it is configured by default, for one process of a job with
    one on each of its GPUs."""
    options = TrainingOptions(assumed=("optimizer", "precision"), world_size=gpus)
    return estimate(parse_summary(text), options, stack=colocds_stack())


def reserved(text: str, shards_per_gpu: int, gpus: int = 1) -> int:
    """Shards that colocd reserves for this text, on each of so many GPUs."""
    found = _estimated(text, gpus)
    if found.memory_mib is None or found.upper_mib is None:
        raise ColocError(f"no estimate of a made-up summary: {found.reason}")
    known = Estimate(found.name, found.memory_mib, found.upper_mib)
    return shards_needed(known, shards_per_gpu, SIZING)


@cache
def summary(shards: int, shards_per_gpu: int, training: int = 0, gpus: int = 1) -> str:
    """A text that so many shards are reserved for, on each of so many GPUs; each ``training`` of
    them has a text of its own. Raises ColocError where there is none."""
    low, high = 1, MOST_M
    while low < high:
        middle = (low + high) // 2
        if reserved(linear(middle), shards_per_gpu, gpus) < shards:
            low = middle + 1
        else:
            high = middle
    # The smallest of them could be a MiB from the one before: some more parameters.
    for millions in (low + 20 + training, low + training):
        if reserved(text := linear(millions), shards_per_gpu, gpus) == shards:
            return text
    raise ColocError(f"no summary for {shards} of {shards_per_gpu} shards")


def expected(shards: int, shards_per_gpu: int, gpus: int = 1) -> float | None:
    """The SM activity that colocd expects of a job with this summary: that of its linear layers,
    not of the trace's training, until telemetry shows that."""
    return _estimated(summary(shards, shards_per_gpu, gpus=gpus), gpus).smact
