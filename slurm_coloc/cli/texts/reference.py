# SPDX-License-Identifier: Apache-2.0
"""The configuration written out: the values in force, the reference and the sample, all made from
the model in slurm_coloc.config so that they cannot differ from it."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from slurm_coloc.config import Config, ModeRule, SharingRule
from slurm_coloc.config.toml import toml_value

# Suffixes that name a unit (STYLE: units end names).
UNITS = {"_mib": "MiB", "_kib": "KiB", "_s": "s", "_pct": "%", "_ratio": "ratio"}

HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# slurm-coloc: /etc/slurm-coloc/coloc.toml
#
# Every key with its default. Uncomment what you change, then:
#     coloc config check && systemctl reload slurm-coloc
# After an installation nothing is changed (observe): jobs go as submitted, and `coloc history`
# shows what would have been done. Then set mode.default, or rules for a first partition, to "on".
"""

# Arrays of tables, by name: their model, and what the sample shows of them.
ARRAYS: dict[str, tuple[type[BaseModel], str]] = {
    "mode.rules": (
        ModeRule,
        """
# The first rule whose fields all match decides the mode of a job.
# [[mode.rules]]
# partition = "gpu-small"
# mode = "on"
""",
    ),
    "sharing.rules": (
        SharingRule,
        """
# The first rule whose fields all match a GPU decides how it is shared. node: as Slurm lists nodes;
# gpu: the minor number of its device file (/dev/nvidia0: 0), or its UUID; method: mps or streams.
# [[sharing.rules]]
# node = "gpu[01-04]"
# gpu = "0"
# method = "streams"
""",
    ),
}


def unit(name: str) -> str:
    """The unit that a field's name ends in, or a dash."""
    return next((text for end, text in UNITS.items() if name.endswith(end)), "-")


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Tables of the file, the array of tables included."""
    for name, field in Config.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield name, kind
            if f"{name}.rules" in ARRAYS:
                yield f"{name}.rules", ARRAYS[f"{name}.rules"][0]


def effective(config: Config) -> str:
    """The values in force as TOML; a key that is not set is a comment."""
    out = [f"version = {config.version}"]
    for name, _ in sections():
        if name in ARRAYS:
            for rule in getattr(config, name.partition(".")[0]).rules:
                out += ["", f"[[{name}]]", *_pairs(rule)]
        else:
            out += ["", f"[{name}]", *_pairs(getattr(config, name))]
    return "\n".join(out) + "\n"


def _pairs(section: BaseModel) -> Iterator[str]:
    for name, field in type(section).model_fields.items():
        value, key = getattr(section, name), field.alias or name
        if name == "rules":
            continue
        yield f"# {key} is not set" if value is None else f"{key} = {toml_value(value)}"


def _default(field: FieldInfo) -> Any:
    return None if field.default is PydanticUndefined else field.default


def type_of(field: FieldInfo) -> Any:
    """The type of a field, without the None that it may also be."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    optional = type(None) in get_args(field.annotation)
    return kinds[0] if optional else field.annotation


def option_of(key: str, field: FieldInfo) -> str:
    """The option that also sets a key, such as --budget or --plan/--no-plan; "" for none."""
    extra = field.json_schema_extra
    if not isinstance(extra, dict):
        return ""
    return str(extra["option"] or f"--{key.rpartition('.')[2].replace('_', '-')}")


def _kind(field: FieldInfo) -> str:
    """The type in words; a choice with its values."""
    kind = type_of(field)
    parts = [arg for one in (kind, *get_args(kind)) for arg in get_args(one)]
    words = [f"`{arg}`" for arg in dict.fromkeys(parts) if isinstance(arg, str)]
    words += ["`true`", "`false`"] if words and bool in parts else []
    if words:
        return " \\| ".join(words)
    text = str(getattr(kind, "__name__", kind))
    names = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
    names |= {"Path": "path", "tuple": "list", "Optional": "text", "Union": "text"}
    return names.get(text.split("[")[0], "path" if "Path" in text else "text")


def bounds(field: FieldInfo) -> str:
    """The range of a field, e.g. >= 1 and <= 48; "" for none."""
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    found = [
        f"{sign} {getattr(item, name)}"
        for item in field.metadata
        for name, sign in signs.items()
        if getattr(item, name, None) is not None
    ]
    return " and ".join(found)


def markdown() -> str:
    """The reference: every field with unit, default and description."""
    out = ["# coloc.toml", ""]
    out += ["`version = 1` is the version of the file's layout. An unknown key is an error.", ""]
    for name, kind in sections():
        title = f"[[{name}]]" if name in ARRAYS else f"[{name}]"
        about = " ".join((kind.__doc__ or "").split()).split("] ", 1)[-1]
        fields = {key: field for key, field in kind.model_fields.items() if key != "rules"}
        out += [f"## {title}", "", about, "", *table(fields)]
    return "\n".join(out)


def table(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    """The keys of a table of a file, as a table of a page."""
    yield "| key | type | unit | default | description |"
    yield "|---|---|---|---|---|"
    for key, field in fields.items():
        value = _default(field)
        shown = "required" if field.is_required() else "none"
        shown = shown if value is None else f"`{toml_value(value)}`"
        text = ", ".join(filter(None, (_kind(field), bounds(field))))
        also = f" Option: `{option}`." if (option := option_of(key, field)) else ""
        about = f"{field.description}{also}"
        yield f"| `{field.alias or key}` | {text} | {unit(key)} | {shown} | {about} |"
    yield ""


def sample() -> str:
    """etc/coloc.toml: every key as a comment above its default, the mode spelled out."""
    out = [HEAD, "version = 1"]
    for name, kind in sections():
        if name in ARRAYS:
            out.append(ARRAYS[name][1].rstrip("\n"))
            continue
        out += ["", f"[{name}]"]
        for key, field in kind.model_fields.items():
            if key == "rules":
                continue
            out += [f"# {line}" for line in textwrap.wrap(str(field.description), 96)]
            value = _default(field)
            line = f"{field.alias or key} = {toml_value('' if value is None else value)}"
            spelled = (name, key) == ("mode", "default")
            out += [line if spelled else f"#{line}", ""]
        out.pop()
    return "\n".join(out) + "\n"
