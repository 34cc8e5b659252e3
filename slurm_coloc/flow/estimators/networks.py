# SPDX-License-Identifier: Apache-2.0
"""Gives the estimators what runs their networks: the one place that knows both."""

from collections.abc import Callable, Iterable
from functools import cache

from slurm_coloc.adapters.onnx import Onnx, installed
from slurm_coloc.errors import ConfigError
from slurm_coloc.estimate.api import registry
from slurm_coloc.estimate.baselines.nets.runner import use

MISSING = "onnxruntime is not installed: pip install onnxruntime"


def provide() -> None:
    """Set up what runs the networks. onnxruntime is loaded when a network first runs."""
    use(Onnx())


def without_runtime(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the named estimators that run a network and cannot, as there is no onnxruntime."""
    if installed():
        return ()
    return tuple(name for name in names if getattr(registry().get(name), "runs_network", False))


@cache  # said once, also where many requests want all
def runnable(names: tuple[str, ...], say: Callable[[str], None]) -> tuple[str, ...]:
    """The named estimators but those without_runtime, each named to ``say``."""
    left_out = without_runtime(names)
    if left_out:
        say(f"note: {', '.join(left_out)} left out: {MISSING}")
    return tuple(name for name in names if name not in left_out)


def require(name: str) -> None:
    """Raises ConfigError if the named estimator runs a network and there is no onnxruntime."""
    if without_runtime((name,)):
        raise ConfigError(f"the estimator {name} runs a network, and {MISSING}", "no_onnxruntime")
