# SPDX-License-Identifier: Apache-2.0
"""The ZeRO formula: model states alone. A baseline, not for production.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
(SC 2020), section 3.1 and Figure 1: with Adam in mixed precision a parameter takes 16 bytes, 2 for
the fp16 weight, 2 for its gradient, 12 for the optimizer (fp32 weight, two moments). Over N
data-parallel ranks stage 1 divides the 12, stage 2 the gradient too, stage 3 all. In fp32 without a
master copy the same counts are 4 + 4 + 8.

It knows neither activations nor the context, as DeepSpeed's own
``estimate_zero2_model_states_mem_needs`` does not: a figure below what training takes.
"""

from slurm_coloc.estimate.estimator import Estimate, TrainingOptions
from slurm_coloc.estimate.lexing import bounded
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import OPTIMIZERS
from slurm_coloc.estimate.summary import Summary


def model_states(
    parameters: int, trainable: int, optimizer: str, precision: str, stage: int = 0, ranks: int = 1
) -> int:
    """Bytes on one rank. ``stage``: 0 to 3; ``ranks``: data-parallel processes."""
    if precision == "fp32":
        weight, gradient, kept = 4, 4, 0.0
    else:
        weight, gradient, kept = 2, 2, 4.0  # the fp32 master copy is the optimizer's
    weights, gradients = parameters * weight, trainable * gradient
    state = int(trainable * (kept + 4 * sum(OPTIMIZERS[optimizer].state)))
    return bounded(
        -(-weights // (ranks if stage >= 3 else 1))
        - (-gradients // (ranks if stage >= 2 else 1))
        - (-state // (ranks if stage >= 1 else 1))
    )


class DeepSpeed:
    """See the module."""

    name = "deepspeed"
    version = "1"

    def __init__(self, stage: int = 0, ranks: int = 1) -> None:
        """As registered: stage 0 on one rank, where a request names neither."""
        self._stage, self._ranks = stage, ranks

    def estimate(self, summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
        """See Estimator.estimate; ``stack`` is not in the formula."""
        stage, ranks = self._stage, self._ranks
        if options.world_size > 1:
            stage, ranks = options.zero_stage, options.world_size
        states = model_states(
            summary.parameters,
            summary.trainable,
            options.optimizer,
            options.precision,
            stage,
            ranks,
        )
        mib = -(-states // 2**20)
        note = f"model states alone (ZeRO stage {stage}): no activations, no context"
        return Estimate(mib, mib, notes=(note,))


ESTIMATORS = (DeepSpeed(),)
