# SPDX-License-Identifier: Apache-2.0
"""The import rules of the architecture, read from the source with ast.

They hold for every file that is in slurm_coloc, lazy imports and type-only ones included: a rule
that a function-level import can step around is no rule.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "slurm_coloc"
FILES = sorted((ROOT / PACKAGE).rglob("*.py"))
MODULES = {
    ".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in FILES
}

# Standard modules whose use cannot make one snapshot give two decisions: no I/O, clock, randomness
# or process state. datetime is not here: it reads the clock.
PURE_WORDS = """
__future__ abc base64 binascii bisect collections contextlib copy dataclasses decimal enum
fractions functools hashlib heapq hmac html ipaddress itertools json math operator re statistics
string struct textwrap types typing unicodedata zlib
"""
PURE = frozenset(PURE_WORDS.split())
# Estimators and policies are found by looking into their own package, and say what is wrong.
REGISTRY = frozenset({"importlib", "logging", "pkgutil"})

# Files of core and estimate that touch more than their arguments, and what they need it for.
ALSO = {
    # their own C: numbers in, numbers out
    "slurm_coloc.planning.schedules.native": {"array", "ctypes", "importlib"},
    "slurm_coloc.estimate.replay.native": {"array", "ctypes", "importlib"},
    "slurm_coloc.estimate.reading": {"os", "stat", "sys"},  # opens the one file of a summary
    "slurm_coloc.estimate.api": {"time"},  # how long an estimate took; decides nothing
}

# Layer -> parts of slurm_coloc that it may import; None = no limit beyond the other rules.
MAY_IMPORT: dict[str, frozenset[str] | None] = {
    "errors": frozenset(),
    "core": frozenset({"core", "errors"}),
    "policies": frozenset({"core", "policies", "errors"}),
    "estimate": frozenset({"core", "estimate", "errors"}),
    "summarize": frozenset({"estimate", "summarize", "errors"}),
    "config": frozenset({"core", "config", "errors"}),
    "adapters": frozenset({"core", "adapters", "config", "errors"}),
    # in users' programs: what it imports they must have
    "checkpoint": frozenset({"checkpoint", "errors"}),
    "lab": frozenset({"lab", "core", "config", "errors"}),
    "admin": frozenset(
        {"admin", "flow", "core", "policies", "estimate", "adapters", "config", "errors"}
    ),
    "planning": frozenset({"core", "planning", "errors"}),
    "sim": frozenset({"core", "planning", "policies", "sim", "errors"}),
    "flow": frozenset(
        {"core", "planning", "policies", "estimate", "adapters", "flow", "config", "errors"}
    ),
    "daemon": None,
    "front": None,
    "agent": None,
    "lean": frozenset(),
    "logs": frozenset({"core"}),
    "cli": None,
    "__main__": None,
}
# What stands outside: only an adapter speaks to it, so that only an adapter changes with it.
ONLY_ADAPTERS = frozenset(
    {"pynvml", "pyslurm", "sqlite3", "sqlite_utils", "onnxruntime", "pydcgm", "dcgm_agent"}
)
# Beside the package in the tree, never part of an installation.
NOT_INSTALLED = frozenset({"estimator", "tests", "docker", "etc"})
# Heavy, and only for whoever has a model in hand.
TORCH = frozenset({"torch", "torchvision", "torchinfo", "torchsummary", "tensorflow", "keras"})
MAY_USE_TORCH = frozenset({"summarize"})
# A program that `coloc calibrate` gives to the Python that has torch; it imports nothing of ours.
TORCH_PROGRAMS = frozenset({"slurm_coloc.adapters.cuda.job"})


class Import(NamedTuple):
    """One imported module, and the line that does it."""

    line: int
    module: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def layer(self) -> str | None:
        """The part of slurm_coloc, e.g. "core"; "" for the package itself; None for others."""
        if self.top != PACKAGE:
            return None
        return [*self.module.split("."), ""][1]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def layer_of(path: Path) -> str:
    """The part of slurm_coloc that a file is in; a file at the top is a part of its own."""
    return path.relative_to(ROOT / PACKAGE).with_suffix("").parts[0]


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file, which each rule looks at."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Every import in a file; `from a import b` counts as a.b where that is a module."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Import]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module_of(path).split(".")[: -node.level]
                base = ".".join([*parts, *([base] if base else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(node.lineno, full if full in MODULES else base)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def of_layer(*layers: str) -> list[Path]:
    return [path for path in FILES if layer_of(path) in layers]


def below(*folders: str) -> list[Path]:
    """The files of folders of slurm_coloc."""
    found = [path for folder in folders for path in (ROOT / PACKAGE / folder).rglob("*.py")]
    assert found, folders
    return sorted(found)


def test_there_is_something_to_check() -> None:
    assert f"{PACKAGE}.errors" in MODULES


@pytest.mark.parametrize("path", FILES, ids=name)
def test_layers(path: Path) -> None:
    """A part imports only the parts below it."""
    layer = layer_of(path)
    if layer == "__init__":
        layer = "errors"  # the package itself: imports nothing
    assert layer in MAY_IMPORT, f"{layer}: a new part of {PACKAGE} needs its line in MAY_IMPORT"
    allowed = MAY_IMPORT[layer]
    wrong = [
        found
        for found in imports(path)
        if allowed is not None and found.layer and found.layer not in allowed
    ]
    assert not wrong, f"{layer} may import {sorted(allowed or ())} only"


@pytest.mark.parametrize(
    "path", [*of_layer("core"), *below("admin/rules", "planning", "sim/search")], ids=name
)
def test_core_is_pure(path: Path) -> None:
    """No I/O, clock or randomness in core and its like: nor by a built-in."""
    wrong: list[object] = [
        found
        for found in imports(path)
        if found.layer is None and found.top not in PURE | ALSO.get(module_of(path), set())
    ]
    for node in ast.walk(parsed(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"open", "print", "input", "eval", "exec", "__import__"}
        ):
            wrong.append((node.lineno, node.func.id))
    assert not wrong


@pytest.mark.parametrize("path", of_layer("policies", "estimate"), ids=name)
def test_policies_and_estimators_do_no_io(path: Path) -> None:
    """They are told everything: the text, the request, the cluster, the history."""
    allowed = PURE | REGISTRY | {"pydantic"} | ALSO.get(module_of(path), set())
    wrong = [found for found in imports(path) if found.layer is None and found.top not in allowed]
    assert not wrong


@pytest.mark.parametrize("path", of_layer("adapters"), ids=name)
def test_no_adapter_imports_another(path: Path) -> None:
    """An adapter is one file, or one folder, below adapters/."""

    def adapter(module: str) -> str:
        return [*module.split("."), "", ""][2]

    own = adapter(module_of(path))
    wrong = [
        found
        for found in imports(path)
        if found.layer == "adapters" and adapter(found.module) not in {own, ""}
    ]
    assert not wrong


@pytest.mark.parametrize("path", FILES, ids=name)
def test_who_may_import_the_outside(path: Path) -> None:
    """Adapters alone speak to NVML, Slurm's bindings and SQLite; torch is for `coloc summarize`."""
    wrong = []
    for found in imports(path):
        if (
            (found.top in ONLY_ADAPTERS and layer_of(path) != "adapters")
            or (
                found.top in TORCH
                and layer_of(path) not in MAY_USE_TORCH
                and module_of(path) not in TORCH_PROGRAMS
            )
            or found.top in NOT_INSTALLED
        ):
            wrong.append(found)
    assert not wrong


@pytest.mark.parametrize("path", FILES, ids=name)
def test_lab_and_command_line_are_leaves(path: Path) -> None:
    """The lab is reached by `coloc lab` alone, the command line by __main__ alone."""
    layer = layer_of(path)
    for found in imports(path):
        if found.layer == "lab":
            assert layer == "lab" or module_of(path) == f"{PACKAGE}.cli.lab", found
        if found.layer == "cli":
            assert layer in {"cli", "__main__"}, found
