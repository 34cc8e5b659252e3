# SPDX-License-Identifier: Apache-2.0
"""What the class of a whole model of transformers says: a language model's head that is the
embedding's own matrix, which texts count twice, and that it computes its loss itself."""

import re
from dataclasses import replace

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.summary import Layer, Summary

#: classes of transformers whose configuration ties them by default (tie_word_embeddings)
_TIED = re.compile(
    r"(?:albert|bart|bert|bigbird|biogpt|blenderbot|bloom|camembert|cohere|convbert|ctrl|data2vectext|"
    r"deberta|distilbert|electra|esm|falcon(?!mamba)|fnet|funnel|gemma|gpt2|gptbigcode|gptneo(?!x)|"
    r"layoutlm|led|longformer|longt5|luke|m2m100|mamba|marian|mbart|megatronbert|mobilebert|"
    r"modernbert|mpnet|mpt|mt5|mvp|nllbmoe|nomicbert|openaigpt|opt|pegasus|plbart|prophetnet|roberta|"
    r"roformer|smollm3|squeezebert|starcoder2|switchtransformers|t5|trocr|umt5|whisper|xglm|xlmroberta|"
    r"xlnet)",
    re.IGNORECASE,
)


#: layers of T5 1.1, Flan-T5 and mT5, whose released weights have a head of their own beside the
#: embedding that encoder and decoder share
_OWN_HEAD = re.compile(r"DenseGatedActDense\Z")
#: modules around a model, which add no layers
_AROUND = frozenset({"DataParallel", "DistributedDataParallel", "OptimizedModule"})
_TASK = re.compile(r"[a-z0-9]For[A-Z][A-Za-z]+\Z|MarianMTModel\Z|LMHeadModel\Z|DoubleHeadsModel\Z")

_DECODER = re.compile(r"ForCausalLM\Z|LMHeadModel\Z|DoubleHeadsModel\Z")
#: whose language model classes are decoders only where the configuration says so
_ENCODER = re.compile(r"(?:\w*Bert|\w*Roberta|Electra|XLM|XLNet|RemBert|RoFormer)(?=[A-Z])")


def of_class(summary: Summary) -> str:
    """The class of the model, without what is around it; empty where there are no rows."""
    return next((row.kind for row in summary.layers[:4] if not _wraps(row)), "")


def _wraps(row: Layer) -> bool:
    return row.kind in _AROUND or row.kind.startswith(("PeftModel", "LoraModel"))


def computes_loss(summary: Summary) -> bool:
    """A class of transformers for a task: it returns the loss beside its output."""
    return bool(_TASK.search(of_class(summary)))


def caches(summary: Summary) -> bool:
    """A decoder that gives out its keys and values, as those of transformers do unless use_cache is
    set to False (their Trainer does so of late). Encoders have no cache."""
    name = of_class(summary)
    return bool(_DECODER.search(name)) and not _ENCODER.match(name)


def once(summary: Summary) -> Summary:
    """The summary with a shared matrix at its last place only, for the classes of _TIED. An encoder
    and a decoder with a head have it at three places.

    Its other gradients, which are added to the first, are left out: they come when the backward is
    over and little else is allocated.
    """
    if not _TIED.match(of_class(summary)):
        return summary
    rest, layers = summary.parameters, list(summary.layers)
    places = _shared(summary.layers)
    if any(map(_OWN_HEAD.search, summary.rows.kinds)):
        places = places[:-1]
    for place in places:
        rest -= layers[place].parameters
        layers[place] = replace(layers[place], parameters=0)
    if rest == summary.parameters:
        return summary
    return replace(
        summary, layers=tuple(layers), parameters=rest, trainable=min(summary.trainable, rest)
    )


def headed(summary: Summary) -> Summary:
    """Of a model that computes its loss: what it gives out is what its last matrix makes. A table
    has one shape for a class that gives out several tensors, which may be another's."""
    if not computes_loss(summary) or len(summary.layers) < 2:
        return summary
    last = summary.layers[-1]
    if last.role is not Role.LINEAR or not last.outputs or not last.leaf:
        return summary
    around = [row for row in summary.layers[:4] if _wraps(row) or _TASK.search(row.kind)]
    if any(row.outputs for row in around):
        first = tuple(replace(row, outputs=()) for row in summary.layers[: len(around)])
        return replace(summary, layers=(*first, *summary.layers[len(around) :]))
    return summary


def _shared(layers: tuple[Layer, ...]) -> list[int]:
    """Places of the embeddings whose matrix a later row has, too."""
    found = []
    heads = [row for row in layers if row.leaf and row.role is Role.LINEAR and row.outputs]
    for place, row in enumerate(layers):
        if row.role is not Role.EMBEDDING or not row.leaf or not row.outputs:
            continue
        words, odd = divmod(row.parameters, row.outputs[0][-1])
        sizes = (row.parameters, row.parameters + words)  # BERT's head has a bias
        if not odd and any(
            head.outputs[0][-1] == words and head.parameters in sizes for head in heads[-1:]
        ):
            found.append(place)
    return found
