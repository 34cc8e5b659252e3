# SPDX-License-Identifier: Apache-2.0
"""Whether attention stores its scores, as far as the names of its classes tell."""

import re

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.summary import Summary

#: models of transformers whose attention has no fused kernel (5.23), by their classes' beginnings
EAGER = re.compile(
    r"(?:bigbird|bloom|convbert|funnel|gptj|gptneo(?!x)|ibert|led[ade]|longformer|luke|markuplm|"
    r"megatronbert|mpnet|mpt|mvp|nystrom|prophetnet|reformer|rembert|roformer|squeezebert|"
    r"switchtransformers|t5|tapas|xglm|xlnet)",
    re.IGNORECASE,
)


#: widths of heads that are taken where no row tells: of published models, of one's own
HEAD, OWN_HEAD = 64, 8
#: torch.nn.MultiheadAttention, which has its own rule
TORCH = "MultiheadAttention"
#: names that people give attention of their own, whatever their PyTorch prints
OWN = frozenset(
    {
        "attention", "selfattention", "multiheadattention", "multiheadedattention",
        "multiheadselfattention", "causalselfattention", "crossattention", "attn", "mhsa",
        "headattention", "attentionlayer", "attentionblock", "selfattentionblock",
        "crossattentionblock",
    }
)  # fmt: skip


def stores_scores(summary: Summary) -> int:
    """The width of a head where the model has an attention class that always stores its scores;
    0 where it has none."""
    return HEAD * any(is_attention(kind) and EAGER.match(kind) for kind in summary.rows.kinds)


def _attentions(summary: Summary) -> list[str]:
    """Classes of attention, of several around one another the innermost."""
    found: list[str] = []
    depth = -1  # of the last one, as long as its rows come
    for row in summary.layers:
        if row.depth <= depth:
            depth = -1
        if is_attention(row.kind):
            if depth >= 0:
                found.pop()
            found.append(row.kind)
            depth = row.depth
    return found


def may_store_scores(summary: Summary) -> tuple[str, int] | None:
    """The class whose text does not tell whether it stores scores, and how wide its heads are
    taken: transformers names the class alike for both, and so does who writes attention for
    himself. Vision models of timm use the fused kernel."""
    names = {kind.lower(): kind for kind in _attentions(summary)}
    words = Role.EMBEDDING in summary.rows.roles
    own = [kind for name, kind in names.items() if name in OWN and kind != TORCH]
    if not words:
        own = [kind for kind in own if kind != "Attention"]  # timm's
        return (own[0], OWN_HEAD) if own else None
    if any("sdpa" in name or "flash" in name for name in names):
        return None
    if own:
        return own[0], OWN_HEAD
    if not names and not summary.collapsed:
        return None
    # A PyTorch that prints a normalisation's bias is of a time when the fused kernel is the rule.
    if any(layer.attribute("shows_bias") for layer in summary.layers):
        return None
    return next(iter(names.values()), "its attention"), HEAD
