# SPDX-License-Identifier: Apache-2.0
"""The thesis' own configurations (Figures 5.11 to 5.13, Table 6.2): their models made again, their
texts as users have them, and all estimators held against what was measured.

Models, sides and optimizers are those of the scripts that the authors published with their manager
(github.com/ehsanyousefzadehasl/CARMA, workloads, commit 75e5b71): ImageNet from torchvision but for
Xception, at 224 pixels, CIFAR-100 from timm with 100 classes, BERT and GPT-2 with transformers' own
AdamW, which steps in a loop over the parameters, GPT-2 large in DataParallel, XLNet by the Trainer
on two GPUs. Classes like GPT2SdpaAttention in their texts are those of transformers 4.42 to 4.47.

Needs torch, torchvision, torchinfo, timm and transformers.
"""

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from estimator.evaluate.judging import Answer, Case, ask
from estimator.evaluate.recorded import prepared
from estimator.evaluate.texts import BATCH, KINDS, real_linspace
from slurm_coloc.estimate.api import TrainingOptions
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary

CONFIGS18, WORKLOADS = Path("facts/configs18.csv"), Path("facts/workloads.csv")
#: of the scripts: tokens, and optimizers where a model has no other
TOKENS, IMAGENET, CIFAR = 512, "adam", "adamw"
SMALL = 32  #: side of CIFAR's images (pixels)
LOOP, TRAINER = "adamw-for-loop", "adamw"
ASSUMED = (
    "optimizers as in the runs' scripts: ImageNet Adam, CIFAR-100 and XLNet AdamW (all foreach,"
    " PyTorch's default), BERT and GPT-2 transformers' AdamW, one parameter at a time"
)
#: names in workloads.csv that configs18.csv spells in another way
ALSO = {
    "inception": "inception_v3", "Xception": "xception", "BERT_base": "bert_base",
    "BERT_large": "bert_large", "S_mobilenetv3": "mobilenetv3_small",
}  # fmt: skip


class Image(NamedTuple):
    """A model of a library, the side of its images (pixels) on ImageNet, and what its maker
    is told. CIFAR-100 was trained with timm's of that name."""

    library: str
    name: str
    side: int = 224
    told: tuple[tuple[str, bool], ...] = ()


class Words(NamedTuple):
    """A class of transformers, its configuration's class, what differs from the default, and the
    optimizer."""

    model: str
    config: str
    changed: dict[str, int]
    optimizer: str = LOOP


MODELS: dict[str, Image | Words] = {
    "vgg16": Image("torchvision", "vgg16"),
    "resnet50": Image("torchvision", "resnet50"),
    "xception": Image("timm", "legacy_xception"),
    "mobilenet_v2": Image("torchvision", "mobilenet_v2"),
    "efficientnet_b0": Image("torchvision", "efficientnet_b0"),
    "inception_v3": Image(
        "torchvision", "inception_v3", 299, (("aux_logits", False), ("init_weights", False))
    ),
    "resnet18": Image("timm", "resnet18"),
    "resnet34": Image("timm", "resnet34"),
    "mobilenetv3_small": Image("timm", "mobilenetv3_small_100"),
    # The vocabulary is that of the real summary file of BERT base.
    "bert_base": Words("BertForMaskedLM", "BertConfig", {"vocab_size": 28996}),
    "bert_large": Words(
        "BertForMaskedLM",
        "BertConfig",
        {
            "vocab_size": 28996,
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
    "gpt2_large": Words(
        "GPT2LMHeadModel", "GPT2Config", {"n_embd": 1280, "n_layer": 36, "n_head": 20}
    ),
    "gpt2_xl": Words(
        "GPT2LMHeadModel", "GPT2Config", {"n_embd": 1600, "n_layer": 48, "n_head": 25}
    ),
    "xlnet_base": Words(
        "XLNetForSequenceClassification",
        "XLNetConfig",
        {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072},
        TRAINER,
    ),
    "xlnet_large": Words("XLNetForSequenceClassification", "XLNetConfig", {}, TRAINER),
}


class Run(NamedTuple):
    """A configuration: its label, the text's name, the process' batch and GPUs, MiB measured, and
    figures that were published for it."""

    label: str
    text: str
    batch: int
    gpus: int
    measured_mib: float
    published: dict[str, Answer]


def _one(model: str, side: int) -> str:
    """Name of the text of a model at a side; Transformers have none."""
    return f"{model}-{side}" if isinstance(MODELS[model], Image) else model


def _gpus(model: str, batch: int) -> tuple[int, int]:
    """The batch of the process and its GPUs: of the XLNet rows each of two has the row's batch, of
    GPT-2 large half of it (DataParallel)."""
    return {"gpt2_large": (batch, 2)}.get(model, (2 * batch, 2) if "xlnet" in model else (batch, 1))


def configs18(path: Path) -> list[Run]:
    """The 18 configurations with the figures that the thesis printed beside them."""
    found = []
    with path.open() as lines:
        for row in csv.DictReader(lines):
            model, batch = row["model"], int(row["batch_size"])
            known = MODELS[model]
            published = {
                f"{label}, as published": Answer(float(row[key]), float(row[key]))
                for label, key in (
                    ("GPUMemNet", "gpumemnet_mib"),
                    ("FakeTensor", "faketensor_mib"),
                    ("Horus", "horus_mib"),
                )
                if row[key]
            }
            side = known.side if isinstance(known, Image) else 0
            total, gpus = _gpus(model, batch)
            measured = float(row["measured_mib"])
            label = f"{model} at {batch}"
            found.append(Run(label, _one(model, side), total, gpus, measured, published))
    return found


def workloads(path: Path) -> tuple[list[Run], list[str]]:
    """The configurations of Table 6.2, and those that are left out with the reason."""
    found, left = [], []
    with path.open() as lines:
        for row in csv.DictReader(lines):
            model = ALSO.get(row["model"], row["model"])
            known = MODELS.get(model)
            if known is None:
                left.append(f"{row['config']}: no model of that name in timm or transformers")
                continue
            side = 0
            if isinstance(known, Image):
                side = SMALL if row["dataset"].startswith("cifar") else known.side
            total, gpus = _gpus(model, int(row["batch"]))
            measured = float(row["mem_MiB"])
            found.append(Run(row["config"], _one(model, side), total, gpus, measured, {}))
    return found, left


def judged(runs: list[Run], cache: Path, stack: Stack) -> list[Case]:
    """All registered estimators on the texts, beside what was published. ``text`` reads what a user
    has (torchinfo, print(model)), the rest what `coloc summarize` wrote where that is there."""
    cases = []
    for run in runs:
        plain = parse_summary((cache / f"{run.text}.plain").read_text(encoding="utf-8"))
        path = cache / f"{run.text}.recorded"
        written = parse_summary(path.read_text(encoding="utf-8")) if path.exists() else plain
        options = options_of(run)
        cases.append(Case(run.label, run.measured_mib, _told(plain, written, options, stack, run)))
    return cases


def options_of(run: Run) -> TrainingOptions:
    """What a user would say of a run, as its script was."""
    model, _, side = run.text.partition("-")
    known = MODELS[model]
    if isinstance(known, Words):
        return TrainingOptions(run.batch, TOKENS, known.optimizer, gpus=run.gpus)
    return TrainingOptions(run.batch, None, CIFAR if int(side) == SMALL else IMAGENET)


def _told(
    plain: Summary, written: Summary, options: TrainingOptions, stack: Stack, run: Run
) -> dict[str, Answer]:
    told = ask(replace(plain, recording=written.recording), options, stack)
    return told | run.published


def make(texts: list[str], cache: Path) -> None:
    """Files TEXT.plain and TEXT.recorded; those that are there stay. A recording that cannot be
    made is named on stderr and left out."""
    missing = [
        text
        for text in dict.fromkeys(texts)
        if not all((cache / f"{text}.{end}").exists() for end in ("plain", "recorded"))
    ]
    if not missing:
        return
    import torch

    if "timm" not in sys.modules:
        prepared()
    torch.set_num_threads(1)
    cache.mkdir(parents=True, exist_ok=True)
    for text in missing:
        model, _, side = text.partition("-")
        plain = cache / f"{text}.plain"
        if not plain.exists():
            plain.write_text(_plain(model, int(side or 0)), encoding="utf-8")
        try:
            (cache / f"{text}.recorded").write_text(_recorded(model, int(side or 0)))
        except Exception as why:  # a model's own code, on tensors without values
            print(f"{text}: not recorded: {type(why).__name__}: {str(why)[:120]}", file=sys.stderr)


def _maker(known: Image | Words, side: int) -> Callable[[], Any]:
    if isinstance(known, Image):
        import timm
        from torchvision import models

        if side == SMALL:
            return lambda: timm.create_model(known.name, num_classes=100)
        if known.library == "timm":
            return lambda: timm.create_model(known.name, num_classes=1000)
        return lambda: getattr(models, known.name)(**dict(known.told))
    import transformers

    config = getattr(transformers, known.config)(**known.changed)
    return lambda: getattr(transformers, known.model)(config)


def _plain(name: str, side: int) -> str:
    """torchinfo's table of an image model; print(model) with a footer of a language model."""
    import torch
    import torchinfo

    known = MODELS[name]
    with real_linspace(), torch.device("meta"):
        model = _maker(known, side)().train()
    if isinstance(known, Image):
        how = {"mode": "train", "device": "meta", "verbose": 0, **KINDS["full"]}
        return f"{torchinfo.summary(model, input_size=(BATCH, 3, side, side), **how)}\n"
    total = sum(p.numel() for p in model.parameters())
    return (
        f"{model}\n{'=' * 71}\nTotal params: {total:,}\nTrainable params: {total:,}\n"
        f"Non-trainable params: 0\n{'-' * 71}\n"
    )


def _recorded(name: str, side: int) -> str:
    from slurm_coloc.summarize.jobs import Wish
    from slurm_coloc.summarize.making import made
    from slurm_coloc.summarize.target import job_of

    known = MODELS[name]
    words = isinstance(known, Words)
    wish = Wish(seq_len=TOKENS) if words else Wish(shape=(3, side, side))
    # Language models at a small batch: their steps are long, and they grow with it like any other.
    wish = replace(wish, batch_size=2 if words else BATCH)
    make_model = _maker(known, side)
    return made(lambda: job_of(make_model(), wish, "the model"), wish).text
