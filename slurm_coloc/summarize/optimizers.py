# SPDX-License-Identifier: Apache-2.0
"""The name that `coloc estimate` has for an optimizer of a training."""

from __future__ import annotations

from typing import Any

#: class names without underscores in lower case; the library's 8-bit and paged ones first
_NAMES = (
    ("8bit", "adam8bit"),
    ("adafactor", "adafactor"),
    ("adamax", "adamax"),
    ("nadam", "nadam"),
    ("radam", "radam"),
    ("adamw", "adamw"),
    ("adam", "adam"),
    ("lamb", "adam"),
    ("sgd", "sgd"),
    ("lion", "lion"),
    ("muon", "sgd-momentum"),
    ("rmsprop", "rmsprop"),
    ("adagrad", "adagrad"),
    ("lars", "sgd-momentum"),
)
#: class names whose rule is their own
_EXACT = frozenset(
    ["sgd", "adam", "adamw", "adafactor", "adamax", "nadam", "radam", "rmsprop", "adagrad", "lion"]
)


def name_of(optimizer: Any) -> tuple[str, str]:
    """The name, and a note where it is only the nearest one. What is not known counts as adam: two
    states a parameter."""
    inner = getattr(optimizer, "optimizer", None)  # a wrapper, as accelerate's
    if inner is not None and hasattr(inner, "param_groups"):
        optimizer = inner
    kind = type(optimizer).__name__
    plain = kind.lower().replace("_", "")
    name = next((known for part, known in _NAMES if part in plain), "adam")
    groups = getattr(optimizer, "param_groups", [])
    if name in ("adam", "adamw"):
        name += _implementation(plain, groups)
    if name in ("sgd", "rmsprop") and any(group.get("momentum") for group in groups):
        name += "-momentum"
    if plain in _EXACT or name == "adam8bit":
        return name, ""
    return name, f"optimizer {kind} is counted as {name}"


def _implementation(plain: str, groups: list[dict[str, Any]]) -> str:
    """Of Adam and its kin. Groups of torch.optim's say foreach, None where it may choose: it does
    on CUDA. Others' (transformers' old AdamW) step in a loop over the parameters."""
    if "fused" in plain or any(group.get("fused") for group in groups):
        return "-fused"
    if groups and all(group.get("foreach", False) is False for group in groups):
        return "-for-loop"
    return ""
