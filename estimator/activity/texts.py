# SPDX-License-Identifier: Apache-2.0
"""Summaries of the trainings whose SM activity was measured. Needs torch, timm, transformers."""

import sys
from pathlib import Path
from typing import Any

from estimator.evaluate.texts import KINDS, real_linspace

#: name: timm's name, side of the image, classes (the thesis' CIFAR networks are timm's at 32)
IMAGES = {
    "vgg16": ("vgg16", 224, 1000),
    "resnet50": ("resnet50", 224, 1000),
    "mobilenet_v2": ("mobilenetv2_100", 224, 1000),
    "efficientnet_b0": ("efficientnet_b0", 224, 1000),
    "inception": ("inception_v3", 299, 1000),
    "Xception": ("legacy_xception", 299, 1000),
    "resnet18-cifar": ("resnet18", 32, 100),
    "resnet34-cifar": ("resnet34", 32, 100),
    "efficientnet_b0-cifar": ("efficientnet_b0", 32, 100),
    "S_mobilenetv3-cifar": ("mobilenetv3_small_100", 32, 100),
}
#: name: model class, configuration class, what differs from its defaults
TEXTS: dict[str, tuple[str, str, dict[str, int]]] = {
    "BERT_base": ("BertForMaskedLM", "BertConfig", {"vocab_size": 28996}),
    "BERT_large": (
        "BertForMaskedLM",
        "BertConfig",
        {"vocab_size": 28996, "hidden_size": 1024, "num_hidden_layers": 24,
         "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "gpt2_large": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "xlnet_base": (
        "XLNetForSequenceClassification",
        "XLNetConfig",
        {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072},
    ),
}  # fmt: skip


def make(folder: Path) -> dict[str, str]:
    """Text by name; files in ``folder`` stay."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in (*IMAGES, *TEXTS):
        path = folder / f"{name}.txt"
        if not path.exists():
            print(f"{name}: made", file=sys.stderr)
            path.write_text(_image(name) if name in IMAGES else _text(name), encoding="utf-8")
        found[name] = path.read_text(encoding="utf-8")
    return found


def _image(name: str) -> str:
    import timm
    import torch
    import torchinfo

    model, side, classes = IMAGES[name]
    with real_linspace(), torch.device("meta"):
        made = timm.create_model(model, num_classes=classes).train()
    size = (32, 3, side, side)
    text = torchinfo.summary(
        made, input_size=size, mode="train", device="meta", verbose=0, **KINDS["full"]
    )
    return f"{text}\n"


def _text(name: str) -> str:
    """As print(model) shows it, with a footer of parameters."""
    import torch
    import transformers

    model, config, changes = TEXTS[name]
    kind: Any = getattr(transformers, model)
    with torch.device("meta"):
        made = kind(getattr(transformers, config)(**changes))
    count = sum(one.numel() for one in made.parameters())
    footer = f"Total params: {count:,}\nTrainable params: {count:,}\nNon-trainable params: 0\n"
    return f"{made}\n=====\n{footer}-----\n"
