# SPDX-License-Identifier: Apache-2.0
"""Horus' formula as the thesis applies it (Figures 5.11 to 5.13): a baseline, not for production.

Elements of fp32 = (A*B + P) + B*P with A activations a sample, B batch, P parameters. The thesis'
published figures add 800 MiB for the context, which they reproduce (MobileNetV2 at batch 128:
12,028 MiB). It knows neither optimizer nor precision, and it under-estimated 10 of 18
configurations there, so its upper bound is its figure.
"""

from slurm_coloc.estimate.estimator import Estimate, TrainingOptions
from slurm_coloc.estimate.lexing import bounded
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary
from slurm_coloc.estimate.tokens import with_tokens

CONTEXT_MIB = 800


class Horus:
    """See the module."""

    name = "horus"
    version = "1"

    def estimate(self, summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
        """See Estimator.estimate; ``stack`` is not used, the formula has its own."""
        batch = options.batch_size or 1
        notes: tuple[str, ...] = ()
        if not summary.shapes:
            if summary.family != "transformer":
                return Estimate(reason="the summary shows no shapes: activations are unknown")
            tokens = options.seq_len or options.default_seq_len
            summary = with_tokens(summary, tokens)
            notes = (f"sequence length {tokens} assumed",)
        activations, parameters = summary.activations, summary.parameters
        elements = bounded(activations * batch + parameters + batch * parameters)
        mib = -(-elements * 4 // 2**20) + CONTEXT_MIB
        return Estimate(mib, mib, notes=notes)


ESTIMATORS = (Horus(),)
