# SPDX-License-Identifier: Apache-2.0
"""What the class of a whole model of transformers says: a language model's head that is the
embedding's own matrix, which texts count twice, and that it computes its loss itself."""

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


#: modules around a model, which add no layers
_AROUND = frozenset({"DataParallel", "DistributedDataParallel", "OptimizedModule"})
_TASK = re.compile(r"[a-z0-9]For[A-Z][A-Za-z]+\Z|LMHeadModel\Z|DoubleHeadsModel\Z")

_DECODER = re.compile(r"ForCausalLM\Z|LMHeadModel\Z|DoubleHeadsModel\Z")
#: whose language model classes are decoders only where the configuration says so
_ENCODER = re.compile(r"(?:\w*Bert|\w*Roberta|Electra|XLM|XLNet|RemBert|RoFormer)(?=[A-Z])")


def of_class(summary: Summary) -> str:
    """The class of the model, without what is around it; empty where there are no rows."""
    return next((row.kind for row in summary.layers[:3] if row.kind not in _AROUND), "")


def computes_loss(summary: Summary) -> bool:
    """A class of transformers for a task: it returns the loss beside its output."""
    return bool(_TASK.search(of_class(summary)))


def caches(summary: Summary) -> bool:
    """A decoder that gives out its keys and values, as those of transformers do unless use_cache is
    set to False (their Trainer does so of late). Encoders have no cache."""
    name = of_class(summary)
    return bool(_DECODER.search(name)) and not _ENCODER.match(name)


def once(summary: Summary) -> Summary:
    """The summary with the shared matrix at its last place alone, where a class is known for it.

    The other gradient of it, which is added to the first, is left out: it comes when the backward
    is over, and little else is there.
    """
    if not _TIED.match(of_class(summary)):
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
