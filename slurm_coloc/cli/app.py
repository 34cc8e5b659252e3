# SPDX-License-Identifier: Apache-2.0
"""Builds the command line from its subcommand files and maps errors to exit codes."""

import inspect
import re
import sys
from importlib import import_module

import typer

from slurm_coloc import __version__
from slurm_coloc.core.text import printable
from slurm_coloc.errors import ColocError

# Subcommand and its file; each file has register(app).
COMMANDS = {
    "estimate": "estimate",
    "summarize": "summarize",
    "calibrate": "calibrate",
    "serve": "serve",
    "agent": "agent",
    "jobs": "jobs",
    "eta": "eta",
    "gpus": "gpus",
    "top": "top",
    "history": "history",
    "explain": "explain",
    "report": "report",
    "advise": "advise",
    "config": "configcmd",
    "init": "init",
    "doctor": "doctor",
    "replay": "replay",
    "limits": "limits",
    "leave": "leave",
    "mig": "mig",
    "simulate": "simulate",
    "lab": "lab",
}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slurm-coloc {__version__}")
        raise typer.Exit


def build() -> typer.Typer:
    """The whole command line as a typer application."""
    app = typer.Typer(
        name="coloc",
        help="GPU sharing for deep-learning training on Slurm.",
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ) -> None:
        """GPU sharing for deep-learning training on Slurm."""

    # Only the file that is asked for is imported: `coloc jobs` need not load the estimators.
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    for name in [COMMANDS[asked]] if asked in COMMANDS else COMMANDS.values():
        import_module(f"slurm_coloc.cli.{name}").register(app)
    _unwrap(app)
    return app


def _unwrap(app: typer.Typer) -> None:
    """Make each paragraph of a command's help one line: typer wraps it for the terminal, and breaks
    it at the ends of the docstring's lines as well."""
    for command in app.registered_commands:
        text = command.help or inspect.getdoc(command.callback) or ""
        command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _unwrap(group.typer_instance)


def run() -> int:
    """Run the command line; one clear line on stderr and the documented code on an error."""
    try:
        code = build()(prog_name="coloc", standalone_mode=False)
    except ColocError as err:
        # Further lines of ours are indented: a line break in somebody's text is escaped.
        lines = map(printable, re.split(r"\n(?=  )", f"coloc: {err.message}"))
        print("\n".join(lines), file=sys.stderr)
        return err.exit_code
    except typer.Exit as err:
        return err.exit_code
    except typer.Abort:
        return 130
    except Exception as err:
        # click's own usage errors carry show() and exit code 2; anything else is a defect.
        show = getattr(err, "show", None)
        if show is None:
            raise
        show()
        return 2
    return code if isinstance(code, int) else 0
