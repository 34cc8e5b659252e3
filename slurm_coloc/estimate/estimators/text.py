# SPDX-License-Identifier: Apache-2.0
"""Analytic estimate from the text alone: parameters, gradients, optimizer, kept activations.

memory = context + weights + gradients + optimizer state + batch * (kept tensors and the largest
transient of the backward pass, see tape), or the optimizer step where that is larger.

The upper bound is memory above the context times a margin plus a floor. The margins are the 99 %
quantile of (measured - context) / (estimated - context), rounded up: over 1,820 runs of timm models
on an A100-40GB (context 1740 MiB, SGD with momentum), their texts made by torchinfo at full depth
and, for collapsed texts, at its default depth of 3; for MLPs over 2,437 generated ones (context
1450 MiB, Adam). Median error there: CNNs 3 % at full depth and 9 % collapsed, Transformers 9 and
14 %. The margins are wide because formulas are; an estimator by allocator replay earns narrower
ones. They were fitted on the same runs that they were counted on, so 99 % is a hope, not a promise.
"""

from dataclasses import dataclass

from slurm_coloc.estimate.api import Estimate, TrainingOptions
from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.lexing import bounded
from slurm_coloc.estimate.summary import NOT_KNOWN, Summary
from slurm_coloc.estimate.tape import Bytes, Tape, walk
from slurm_coloc.estimate.tokens import resized, tokens_in_text, with_tokens

MIB = 2**20
# (family, collapsed) -> margin on everything above the context.
MARGINS = {
    ("cnn", False): 1.52,
    ("cnn", True): 1.81,
    ("transformer", False): 1.4,
    ("transformer", True): 2.4,
    ("mlp", False): 1.6,
    ("mlp", True): 2.0,
}
FLOOR_MIB = 128  # allocator segments and library handles that no row shows
# Bytes of state a parameter, fp32: PyTorch's optimizers, Adafactor's factored second moment (rows
# and columns only, under 1 %, rounded to an eighth), bitsandbytes' two 8-bit moments.
STATE = {
    "sgd": 0.0, "sgd-momentum": 4.0, "adam": 8.0, "adamw": 8.0, "adafactor": 0.5, "adam8bit": 2.25,
}  # fmt: skip
_EAGER = ("xlnet", "deberta", "t5", "roformer", "longformer", "bigbird", "reformer", "funnel")


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of an activation element, a weight and a gradient; share of the fp32 state."""

    unit: Bytes
    weight: int
    gradient: int
    state: float


# amp: fp32 master weights with a cached half copy; bf16: everything in two bytes.
PRECISION = {
    "fp32": Precision(Bytes(4, 4), 4, 4, 1.0),
    "amp": Precision(Bytes(2, 4), 6, 4, 1.0),
    "bf16": Precision(Bytes(2, 4), 2, 2, 0.5),
}


class Text:
    """See the module."""

    name = "text"
    version = "1"

    def estimate(self, summary: Summary, options: TrainingOptions, context_mib: int) -> Estimate:
        """See Estimator.estimate."""
        shaped, reason, notes = _shaped(summary, options)
        if reason:
            return Estimate(self.name, self.version, None, None, reason=reason, notes=notes)
        unit = PRECISION[options.precision].unit
        eager = _eager(shaped)
        tape = walk(shaped, unit, eager)
        memory = _total(shaped, options, tape) // MIB + 1
        margin = MARGINS[(shaped.family, shaped.collapsed)]
        upper = int(memory * margin) + FLOOR_MIB
        if not eager and _may_be_eager(shaped):
            # The class does not say whether scores are stored: the bound takes them in.
            worst = _total(shaped, options, walk(shaped, unit, True)) // MIB + 1
            upper = max(upper, int(worst * 1.05) + FLOOR_MIB)
        return Estimate(
            self.name, self.version, memory + context_mib, upper + context_mib, notes=notes
        )


def _shaped(summary: Summary, options: TrainingOptions) -> tuple[Summary, str, tuple[str, ...]]:
    """The summary with a shape for each row, or the reason why that cannot be."""
    if not summary.shapes:
        if summary.family != "transformer":
            return summary, "the summary shows no shapes: activations are unknown", ()
        if options.seq_len is None and any(layer.role is Role.CONV for layer in summary.layers):
            reason = "an image or audio Transformer without shapes: give --seq-len (tokens)"
            return summary, reason, ()
        tokens = options.seq_len or options.default_seq_len
        note = f"sequence length {tokens}" + ("" if options.seq_len else " assumed (default)")
        return with_tokens(summary, tokens), "", (note,)
    if any(NOT_KNOWN in shape for layer in summary.layers for shape in layer.outputs):
        return summary, "the summary has dimensions that are not known", ()
    if summary.collapsed and not summary.hidden_outputs:
        return summary, "blocks of the summary are not opened: print it at full depth", ()
    if summary.format == "torchsummary" and any(
        is_attention(layer.kind) and "window" in layer.kind.lower() for layer in summary.layers
    ):
        return summary, "torchsummary hides the number of windows: use torchinfo", ()
    text = tokens_in_text(summary)
    if text and options.seq_len and options.seq_len != text:
        note = f"sequence length {options.seq_len} given, {text} in the summary: given wins"
        return resized(summary, text, options.seq_len), "", (note,)
    return summary, "", ()


def _eager(summary: Summary) -> bool:
    """The attention of these models has always stored its scores."""
    return any(
        is_attention(layer.kind) and layer.kind.lower().startswith(_EAGER)
        for layer in summary.layers
    )


def _may_be_eager(summary: Summary) -> bool:
    """Some attention class neither says SDPA nor flash."""
    names = {layer.kind.lower() for layer in summary.layers if is_attention(layer.kind)}
    return bool(names) and not any("sdpa" in name or "flash" in name for name in names)


def _total(summary: Summary, options: TrainingOptions, tape: Tape) -> int:
    """Bytes of the fullest GPU above the context."""
    precision = PRECISION[options.precision]
    batch = options.batch_size or 1
    part = -(-batch // options.gpus)
    trainable = summary.trainable
    weights = summary.parameters * precision.weight
    state = int(trainable * STATE[options.optimizer] * precision.state)
    fixed = bounded(weights + trainable * precision.gradient + state)
    backward = bounded(part * tape.peak)
    if options.gpus > 1:
        # DataParallel: the first GPU gathers the outputs of all and computes the loss on them,
        # and sums the gradients of one replica at a time.
        backward += bounded((batch - part) * tape.logits * 4) + trainable * precision.gradient
    # foreach optimizers make one more copy of the gradients during the step.
    step = 0 if options.optimizer == "sgd" else trainable * precision.gradient
    if summary.family == "mlp":
        # Its activations are small and odd: the allocator cannot reuse their blocks for the step.
        return bounded(fixed + backward + step)
    return bounded(fixed + max(backward, step))


ESTIMATOR = Text()
