# SPDX-License-Identifier: Apache-2.0
"""The model, batches and loss of a planned run. Needs torch, timm and transformers."""

import re
from typing import Any

import torch
from torch import nn

from estimator.measure.plan import Run
from slurm_coloc.summarize.jobs import Job

CLASSES = 1000
VOCABULARY = 30522
HEAD = 64  #: width of an attention head


def job(run: Run) -> Job:
    """Made where tensors are made: on the GPU, or fake."""
    return {"timm": _timm, "mlp": _mlp, "words": _words}[run.kind](run)


def _loss(output: Any) -> torch.Tensor:
    """Cross entropy, the loss of a model that has its own."""
    if hasattr(output, "loss"):
        return output.loss  # type: ignore[no-any-return]
    scores = output[0] if isinstance(output, (tuple, list)) else output
    aim = torch.zeros(scores.shape[0], dtype=torch.long, device=scores.device)
    return nn.functional.cross_entropy(scores, aim)


def _timm(run: Run) -> Job:
    import timm

    model = timm.create_model(run.model, num_classes=CLASSES)
    size = model.default_cfg["input_size"]
    return Job(model, lambda batch: (torch.randn(batch, *size),), _loss)


def _mlp(run: Run) -> Job:
    found = re.fullmatch(r"(\d+)-(\d+)x(\d+)((?:-\w+)*)", run.model)
    assert found is not None, run.model
    inputs, width, layers = (int(part) for part in found.groups()[:3])
    rows: list[nn.Module] = []
    for number in range(layers):
        rows.append(nn.Linear(width if number else inputs, width))
        if "bn" in found[4]:
            rows.append(nn.BatchNorm1d(width))
        rows.append(nn.ReLU())
        if "drop" in found[4]:
            rows.append(nn.Dropout(0.2))
    rows.append(nn.Linear(width, 100))
    return Job(nn.Sequential(*rows), lambda batch: (torch.randn(batch, inputs),), _loss)


def tokens(run: Run) -> int | None:
    """Tokens a sample; None where samples have none."""
    return int(run.model.rpartition("-")[2]) if run.kind == "words" else None


def _words(run: Run) -> Job:
    import transformers as hf

    found = re.fullmatch(r"(\w+)-(\d+)x(\d+)-(\d+)", run.model)
    assert found is not None, run.model
    width, layers, length = (int(part) for part in found.groups()[1:])
    model: Any
    if found[1] == "bert":
        config = hf.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // HEAD,
            intermediate_size=4 * width,
        )
        model = hf.BertForMaskedLM(config)
    else:
        model = hf.GPT2LMHeadModel(
            hf.GPT2Config(n_embd=width, n_layer=layers, n_head=width // HEAD)
        )

    def inputs(batch: int) -> dict[str, torch.Tensor]:
        words = torch.zeros(batch, length, dtype=torch.long)
        return {"input_ids": words, "labels": torch.zeros_like(words)}

    return Job(model, inputs, _loss, seq_len=length)
