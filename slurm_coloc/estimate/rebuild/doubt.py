# SPDX-License-Identifier: Apache-2.0
"""Modules whose functions cannot be told from their rows: their estimate needs a wider margin."""

from collections.abc import Sequence

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.rebuild.given import given
from slurm_coloc.estimate.rebuild.scope import elements
from slurm_coloc.estimate.summary import Layer, Summary

#: attention whose rebuilt step came within 5 % of the recorded one (timm 1.0, torch 2.13)
KNOWN = frozenset(
    {
        "attention", "attention2d", "attentioncl", "attentiondownsample", "attentionpoollatent",
        "attentionrope", "bottleneckattn", "channelattention", "classattention", "classattn",
        "convattention", "efficientattention", "evaattention", "gpsa", "haloattn",
        "multiqueryattention2d", "partitionattentioncl", "relposattention", "talkingheadattn",
        "windowattention", "windowattentionglobal", "windowmultiheadattention",
    }
)  # fmt: skip
#: kinds with functions of their own that were not compared: sparse attention, state spaces, logits
#: that are capped, what cuDNN keeps of recurrent steps
HIDDEN = (
    "longformer", "gemma2", "bigbird", "reformer", "funnel", "perceiver", "mamba", "rwkv", "lstm",
    "gru", "rnn", "esm",
)  # fmt: skip
#: what inputs that no row shows may be of all outputs
SMALL = 0.005
#: rows that a lambda layer begins with
LAMBDA = [Role.CONV, Role.NORM, Role.NORM]


def unseen(summary: Summary) -> str:
    """Why no figure can be told from the rows; empty if one can. DeBERTa multiplies queries and
    keys with positions, several times the size of its scores; ALBERT runs one layer again and
    again, and print(model) has no number for it: half of it and less was estimated."""
    for row in summary.layers:
        name = row.kind.lower()
        if name.startswith(("disentangled", "deberta")):
            return f"{row.kind} makes products that no row shows: record it with coloc summarize"
        if summary.format == "reprtree" and name.startswith("albertlayergroup"):
            return f"how often {row.kind} runs is in no row: record it with coloc summarize"
    return _unseen_input(summary)


def _unseen_input(summary: Summary) -> str:
    """Why, where the footer counts inputs that no row shows: a graph's neighbours, a second picture.
    What is computed with them shows in no row either. Masks and times are small beside the rest."""
    rows = summary.layers
    if not rows[0].inputs and next(x.role for x in rows if x.parameters) is not Role.LINEAR:
        return ""  # what it reads is guessed
    shown = 4 * elements(given(summary)) * (summary.batch_in_text or 1)
    more = summary.input_bytes - shown
    outputs = 4 * (summary.activations + summary.hidden_outputs) * (summary.batch_in_text or 1)
    if more > max(0.05 * shown + 10_000, SMALL * outputs):
        return f"the model reads {more:,} bytes that no row shows: record it with coloc summarize"
    return ""


def doubts(summary: Summary) -> tuple[str, ...]:
    """Class names that are not understood, each once."""
    # Language models name their class after the model (BertSelfAttention); they are built alike.
    rows = summary.layers
    language = any(row.role is Role.EMBEDDING for row in rows)
    found = (
        row.kind for place, row in enumerate(rows) if _doubtful(rows, place, row.kind, language)
    )
    return tuple(dict.fromkeys(found))


def _doubtful(rows: Sequence[Layer], place: int, kind: str, language: bool) -> bool:
    name = kind.lower()
    if name.startswith(HIDDEN):
        return True
    if name == "lambdalayer":  # see lambdas
        return [row.role for row in rows[place + 1 : place + 4]] != LAMBDA
    return not language and is_attention(kind) and name not in KNOWN
