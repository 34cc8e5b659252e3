# SPDX-License-Identifier: Apache-2.0
"""``coloc simulate``: what a policy would do to a trace of jobs, or to last month's.

The options are those keys of a scenario (`scenario`) that carry one; `given` reads and checks them
with the file of --scenario, `request` makes experiments of them, `answer` runs and prints these.
"""

from collections.abc import Iterator
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer
from pydantic.fields import FieldInfo

from slurm_coloc.cli.simulate.answer import answer
from slurm_coloc.cli.simulate.given import keys, scenario_of, tables
from slurm_coloc.cli.simulate.request import request_of
from slurm_coloc.cli.texts.reference import bounds, option_of, type_of

OUT = "Scenario and output"
SCENARIO = typer.Option(
    help="A file of keys (TOML); options and --set win over it. All keys: the page Scenarios.",
    rich_help_panel=OUT,
)
SET = typer.Option(
    "--set",
    metavar="KEY=VALUE",
    help="Set a key of the scenario, e.g. monitor.window_s=30; may be repeated.",
    rich_help_panel=OUT,
)
PLOT = typer.Option(help="Draw a picture (PNG, SVG or PDF).", rich_help_panel=OUT)
MARKDOWN = typer.Option(
    help="With --sacct or --observed: write the page as Markdown.", rich_help_panel=OUT
)
JSON = typer.Option("--json", help="Print JSON.", rich_help_panel=OUT)


def command(
    scenario: Annotated[Path | None, SCENARIO] = None,
    sets: Annotated[list[str] | None, SET] = None,
    plot: Annotated[Path | None, PLOT] = None,
    markdown: Annotated[Path | None, MARKDOWN] = None,
    as_json: Annotated[bool, JSON] = False,
    **options: Any,
) -> None:
    """Play jobs under a policy and tell what it gains.

    With --trace the jobs are those of a CSV file. With --sacct they are those of your own
    accounting, and the answer is one page for an admin: what sharing GPUs would have done to them,
    and what was assumed. With --observed they are those that the agents measured here while colocd
    observed, with their own GPU memory and SM activity. Nothing is asked of Slurm and nothing is
    changed.

    Options are for what is often changed. Every other assumption is a key, set by --set or in the
    file of --scenario.
    """
    given = {
        key: options[_parameter(option)]
        for key, field in keys().items()
        if (option := option_of(key, field)) and options[_parameter(option)] not in (None, [])
    }
    request = request_of(scenario_of(scenario, sets or [], given))
    answer(request, as_json=as_json, plot=plot, markdown=markdown)


def _parameter(option: str) -> str:
    """The name of the parameter that an option fills."""
    return option.partition("/")[0].strip("-").replace("-", "_")


def _parameters() -> Iterator[Parameter]:
    """A parameter for each key that has an option, in the order of the keys; then the others."""
    for key, field in keys().items():
        if option := option_of(key, field):
            table = tables()[key.rpartition(".")[0]]
            panel = (table.__doc__ or "").rpartition("] ")[2]
            value = typer.Option(None, option, help=_help(field), rich_help_panel=panel)
            name, kind = _parameter(option), _kind(field) | None
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=kind)
    for one in Signature.from_callable(command).parameters.values():
        if one.kind is not Parameter.VAR_KEYWORD:
            yield one.replace(kind=Parameter.KEYWORD_ONLY)


def _help(field: FieldInfo) -> str:
    """The text of a key with its range, and its default where the text does not name it."""
    text = str(field.description)
    if not isinstance(field.default, bool) and field.default not in (None, "", ()):
        text += f" Default: {field.default}."
    return text + f" Range: {range_}." if (range_ := bounds(field)) else text


def _kind(field: FieldInfo) -> Any:
    """The type of an option: that of its key, where the command line knows it; else text."""
    kind = type_of(field)
    if get_origin(kind) is tuple:
        return list[str]
    return kind if kind in (bool, int, float, Path) else str


command.__signature__ = Signature([*_parameters()])  # type: ignore[attr-defined]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("simulate")(command)
