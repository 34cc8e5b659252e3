# SPDX-License-Identifier: Apache-2.0
"""coloc config check|show."""

import sys
from pathlib import Path

import typer
from pydantic import ValidationError

from slurm_coloc.admin.doctor.sharing import sharing_errors
from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson
from slurm_coloc.cli.texts import reference
from slurm_coloc.config import Config, config_path, load_config, wrong_keys
from slurm_coloc.errors import ConfigError, UsageFault
from slurm_coloc.flow.estimators.calibrations import load_stacks
from slurm_coloc.flow.estimators.networks import require
from slurm_coloc.policies import policy

config_app = typer.Typer(no_args_is_help=True, help="The configuration file coloc.toml.")

FILE = typer.Argument(None, metavar="FILE", help="Default: $COLOC_CONFIG, else the installed one.")


def register(app: typer.Typer) -> None:
    """Add `config` to the command line."""
    app.add_typer(config_app, name="config")


def _wrong(err: ConfigError) -> list[str]:
    """One line for each wrong key; the whole message where the file could not be read."""
    cause = err.__cause__
    if not isinstance(cause, ValidationError):
        return [err.message]
    return wrong_keys(cause)


def _not_usable(config: Config) -> list[str]:
    """What a daemon refuses of a file whose keys are right: what they name is wrong or not here."""
    try:
        policy(config.placement.policy)
        require(config.estimate.estimator)
        load_stacks(config.estimate)
    except (ConfigError, UsageFault) as err:
        return [err.message]
    return []


@config_app.command()
def check(file: Path | None = FILE, as_json: AsJson = False) -> None:
    """Check a file: exit 0, or 3 with every wrong key named. Where slurmctld answers, sharing.with
    is checked against its partitions."""
    where = file or config_path()
    errors: list[str] = []
    try:
        config = load_config(file)
    except ConfigError as err:
        errors = _wrong(err)
    else:
        errors = _not_usable(config) or sharing_errors(config)
    built_in = not errors and file is None and not where.exists()
    if as_json:
        render.print_json(
            {"file": str(where), "valid": not errors, "built_in": built_in, "errors": errors}
        )
    for line in errors:
        print(f"coloc: {line if line.startswith(str(where)) else f'{where}: {line}'}",
              file=sys.stderr)  # fmt: skip
    if errors:
        raise typer.Exit(ConfigError.exit_code)
    if not as_json:
        print(f"{where}: no such file, the built-in defaults hold" if built_in else f"{where}: ok")


@config_app.command()
def show(
    file: Path | None = FILE,
    as_reference: bool = typer.Option(
        False, "--reference", help="Every key with unit, default and meaning, as Markdown."
    ),
    as_sample: bool = typer.Option(False, "--sample", help="A commented file to start from."),
    as_json: AsJson = False,
) -> None:
    """The configuration in force as TOML, defaults included."""
    if as_reference:
        print(reference.markdown(), end="")
    elif as_sample:
        print(reference.sample(), end="")
    else:
        config = load_config(file)
        if as_json:
            shown = config.model_dump(mode="json", by_alias=True)
            render.print_json({"file": str(file or config_path())} | shown)
        else:
            print(reference.effective(config), end="")
