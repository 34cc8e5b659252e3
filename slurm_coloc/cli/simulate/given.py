# SPDX-License-Identifier: Apache-2.0
"""The scenario that a call of ``coloc simulate`` gives: its file, --set, and options, checked."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from slurm_coloc.cli.simulate.scenario import Scenario
from slurm_coloc.cli.texts.reference import option_of, type_of
from slurm_coloc.config.base import Section
from slurm_coloc.errors import UsageFault

#: keys of which one that is given on the command line replaces all of the file's
INSTEAD = (("trace", "sacct", "observed", "philly", "helios"), ("policy", "compare"))


@cache
def tables() -> Mapping[str, type[Section]]:
    """The tables of a scenario by name; "" for the keys that stand above all tables."""
    below = {
        name: field.annotation
        for name, field in Scenario.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }
    return {"": Scenario, **below}


@cache
def keys() -> Mapping[str, FieldInfo]:
    """Every key by its full name, such as monitor.window_s."""
    return {
        f"{table}.{name}" if table else name: field
        for table, model in tables().items()
        for name, field in model.model_fields.items()
        if table or name not in tables()
    }


def scenario_of(path: Path | None, sets: Sequence[str], options: Mapping[str, object]) -> Scenario:
    """The scenario of a file, over which --set and then the options win. ``options``: by key.
    Raises UsageFault naming every wrong key."""
    line = [_assignment(text) for text in sets]
    line += [(key, value, _label(key, value)) for key, value in options.items()]
    named = {key for key, *_ in line}
    replaced = {key for group in INSTEAD if named.intersection(group) for key in group}
    given = [] if path is None else [one for one in _of_file(path) if one[0] not in replaced]
    given += line
    wrong = [f"{label}: {_unknown(key)}" for key, _, label in given if key not in keys()]
    if wrong:
        raise UsageFault("; ".join(wrong))
    data: dict[str, Any] = {}
    for key, value, _ in given:
        table, _, name = key.rpartition(".")
        (data.setdefault(table, {}) if table else data)[name] = value
    try:
        return Scenario.model_validate(data)
    except ValidationError as err:
        labels = {key: label for key, _, label in given}
        raise UsageFault("; ".join(_faults(err, labels))) from None


def _assignment(text: str) -> tuple[str, object, str]:
    """(key, value, where it was given) of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageFault(f"--set {text}: not KEY=VALUE, e.g. monitor.window_s=30")
    return key.strip(), value.strip(), f"--set {text}"


def _label(key: str, value: object) -> str:
    shown = ",".join(map(str, value)) if isinstance(value, list) else value
    return f"{option_of(key, keys()[key]).partition('/')[0]} {shown}"


def _of_file(path: Path) -> Iterator[tuple[str, object, str]]:
    """(key, value, where it was given) of each key of a file. A path in it begins at its folder."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise UsageFault(f"{path}: cannot be read: {err.strerror or err}") from err
    except ValueError as err:
        raise UsageFault(f"{path}: not TOML: {err}") from err
    for name, content in document.items():
        inside = content.items() if isinstance(content, dict) and content else [("", content)]
        for below, value in inside:
            key = f"{name}.{below}" if below else name
            if key in keys() and type_of(keys()[key]) is Path and value:
                value = path.parent / str(value)
            yield key, value, f"{path}: {key}"


def _unknown(key: str) -> str:
    """What is said of a key that does not exist: the nearest one that does."""
    names = {known.rpartition(".")[2]: known for known in keys()} | {one: one for one in keys()}
    near = get_close_matches(key, names, 1) or get_close_matches(key.rpartition(".")[2], names, 1)
    return f"no such key; did you mean {names[near[0]]}?" if near else "no such key"


def _faults(err: ValidationError, labels: Mapping[str, str]) -> Iterator[str]:
    for item in err.errors():
        place = ".".join(map(str, item["loc"]))
        key = max((key for key in labels if f"{place}.".startswith(f"{key}.")), key=len)
        choices = [one for one in get_args(type_of(keys()[key])) if isinstance(one, str)]
        text = item["msg"].replace("Input should", "must")
        yield f"{labels[key]}: " + (f"one of {', '.join(choices)}" if choices else text)
