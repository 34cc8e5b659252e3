# SPDX-License-Identifier: Apache-2.0
"""MODULE:CALLABLE as a user writes it: the job that it gives."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from slurm_coloc.errors import UsageFault
from slurm_coloc.summarize import sources
from slurm_coloc.summarize.jobs import Job, Wish
from slurm_coloc.summarize.losses import guessed
from slurm_coloc.summarize.optimizers import name_of
from slurm_coloc.summarize.resize import leading, resized


def maker(target: str, wish: Wish) -> Callable[[], Job]:
    """What makes the job of ``target``, with everything imported that can be beforehand.

    ``timm:NAME``, ``transformers:NAME``, ``package.module:callable`` or ``file.py:callable``.
    Raises UsageFault where there is no such thing, and what the user's module raises.
    """
    place, _, name = target.partition(":")
    if not place or not name:
        raise UsageFault(f"{target!r} is not MODULE:CALLABLE", "bad_target")
    if place == "timm":
        sources.imported("timm")
        return lambda: sources.of_timm(name, wish)
    if place == "transformers":
        sources.imported("transformers")
        return lambda: sources.of_transformers(name, wish)
    found: Any = _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageFault(f"{place} has no {name}", "bad_target")
        found = getattr(found, part)
    if not callable(found):
        return lambda: job_of(found, wish, target)
    return lambda: job_of(found(), wish, target)


def _module(place: str) -> Any:
    """By name, from the current folder or the installation; or a file."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as err:
            if err.name and place.split(".")[0] == err.name.split(".")[0]:
                raise UsageFault(
                    f"no module {place} here: it is looked for in {here} and in the packages of"
                    f" {sys.executable}",
                    "no_module",
                ) from err
            raise
    path = Path(place)
    if not path.is_file():
        raise UsageFault(f"{place}: no such file", "no_module")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageFault(f"{place}: cannot be imported", "no_module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def job_of(made: Any, wish: Wish, what: str) -> Job:
    """The job of what a user's callable gave. Raises UsageFault that says what it should give."""
    if isinstance(made, torch.nn.Module):
        return _of_module(made, wish, what)
    if isinstance(made, (tuple, list)) and len(made) == 2 and isinstance(made[0], torch.nn.Module):
        return _of_example(made[0], made[1], wish)
    model, inputs = getattr(made, "model", None), getattr(made, "inputs", None)
    if isinstance(model, torch.nn.Module) and callable(inputs):
        return Job(
            model,
            inputs,
            getattr(made, "loss", None) or guessed,
            _optimizer_name(getattr(made, "optimizer", "")),
            int(getattr(made, "batch_size", 0) or 0),
            int(getattr(made, "seq_len", 0) or 0),
        )
    raise UsageFault(
        f"{what} gave a {type(made).__name__}: it must give a torch.nn.Module, (module, example"
        " inputs), or an object with model and inputs(batch_size)",
        "bad_target",
    )


def _optimizer_name(found: Any) -> str:
    """Of an optimizer or a name; empty where there is none."""
    if isinstance(found, str) or found is None:
        return found or ""
    return name_of(found)[0]


def _of_module(model: torch.nn.Module, wish: Wish, what: str) -> Job:
    known = sources.of_module(model, wish)
    if known is not None:
        return known
    if wish.shape:
        shape = wish.shape
        return Job(model, lambda batch: (torch.randn(batch, *shape),))
    if wish.seq_len:
        tokens = wish.seq_len
        return Job(
            model, lambda batch: (torch.zeros(batch, tokens, dtype=torch.long),), seq_len=tokens
        )
    raise UsageFault(
        f"{what} gave a {type(model).__name__} and nothing says what it reads: give --input"
        " 3x224x224 or --seq-len 512, or let it give (module, example inputs)",
        "no_inputs",
    )


def _of_example(model: torch.nn.Module, example: Any, wish: Wish) -> Job:
    batch = leading(example)
    if batch is None:
        raise UsageFault("the example inputs hold no tensor with a batch dimension", "no_inputs")
    return Job(model, lambda size: resized(example, batch, size), batch_size=batch)
