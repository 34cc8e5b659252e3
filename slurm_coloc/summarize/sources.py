# SPDX-License-Identifier: Apache-2.0
"""Models that say themselves what they read: timm's, and those of transformers."""

from __future__ import annotations

from typing import Any

import torch

from slurm_coloc.errors import UsageFault
from slurm_coloc.summarize.jobs import Job, Wish
from slurm_coloc.summarize.losses import guessed

CLASSES = 1000
TOKENS = 512
#: in this order; the first whose list has the configuration is taken
_HEADS = (
    "AutoModelForMaskedLM",
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForImageClassification",
    "AutoModelForAudioClassification",
    "AutoModel",
)
_PER_TOKEN = ("LMHeadModel", "ForMaskedLM", "ForCausalLM", "ForTokenClassification",
              "ForConditionalGeneration", "ForPreTraining", "DoubleHeadsModel")  # fmt: skip


def of_timm(name: str, wish: Wish) -> Job:
    """`timm:NAME`: 1000 classes, cross entropy."""
    timm = imported("timm")
    try:
        model = timm.create_model(name)
    except RuntimeError as err:
        raise UsageFault(f"timm:{name}: {err}", "bad_target") from err
    job = of_module(model, wish)
    assert job is not None
    return job


def of_transformers(name: str, wish: Wish) -> Job:
    """`transformers:NAME`: a model class, a configuration class, a folder or a name on the hub."""
    library = imported("transformers")
    found = getattr(library, name, None)
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        model = found(found.config_class())  # type: ignore[attr-defined]
    else:
        config = found() if isinstance(found, type) else _configuration(library, name)
        model = _with_head(library, config)
    return _of_hf(model, wish)


def _configuration(library: Any, name: str) -> Any:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    try:
        with unset_fake_temporarily():
            return library.AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as err:
        reason = str(err).strip().split("\n")[0]
        raise UsageFault(
            f"transformers:{name}: neither a class nor a configuration that is here: {reason}",
            "bad_target",
        ) from err


def _with_head(library: Any, config: Any) -> Any:
    for name in getattr(config, "architectures", None) or ():
        if hasattr(library, name):
            return getattr(library, name)(config)
    for name in _HEADS:
        auto = getattr(library, name, None)
        if auto is not None and type(config) in auto._model_mapping:
            return auto.from_config(config)
    raise UsageFault(f"no model of transformers has a {type(config).__name__}", "bad_target")


def imported(name: str) -> Any:
    """The library, or a UsageFault that says how to get it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as err:
        raise UsageFault(f"{name} is not installed here: pip install {name}", "no_module") from err


def of_module(model: torch.nn.Module, wish: Wish) -> Job | None:
    """The job of a module that says what it reads; None where it does not."""
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "model_type"):
        return _of_hf(model, wish)
    default = getattr(model, "default_cfg", None)
    if isinstance(default, dict) and default.get("input_size"):
        shape = wish.shape or tuple(default["input_size"])
        return Job(model, lambda batch: (torch.randn(batch, *shape),))
    return None


def _of_hf(model: Any, wish: Wish) -> Job:
    config, kind = model.config, type(model).__name__
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values":
        side = getattr(config, "image_size", 224)
        sides = tuple(side) if isinstance(side, (tuple, list)) else (side, side)
        shape = wish.shape or (getattr(config, "num_channels", 3), *sides)

        def images(batch: int) -> dict[str, torch.Tensor]:
            given = {"pixel_values": torch.randn(batch, *shape)}
            if "Classification" in kind:
                given["labels"] = torch.zeros(batch, dtype=torch.long)
            return given

        return Job(model, images, guessed)
    if main != "input_ids":
        raise UsageFault(
            f"{kind} reads {main}: give MODULE:CALLABLE with example inputs", "no_inputs"
        )
    longest = getattr(config, "max_position_embeddings", None)
    if not isinstance(longest, int) or longest < 1:  # XLNet's has no end: -1
        longest = TOKENS
    elif _counts_from_padding(config):
        longest -= (getattr(config, "pad_token_id", None) or 0) + 1
    tokens = wish.seq_len or min(TOKENS, longest)
    starts = getattr(config, "decoder_start_token_id", None)
    if getattr(config, "is_encoder_decoder", False) and starts is None:
        # A configuration made from its defaults does not say what a decoder begins with.
        config.decoder_start_token_id = getattr(config, "pad_token_id", None) or 0
    return Job(model, lambda batch: _text(kind, batch, tokens), guessed, seq_len=tokens)


def _counts_from_padding(config: Any) -> bool:
    """RoBERTa and its kin number positions from behind the padding token's own number."""
    kind = str(getattr(config, "model_type", ""))
    return "roberta" in kind or kind in (
        "camembert",
        "longformer",
        "mpnet",
        "ibert",
        "data2vec-text",
    )


def _text(kind: str, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    """Tokens, a mask as every tokenizer gives it, and labels where the class has a loss."""
    shape = (batch, tokens)
    given = {
        "input_ids": torch.zeros(shape, dtype=torch.long),
        "attention_mask": torch.ones(shape, dtype=torch.long),
    }
    if kind.endswith(_PER_TOKEN):
        given["labels"] = torch.zeros(shape, dtype=torch.long)
    elif kind.endswith("ForSequenceClassification"):
        given["labels"] = torch.zeros(batch, dtype=torch.long)
    elif kind.endswith("ForQuestionAnswering"):
        given["start_positions"] = torch.zeros(batch, dtype=torch.long)
        given["end_positions"] = torch.zeros(batch, dtype=torch.long)
    return given
