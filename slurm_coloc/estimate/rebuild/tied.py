# SPDX-License-Identifier: Apache-2.0
"""A language model's head that is the embedding's own matrix: texts count it twice."""

import re
from dataclasses import replace

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.summary import Layer, Summary

#: classes of transformers whose configuration ties them by default (tie_word_embeddings)
_TIED = re.compile(
    r"(?:albert|bart|bert|bloom|camembert|deberta|distilbert|electra|gemma|gpt2|gptneo|mbart|"
    r"modernbert|mpnet|opt|roberta|t5|xlmroberta|xlnet)",
    re.IGNORECASE,
)


def once(summary: Summary) -> Summary:
    """The summary with the shared matrix at its last place alone, where a class is known for it.

    The other gradient of it, which is added to the first, is left out: it comes when the backward
    is over, and little else is there.
    """
    if not summary.layers or not _TIED.match(summary.layers[0].kind):
        return summary
    found = _shared(summary.layers)
    if found is None:
        return summary
    row = summary.layers[found]
    rest = summary.parameters - row.parameters
    layers = list(summary.layers)
    layers[found] = replace(row, parameters=0)
    return replace(
        summary, layers=tuple(layers), parameters=rest, trainable=min(summary.trainable, rest)
    )


def _shared(layers: tuple[Layer, ...]) -> int | None:
    """Place of the embedding whose matrix a later row has, too."""
    heads = [row for row in layers if row.leaf and row.role is Role.LINEAR and row.outputs]
    for place, row in enumerate(layers):
        if row.role is not Role.EMBEDDING or not row.leaf or not row.outputs:
            continue
        words, odd = divmod(row.parameters, row.outputs[0][-1])
        sizes = (row.parameters, row.parameters + words)  # BERT's head has a bias
        if not odd and any(
            head.outputs[0][-1] == words and head.parameters in sizes for head in heads[-1:]
        ):
            return place
    return None
