# SPDX-License-Identifier: Apache-2.0
"""What runs the networks is set from outside, so that no estimator reads files or knows ONNX."""

from collections.abc import Sequence
from typing import Protocol


class Runner(Protocol):
    """Runs a network of this folder by its file name. An adapter has one (adapters/onnx.py)."""

    def __call__(self, name: str, inputs: dict[str, Sequence[object]]) -> list[float]:
        """A probability a class. ``inputs``: by the graph's names, one model's numbers without the
        leading dimension. Raises LookupError, with one line that says why, where it cannot run."""


class _None:
    def __call__(self, name: str, inputs: dict[str, Sequence[object]]) -> list[float]:
        raise LookupError("nothing here runs networks")


_runner: list[Runner] = [_None()]


def use(runner: Runner) -> None:
    """Sets what runs the networks; called once at a program's start
    (flow/estimators/networks.py)."""
    _runner[0] = runner


def run(name: str, inputs: dict[str, Sequence[object]]) -> list[float]:
    """See Runner."""
    return _runner[0](name, inputs)
