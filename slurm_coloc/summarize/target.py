# SPDX-License-Identifier: Apache-2.0
"""MODULE:CALLABLE as a user writes it: the job that it gives."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_coloc.errors import UsageFault
from slurm_coloc.summarize import sources
from slurm_coloc.summarize.jobs import Job, Wish, job_of


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
