# SPDX-License-Identifier: Apache-2.0
"""Modules whose functions cannot be told from their rows: their estimate needs a wider margin."""

import re
from collections.abc import Sequence

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.rebuild.given import given
from slurm_coloc.estimate.rebuild.scope import elements
from slurm_coloc.estimate.rebuild.tree import Node
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
    "gru", "rnn", "esm", "dualpath", "convbert", "branchseparables",
)  # fmt: skip
#: A normalisation of timm: one kernel in newer releases, before that a chain of functions, which
#: keeps twice as much.
VERSIONED = "RmsNorm"
#: what inputs that no row shows may be of all outputs
SMALL = 0.005
#: holds modules, and runs none of them
LIST = "ModuleList"
#: what a model is made of where its code runs modules one by one
SINGLE = frozenset(
    {Role.CONV, Role.NORM, Role.ACT_IN, Role.ACT_OUT, Role.POOL, Role.MAXPOOL, Role.DROPOUT}
)
#: rows that a lambda layer begins with
LAMBDA = [Role.CONV, Role.NORM, Role.NORM]
LAMBDA_ROW = "lambdalayer"  # see lambdas


_EXPERTS = re.compile(r"experts?\Z", re.IGNORECASE)


def unseen(summary: Summary) -> str:
    """Why no figure can be told from the rows; empty if one can. DeBERTa multiplies queries and
    keys with positions, several times the size of its scores; ALBERT runs one layer again and
    again, and print(model) has no number for it: half of it and less was estimated."""
    for kind in summary.rows.kinds:
        name = kind.lower()
        if name.startswith(("disentangled", "deberta")):
            return f"{kind} makes products that no row shows: record it with coloc summarize"
        if summary.format == "reprtree" and name.startswith("albertlayergroup"):
            return f"how often {kind} runs is in no row: record it with coloc summarize"
    for row in summary.layers if summary.format == "torchsummary" else ():
        if row.role is Role.RECURRENT and not row.parameters:
            return f"torchsummary counts no weights of {row.kind}: use torchinfo"
    if kind := _bare_experts(summary):
        return f"the weights of {kind} are in no row: record it with coloc summarize"
    if LIST in summary.rows.kinds and _wired(summary.layers):
        return f"what {LIST} runs in which order is in no row: record it with coloc summarize"
    if kind := _weighs(summary):
        return f"what {kind} weighs is in no row: record it with coloc summarize"
    return _unseen_input(summary)


def _bare_experts(summary: Summary) -> str:
    """The class of a mixture's experts whose matrices are parameters of its own, for print(model)
    tells nothing of these; "" where there is none. They are most of such a model."""
    if summary.format != "reprtree":
        return ""
    rows = summary.layers
    for place, row in enumerate(rows):
        if not _EXPERTS.search(row.kind) or row.parameters:
            continue
        end = next(
            (at for at in range(place + 1, len(rows)) if rows[at].depth <= row.depth), len(rows)
        )
        if not any(one.parameters for one in rows[place + 1 : end]):
            return row.kind
    return ""


def _weighs(summary: Summary) -> str:
    """An attention whose matrix gives one number for each token: pairs of them weigh (graphs)."""
    inside, depth = "", 0
    published = KNOWN - {"attention"}  # which everybody calls it
    for row in summary.layers:
        if inside and row.depth <= depth:
            inside = ""
        if not row.leaf and is_attention(row.kind) and row.kind.lower() not in published:
            inside, depth = row.kind, row.depth
        if inside and row.role is Role.LINEAR and row.outputs and row.outputs[0][-1] == 1:
            return inside
    return ""


def _unseen_input(summary: Summary) -> str:
    """Why, where the footer counts inputs that no row shows: a graph's neighbours, a second
    picture. What is computed with them shows in no row either. Masks and times are small beside
    the rest."""
    rows = summary.layers
    first = next((row.role for row in rows if row.parameters), None)
    if not rows[0].inputs and first is not Role.LINEAR:
        return ""  # what it reads is guessed
    shown = 4 * elements(given(summary)) * (summary.batch_in_text or 1)
    more = summary.input_bytes - shown
    if more <= 0.05 * shown + 10_000:
        return ""
    outputs = 4 * (summary.activations + summary.hidden_outputs) * (summary.batch_in_text or 1)
    if more > SMALL * outputs:
        return f"the model reads {more:,} bytes that no row shows: record it with coloc summarize"
    return ""


#: parts of the names of classes whose rows meet others' values: of neighbours, of tokens
_MEETING = re.compile(
    r"atten|attn|graph|gat(?:layer)?$|gcn|gnn|sage|messagepass|conv|transformer|mixer|pointnet",
    re.IGNORECASE,
)


def meeting(summary: Summary) -> str:
    """A class in print(model) of matrices alone whose name says that it does more with them; "" for
    a network of one after another."""
    return next(filter(_MEETING.search, summary.rows.kinds), "")


def by_number(node: Node) -> bool:
    """Whether a list holds single modules of several kinds: then the code around it says which
    reads what."""
    if node.layer.kind != LIST:
        return False
    return len({child.layer.role for child in node.children if not child.children} & SINGLE) > 2


def _wired(rows: Sequence[Layer]) -> bool:
    """The same, of a table's rows; of the model's own list. (Blocks of published models have a list
    of convolutions and one of norms, whose rows come in turn.)"""
    seen: dict[int, set[Role]] = {}
    for row in rows:
        for depth in [depth for depth in seen if row.depth < depth - 1]:
            del seen[depth]
        if row.kind == LIST and row.depth < 2:
            seen.setdefault(row.depth + 1, set())
        elif row.leaf and row.depth in seen:
            seen[row.depth].add(row.role)
            if len(seen[row.depth] & SINGLE) > 2:
                return True
    return False


def doubts(summary: Summary) -> tuple[str, ...]:
    """Class names that are not understood, each once."""
    # Language models name their class after the model (BertSelfAttention); they are built alike.
    rows = summary.layers
    language = Role.EMBEDDING in summary.rows.roles
    kinds = {kind for kind in summary.rows.kinds if _may_doubt(kind, language)}
    found = (
        row.kind
        for place, row in enumerate(rows if kinds else ())
        if row.kind in kinds and (row.kind.lower() != LAMBDA_ROW or _unlike_lambda(rows, place))
    )
    # XLNet's positions have rows of their own in tables alone.
    plain = summary.format == "reprtree" and any(
        kind.startswith("XLNet") for kind in summary.rows.kinds
    )
    return (*dict.fromkeys(found), *(["XLNet"] if plain else []))


def _may_doubt(kind: str, language: bool) -> bool:
    name = kind.lower()
    if name.startswith(HIDDEN) or kind == VERSIONED or name == LAMBDA_ROW:
        return True
    return not language and is_attention(kind) and name not in KNOWN


def _unlike_lambda(rows: Sequence[Layer], place: int) -> bool:
    return [row.role for row in rows[place + 1 : place + 4]] != LAMBDA
