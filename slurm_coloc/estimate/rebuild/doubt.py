# SPDX-License-Identifier: Apache-2.0
"""Modules whose functions cannot be told from their rows: their estimate needs a wider margin."""

from slurm_coloc.estimate.kinds import is_attention
from slurm_coloc.estimate.summary import Layer, Summary

#: attention whose rebuilt step came within 5 % of the recorded one (timm 1.0, torch 2.13), and the
#: names that transformers gives to blocks of the same build
KNOWN = frozenset(
    {
        "attention", "attention2d", "attentioncl", "attentionpoollatent", "channelattention",
        "classattention", "convattention", "efficientattention", "evaattention", "attentionrope",
        "multiqueryattention2d", "partitionattentioncl", "relposattention", "windowattention",
        "windowattentionglobal", "windowmultiheadattention",
    }
)  # fmt: skip
_ENDINGS = ("selfattention", "sdpaattention", "multiheadattention", "flashattention2")
#: kinds with functions of their own: lambda layers, weights made for each sample, parallel blocks
HIDDEN = ("lambdalayer", "condconv", "parallel", "evonorm", "haloattn", "bottleneckattn", "gpsa")


def doubts(summary: Summary) -> tuple[str, ...]:
    """Class names that are not understood, each once."""
    return tuple(dict.fromkeys(row.kind for row in summary.layers if _doubtful(row)))


def _doubtful(row: Layer) -> bool:
    kind = row.kind.lower()
    if kind.startswith(HIDDEN):
        return True
    return is_attention(row.kind) and kind not in KNOWN and not kind.endswith(_ENDINGS)
