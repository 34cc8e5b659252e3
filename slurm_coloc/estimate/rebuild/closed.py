# SPDX-License-Identifier: Apache-2.0
"""What rows that a depth limit closed keep for the backward, where no rule opened them.

The footer counts the outputs of hidden rows with parameters; how much more or less than that is
kept follows from what the blocks are made of. Of published classes it was read off the whole text:
the ratio with which the step of the default text takes as much as that of the whole one (batch 32,
models of timm 1.0.9). Those of DarkNet and MaxxVit scatter (0.7 to 3.0, 1.3 to 2.7): there, and for
GhostNet, a value was taken with the measured runs in sight.
"""

from slurm_coloc.estimate.kinds import Role, holds_activation, role
from slurm_coloc.estimate.rebuild.opening import ResolvedBlocks
from slurm_coloc.estimate.rebuild.opening.rows import shown_activations
from slurm_coloc.estimate.summary import Summary

#: kept elements over counted ones, by a class that stands in some row of the model
PUBLISHED = {
    "fastvit": 1.31, "maxxvit": 2.2, "davit": 1.27, "nextvit": 1.17, "normfreenet": 2.25,
    "metaformer": 1.75, "swintransformerv2cr": 1.9, "swintransformer": 2.0, "convit": 2.5,
    "pyramidvisiontransformerv2": 1.4, "vovnet": 2.2, "ghostnet": 1.5, "hiera": 1.7,
    "mlpmixer": 1.5, "convmixer": 1.0, "globalcontextvit": 1.33, "tinyvit": 1.33,
    "highperfgpunet": 1.35, "visformer": 1.5, "parallelthingsblock": 1.2, "resnetv2": 2.5,
    "hybridembed": 0.95, "darkstage": 2.0,
}  # fmt: skip
#: By kind of net elsewhere. Convolution, BatchNorm and ReLU keep two tensors for two counted, nets
#: with SiLU three for two; a Transformer block keeps 16 widths for 11 counted. Where the
#: normalisation holds the activation ("act") only the convolutions are counted.
RATIO = {"cnn": 1.35, "cnn-act": 2.7, "transformer": 1.5}
#: the same where the rows show an activation that keeps its output in place, and where blocks of
#: EfficientNet have one that keeps its input
IN_PLACE, MOBILE = 1.9, 3.6
#: EvoNorm is a chain of functions, each of which keeps what it reads
CHAIN, CHAIN_RATIO = "evonorm", 3.2
#: attention or a convolution between two others (BoTNet, HaloNet)
ATTENDED, ATTENDED_RATIO = "selfattnblock", 1.7
_MOBILE = {"invertedresidual", "depthwiseseparableconv", "condconvresidual", "edgeresidual"}


def published(summary: Summary) -> str:
    """The first class of PUBLISHED that some row has, "" where none has."""
    kinds = {row.kind.lower() for row in summary.layers if not row.leaf}
    return next((kind for kind in PUBLISHED if kind in kinds), "")


def known(summary: Summary, rows: ResolvedBlocks) -> bool:
    """Whether rows are closed, of a published class. What EfficientNet's blocks hide where no rule
    opens them differs too much for that (MixNet's convolutions of several sizes)."""
    return bool(rows.closed) and bool(published(summary))


def hidden_ratio(summary: Summary, rows: ResolvedBlocks) -> float:
    """What rows that stayed closed keep over their own outputs, from the elements that the footer
    counts and no row shows; 0 where there are none."""
    closed = sum(max(0, row.output_elements) * row.count for row in rows.closed)
    left = summary.hidden_outputs - rows.found
    if not closed or left <= 0:
        return 0.0
    return left * _ratio(summary, rows) / closed


def _ratio(summary: Summary, rows: ResolvedBlocks) -> float:
    if any(kind.lower().startswith(CHAIN) for kind in summary.rows.kinds):
        return CHAIN_RATIO
    if kind := published(summary):
        return PUBLISHED[kind]
    family = summary.family
    if family != "cnn" or not any(map(holds_activation, summary.rows.kinds)):
        return RATIO.get(family, 1.5)
    kinds = {row.kind.lower() for row in rows.closed}
    if kinds == {ATTENDED}:
        return ATTENDED_RATIO
    acts = shown_activations(summary)
    if acts and role(acts[-1]) is Role.ACT_OUT:
        return IN_PLACE
    return MOBILE if acts and kinds <= _MOBILE else RATIO["cnn-act"]
