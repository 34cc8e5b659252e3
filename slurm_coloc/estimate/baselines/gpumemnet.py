# SPDX-License-Identifier: Apache-2.0
"""GPUMemNet's networks as estimators: from a summary to a class' upper edge.

They are trained again, on models of our own generator; see the model card in estimator/gpumemnet.
Classes are 1000 MiB wide for MLPs, 8000 MiB for CNNs and Transformers.
"""

import math
from collections.abc import Sequence

from slurm_coloc.estimate.baselines.nets.classes import CLASSES, CONTEXT_MIB, file_name
from slurm_coloc.estimate.baselines.nets.features import NAMES, counted, merged, tuples, vector
from slurm_coloc.estimate.baselines.nets.ranges import RANGES
from slurm_coloc.estimate.baselines.nets.runner import run
from slurm_coloc.estimate.estimator import Estimate, TrainingOptions
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary
from slurm_coloc.estimate.tokens import resized, tokens_in_text, with_tokens

# In a sentence for people, where a feature lies outside what the network was trained on.
_WORDS = {
    "batch": "batch size", "parameters": "parameters", "activations": "activations",
    "activations_batch": "activations of the batch", "depth": "depth",
    "largest_layer": "largest layer", "hidden_batch": "rows that the summary does not open",
}  # fmt: skip
LIKELY = 0.5  # below it the answer is said to be unsure


class GpuMemNet:
    """``network``: "mlp", the ensemble of 13 MLPs over engineered features, or "transformer", over
    layer tuples (thesis, chapter 5)."""

    version = "2"
    runs_network = True

    def __init__(self, network: str) -> None:
        self.name = f"gpumemnet-{network}"
        self._network = network

    def estimate(self, summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
        """See Estimator.estimate. Memory is the class' top, and so is the bound, as the thesis
        reserves it."""
        classes = CLASSES.get(summary.family)
        if classes is None:
            return Estimate(reason="no network for this model family")
        shaped, notes = _shaped(summary, options)
        if shaped is None:
            return Estimate(reason="the summary shows no shapes: activations are unknown")
        batch = -(-(options.batch_size or 1) // options.gpus)
        seen = counted(shaped)
        features = vector(shaped, batch, options.optimizer, seen)
        inputs: dict[str, Sequence[object]] = {"features": features}
        if self._network == "transformer":
            inputs["tokens"], inputs["counts"] = merged(tuples(shaped, batch, seen))
        try:
            chances = run(file_name(self._network, shaped.family), inputs)
        except LookupError as err:
            return Estimate(reason=f"the network did not run: {err.args[0]}")
        notes = [*notes, *_outside(shaped.family, features)]
        if options.precision != "fp32":
            notes.append(f"{self.name} knows fp32 only: its figure is that of fp32")
        if options.gpus > 1:
            notes.append(f"{self.name} knows one GPU: a share of {batch} samples is taken")
        if not all(math.isfinite(chance) for chance in chances) or len(chances) != classes.count:
            return Estimate(reason="the network gave no class")
        best = max(range(len(chances)), key=chances.__getitem__)
        if chances[best] < LIKELY:
            notes.append(f"{self.name} is unsure: {100 * chances[best]:.0f} % for its class")
        top = classes.top(best)
        if top is None:
            reason = f"more than {(classes.count - 1) * classes.step} MiB"
            return Estimate(reason=reason, notes=tuple(notes))
        top += max(0, stack.context_mib - CONTEXT_MIB)
        return Estimate(top, top, notes=tuple(notes))


def _shaped(summary: Summary, options: TrainingOptions) -> tuple[Summary | None, list[str]]:
    """The summary with shapes at the asked sequence length, None where it has none."""
    if summary.shapes:
        text = tokens_in_text(summary)
        if text and options.seq_len and options.seq_len != text:
            return resized(summary, text, options.seq_len), []
        return summary, []
    if summary.family != "transformer":
        return None, []
    tokens = options.seq_len or options.default_seq_len
    return with_tokens(summary, tokens), [f"sequence length {tokens} assumed"]


def _outside(family: str, features: list[float]) -> list[str]:
    """A note where features that people know lie outside the training rows."""
    low, high = RANGES.get(family, ((), ()))
    outside = [
        _WORDS[name]
        for name, value, least, most in zip(NAMES, features, low, high, strict=False)
        if name in _WORDS and not least - 0.01 <= value <= most + 0.01
    ]
    if not outside:
        return []
    return [f"outside what the networks were trained on: {', '.join(outside)}"]


ESTIMATORS = (GpuMemNet("mlp"), GpuMemNet("transformer"))
