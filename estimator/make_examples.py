# SPDX-License-Identifier: Apache-2.0
"""Makes the model summaries of etc/examples: real output of the tools, random weights, no GPU.

Run in an environment of its own:

    pip install torch timm torchinfo torchsummary transformers
    python estimator/make_examples.py etc/examples

timm imports torchvision where it is installed; a torchvision that was built for another torch fails
to import, so its custom operator is declared here first.
"""

import contextlib
import io
import sys
import types
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.modules["torchvision._meta_registrations"] = types.ModuleType("torchvision._meta_registrations")
with contextlib.suppress(RuntimeError):
    torch.library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou) -> Tensor")

import timm  # noqa: E402
import torchinfo  # noqa: E402
import torchsummary  # noqa: E402
import transformers as hf  # noqa: E402

IMAGE = (3, 224, 224)


def by_torchinfo(name: str, batch: int, depth: int = 20, image: tuple[int, ...] = IMAGE) -> str:
    """A timm model on the meta device; ``depth`` 3 is torchinfo's default."""
    with torch.device("meta"):
        model = timm.create_model(name)
    columns = ("input_size", "output_size", "num_params", "kernel_size")
    return str(
        torchinfo.summary(
            model,
            input_size=(batch, *image),
            depth=depth,
            mode="train",
            device="meta",
            verbose=0,
            col_names=columns if depth > 3 else ("output_size", "num_params"),
        )
    )


def by_torchsummary(model: nn.Module, image: tuple[int, ...], batch: int = -1) -> str:
    """torchsummary prints; it runs two samples on the CPU."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        torchsummary.summary(model, image, batch_size=batch, device="cpu")
    return out.getvalue()


def by_print(model: nn.Module, counts: bool = False) -> str:
    """print(model), with ", N params" behind each module where ``counts``."""
    return _counted(model) if counts else str(model) + "\n"


def _counted(model: nn.Module) -> str:
    def lines(module: nn.Module, head: str, indent: str) -> list[str]:
        tail = f", {sum(p.numel() for p in module.parameters()):,} params"
        kind = type(module).__name__
        children = list(module.named_children())
        if not children:
            return [f"{indent}{head}{kind}({module.extra_repr()}){tail}"]
        inner = [
            line for name, child in children for line in lines(child, f"({name}): ", indent + "  ")
        ]
        return [f"{indent}{head}{kind}(", *inner, f"{indent}){tail}"]

    total = sum(p.numel() for p in model.parameters())
    rule = "-" * 71
    return "\n".join(
        [
            *lines(model, "", ""),
            "=" * 71,
            f"Total params: {total:,}",
            f"Trainable params: {total:,}",
            "Non-trainable params: 0",
            rule,
            "",
        ]
    )


def mlp() -> nn.Module:
    """A plain classifier of 784 inputs."""
    return nn.Sequential(
        nn.Linear(784, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(2048, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(2048, 10),
    )  # fmt: skip


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    """The model without memory."""
    with torch.device("meta"):
        return make()


def examples() -> dict[str, Callable[[], str]]:
    """File name and how its text is made."""
    bert, gpt2 = hf.BertConfig(), hf.GPT2Config()
    small = "mobilenetv3_small_100"
    return {
        "resnet50_torchinfo.txt": lambda: by_torchinfo("resnet50", 32),
        "resnet50_depth3_torchinfo.txt": lambda: by_torchinfo("resnet50", 32, depth=3),
        "efficientnet_b0_torchinfo.txt": lambda: by_torchinfo("efficientnet_b0", 32),
        "vit_small_torchinfo.txt": lambda: by_torchinfo("vit_small_patch16_224", 16),
        "resnet18_cifar_torchsummary.txt": lambda: by_torchsummary(
            timm.create_model("resnet18", num_classes=100), (3, 32, 32), 128
        ),
        "mobilenetv3_small_torchsummary.txt": lambda: by_torchsummary(
            timm.create_model(small), IMAGE
        ),
        "mlp_torchsummary.txt": lambda: by_torchsummary(mlp(), (784,), 512),
        "bert_base_repr.txt": lambda: by_print(on_meta(lambda: hf.BertForMaskedLM(bert))),
        "bert_base_counts_repr.txt": lambda: by_print(
            on_meta(lambda: hf.BertForMaskedLM(bert)), counts=True
        ),
        "gpt2_repr.txt": lambda: by_print(on_meta(lambda: hf.GPT2LMHeadModel(gpt2))),
    }


def main() -> None:
    """Write every example into the folder that is named."""
    folder = Path(sys.argv[1])
    for name, make in examples().items():
        (folder / name).write_text(make(), encoding="utf-8")
        print(name, (folder / name).stat().st_size)


if __name__ == "__main__":
    main()
