# SPDX-License-Identifier: Apache-2.0
"""coloc init: set this host up."""

from dataclasses import asdict

import typer
from rich.text import Text

from slurm_coloc.adapters import sitefile
from slurm_coloc.admin import init
from slurm_coloc.admin.init import Result, Role
from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson, ConfigFile
from slurm_coloc.config import load_config
from slurm_coloc.errors import UsageFault
from slurm_coloc.logs import set_up_log


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command("init")
    def init_(
        config: ConfigFile = None,
        share: bool = typer.Option(
            False, "--share", help="Also what sharing needs: shards, and the plugin on GPU nodes."
        ),
        apply: bool = typer.Option(False, "--apply", help="Write the files."),
        edit: list[str] = typer.Option(
            [],
            "--edit",
            metavar="FILE",
            help="With --apply: this file of Slurm's too (slurm.conf, gres.conf, plugstack.conf,"
            " job_submit.lua); may be given several times.",
        ),
        role: list[Role] = typer.Option(
            [], "--role", help="Take this host for that, whatever slurm.conf says."
        ),
        dry_run: bool = typer.Option(False, "--dry-run", help="Only show it (the default)."),
        as_json: AsJson = False,
    ) -> None:
        """Set this host up: shows each file that would change, and writes it with --apply.

        It finds out whether this is slurmctld's host, a GPU node or a login node. Without --share
        slurm-coloc observes: no job is changed. Files of Slurm's are changed only where --edit
        names them, never through a symbolic link; the first text of each is kept in
        /etc/slurm-coloc/before, and `coloc leave --edit` puts it back. Slurm is never restarted:
        the commands for that are printed. An order that would drain a node is refused. It ends
        with 0 when nothing is left to do, else with 1.
        """
        set_up_log("logfmt")
        if edit and not apply:
            raise UsageFault("--edit goes with --apply")
        if apply and dry_run:
            raise UsageFault("--apply and --dry-run exclude each other")
        result = init.run(load_config(config), share=share, write=apply, named=edit, given=role)
        if as_json:
            render.print_json(_plain(result))
        else:
            _show(result, apply)
            _rest(result, apply)
        if result.refused or result.left:
            raise typer.Exit(1)


def _plain(result: Result) -> dict[str, object]:
    rows = [asdict(one) | {"path": str(one.path), "due": one.due} for one in result.found]
    return {
        "roles": sorted(result.host.roles),
        "files": rows,
        "written": [str(step.path) for step in result.done],
        "program": [str(path) for path in result.program],
        "refused": [asdict(one) for one in result.refused],
        "left": list(result.left),
        "commands": list(result.commands),
    }


def _show(result: Result, applied: bool) -> None:
    host = result.host
    _print(f"{host.name}: {', '.join(sorted(host.roles))}; slurm.conf is {host.conf}")
    for path in result.program:
        _print(f"{path}: {'put there' if applied else 'missing, a file of slurm-coloc'}")
    for step in result.found:
        if not step.due:
            _print(f"{step.path}: nothing to do", "green")
        elif step in result.done:
            _print(f"{step.path}: written ({step.why})", "green")
        elif step.old or step.edits:
            _print(f"{step.path}: {step.why}", "bold yellow")
            for line in sitefile.difference(step.path, step.old, step.new).splitlines():
                _print(line)
        else:
            verb = "not written" if applied else "new"
            lines = len(step.new.splitlines())
            _print(f"{step.path}: {verb}, {lines} lines ({step.why})", "bold yellow")


def _rest(result: Result, applied: bool) -> None:
    for one in result.refused:
        _print(f"refused: {one.check}: {one.found}. {one.todo}", "bold red")
    for line in result.left if applied else ():
        _print(f"left: {line}", "yellow")
    if result.commands:
        _print("Then:" if applied else "Afterwards:")
        for line in result.commands:
            _print(f"    {line}")
    if not applied and result.left and not result.refused:
        _print("Nothing was changed: --apply writes, with --edit FILE for Slurm's own files.")


def _print(text: str, style: str = "default") -> None:
    render.console().print(Text(render.plain(text), style=style), soft_wrap=True)
