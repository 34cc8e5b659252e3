# SPDX-License-Identifier: Apache-2.0
"""docs/reference, made from the code: python -m slurm_coloc.cli.texts.pages docs/reference"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from slurm_coloc.cli.app import build
from slurm_coloc.cli.simulate import given
from slurm_coloc.cli.texts import manual, reference, schemas
from slurm_coloc.cli.texts.codes import PARTS
from slurm_coloc.core.metrics.catalog import OF_AGENT, OF_COLOCD, Metric

MADE_BY = "python -m slurm_coloc.cli.texts.pages docs/reference"
HEAD = f"""\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by {MADE_BY} (make docs); edit the code instead. -->
"""

COMMANDS = """\
# Command line

Every command and option of `coloc`. Data go to standard output, messages to standard error. With
`--json` the answer is one JSON object with a schema number. `coloc COMMAND --help` prints the same
text. The options of `sbatch` are on the page [Options](../user/options.md).

slurmd calls two more commands by the scripts coloc-prolog and coloc-epilog; nobody else does:
`coloc prolog` and `coloc epilog`. `prolog/README.md` and `epilog/README.md` describe them.
"""

CODES = """\
# Codes

Short words that stand in `coloc explain`, in the JSON of `coloc jobs` and `coloc history` and in
colocd's log, and what each means. `coloc explain --code WORD` tells one.
"""

SCENARIOS = """\
# Scenarios

The keys of a scenario, for `coloc simulate --scenario FILE.toml` and `--set KEY=VALUE`. A key in a
table is written `TABLE.KEY` after `--set`. A path in the file begins at the file's folder. Options
win over `--set`, and both over the file. [Simulate](../simulate.md) has examples.
"""

METRICS = """\
# Metrics

What agents and colocd tell Prometheus at `/metrics`. [Metrics](../admin/metrics.md) says how to
turn it on and what to do with it. A figure that is not known has no series.

Labels: `slurmjobid` is SLURM_JOB_ID. `gpu` is NVML's number of the GPU, `0:7` for GPU instance 7
of GPU 0 (`0:7:1` for its second compute instance). `UUID` and `GPU_I_ID` are the whole GPU's UUID
and the GPU instance as dcgm-exporter has them. `user`, `account` and `userid` are empty where
PrivateData hides jobs or users.
"""
ANSWERS = """\
# Answers as JSON

What `--json` prints, from the same records as the schemas in `schemas/`, which packages put into
/usr/share/slurm-coloc/schemas. A later release may add fields, and none changes its meaning.
Memory is MiB of one GPU, times are Unix seconds, activities are ratios. A figure that is not known
is null, never 0.
"""
GROUPS = {
    "coloc": "The agent: our own names",
    "slurm_job": "The agent: the names of slurm-job-exporter",
    "nvidia_gpu": "The agent: the names that jobstats reads",
}


def _cell(text: str) -> str:
    """Text for one cell of a table, on one line."""
    return " ".join(text.replace("\f", "").split()).replace("|", "\\|")


def _table(first: str, second: str, rows: Iterable[tuple[object, str]]) -> Iterator[str]:
    yield f"| {first} | {second} |"
    yield "|---|---|"
    for name, text in rows:
        yield f"| `{_cell(str(name))}` | {_cell(text)} |"
    yield ""


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    words = [manual.argument(p) for p in command.params if _is(p, "argument")]
    yield f"## coloc {' '.join(path)}"
    yield ""
    yield f"    coloc {' '.join([*path, *words])} [OPTIONS]"
    yield ""
    for paragraph in (command.help or "").replace("\f", "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    yield from _table("option", "meaning", manual.options_of(command))


def _is(param: Any, kind: str) -> bool:
    return str(param.param_type_name) == kind


def command_line() -> str:
    """The page of all commands."""
    lines = [COMMANDS]
    for path, command in manual.leaves(get_command(build())):
        lines += _command(path, command)
    return "\n".join(lines)


def scenarios() -> str:
    """The page of what `coloc simulate` can be given."""
    lines = [SCENARIOS]
    for name, model in given.tables().items():
        about = " ".join((model.__doc__ or "").split()).rpartition("] ")[2]
        lines += [f"## [{name}]" if name else "## Above all tables", "", about, ""]
        inside = {key: one for key, one in given.keys().items() if key.rpartition(".")[0] == name}
        lines += reference.table({key.rpartition(".")[2]: one for key, one in inside.items()})
    return "\n".join(lines)


def codes() -> str:
    """The page of the words that answers and logs use."""
    lines = [CODES]
    for title, about, words in PARTS:
        lines += [f"## {title}", "", about, "", *_table("code", "meaning", words.items())]
    lines += ["## Exit codes of coloc", "", *_table("code", "meaning", manual.EXITS)]
    return "\n".join(lines)


def metrics() -> str:
    """The page of all metrics."""
    lines = [METRICS]
    for key, found in OF_AGENT.items():
        about = f"`metrics.names` has `{key}`."
        lines += [f"## {GROUPS[key]}", "", about, "", *_metrics(found)]
    lines += ["## colocd", "", *_metrics(OF_COLOCD)]
    return "\n".join(lines)


def answers() -> str:
    """The page of the answers as JSON."""
    lines = [ANSWERS]
    for name, model in schemas.SCHEMAS.items():
        found = model.model_json_schema()
        lines += [f"## {found['title']}", "", f"{model.__doc__} (`schemas/{name}.schema.json`)", ""]
        inside = found.get("$defs", {})
        for title, one in [("", found), *inside.items()]:
            if "properties" not in one:
                continue  # a list of words, which stands where it is used
            if title:
                lines += [f"`{title}`: {one['description']}", ""]
            rows = ((key, _type(each, inside)) for key, each in one["properties"].items())
            lines += _table("field", "type", rows)
    return "\n".join(lines)


def _type(found: Mapping[str, Any], inside: Mapping[str, Any]) -> str:
    """A field's type in words."""
    if "$ref" in found:
        name = str(found["$ref"].rpartition("/")[2])
        return name if "properties" in inside[name] else _type(inside[name], inside)
    if "anyOf" in found:
        return " or ".join(_type(one, inside) for one in found["anyOf"])
    if "enum" in found or "const" in found:
        return ", ".join(json.dumps(one) for one in found.get("enum", [found.get("const")]))
    if found.get("type") == "array":
        return f"array of {_type(found['items'], inside)}"
    if found.get("maximum") == 1:
        return "0 or 1"
    return str(found.get("type", "any"))


def _metrics(found: Iterable[Metric]) -> Iterator[str]:
    yield "| metric | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for one in found:
        end = {"counter": "_total", "info": "_info"}.get(one.kind, "")
        labels = ", ".join(f"`{label}`" for label in one.labels) or "-"
        yield f"| `{one.name}{end}` | {one.kind} | {labels} | {_cell(one.text)} |"
    yield ""


def pages() -> dict[str, str]:
    """Every page by its file name, complete."""
    made = {
        "command-line.md": command_line(),
        "configuration.md": reference.markdown(),
        "scenarios.md": scenarios(),
        "codes.md": codes(),
        "metrics.md": metrics(),
        "json.md": answers(),
    }
    return {name: HEAD + text.rstrip("\n") + "\n" for name, text in made.items()}


def main(folder: Path) -> None:
    """Write the pages into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "schemas").mkdir(exist_ok=True)
    for name in schemas.SCHEMAS:
        path = folder / "schemas" / f"{name}.schema.json"
        path.write_text(schemas.schema(name), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
