# SPDX-License-Identifier: Apache-2.0
"""coloc init: set this host up."""

from dataclasses import asdict

import typer
from rich.text import Text

from slurm_coloc.adapters import sitefile, units
from slurm_coloc.admin import init
from slurm_coloc.admin.init import FileStep, Host, Role
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
        loaded = load_config(config)
        host = init.read(loaded, role)
        found = list(init.steps(host, share))
        refused = init.refused(loaded, host, found)
        done: list[FileStep] = []
        lacking = init.lacking(host)
        left = [f"{path}: a file of slurm-coloc" for path in lacking]
        left += [f"{step.path}: {step.problem or step.why}" for step in found if step.due]
        if apply and not refused:
            lacking = init.bring(host) if lacking else []
            done, left = init.apply(found, edit)
            if any(step.path == host.toml for step in done):
                left += units.restart([init.UNIT[one] for one in host.roles if one in init.UNIT])
        commands = init.afterwards(host, done if apply else found, share)
        if as_json:
            rows = [asdict(one) | {"path": str(one.path), "due": one.due} for one in found]
            render.print_json({
                "roles": sorted(host.roles), "files": rows, "written": [str(s.path) for s in done],
                "program": [str(path) for path in lacking], "left": left, "commands": commands,
                "refused": [asdict(one) for one in refused],
            })  # fmt: skip
        else:
            _show(host, found, done, apply)
            for path in lacking:
                say = f"{path}: {'put there' if apply else 'missing, a file of slurm-coloc'}"
                render.console().print(Text(say, style="green" if apply else "bold yellow"))
            _rest(
                [f"{one.check}: {one.found}. {one.todo}" for one in refused], left, commands, apply
            )
        if refused or left:
            raise typer.Exit(1)


def _show(host: Host, found: list[FileStep], done: list[FileStep], applied: bool) -> None:
    console = render.console()
    what = ", ".join(sorted(host.roles))
    console.print(f"{host.name}: {what}; slurm.conf is {host.conf}", soft_wrap=True)
    for step in found:
        if not step.due:
            console.print(Text(f"{step.path}: nothing to do", style="green"), soft_wrap=True)
        elif step in done:
            console.print(Text(f"{step.path}: written ({step.why})", style="green"), soft_wrap=True)
        elif step.old or step.edits:
            title = f"{step.path}: {step.why}"
            console.print(Text(title, style="bold yellow"), soft_wrap=True)
            text = sitefile.difference(step.path, step.old, step.new)
            for line in text.splitlines():
                console.print(Text(render.plain(line)), soft_wrap=True)
        else:
            verb = "not written" if applied else "new"
            title = f"{step.path}: {verb}, {len(step.new.splitlines())} lines ({step.why})"
            console.print(Text(title, style="bold yellow"), soft_wrap=True)


def _rest(refused: list[str], left: list[str], commands: list[str], applied: bool) -> None:
    console = render.console()
    for line in refused:
        console.print(Text(f"refused: {render.plain(line)}", style="bold red"), soft_wrap=True)
    if applied:
        for line in left:
            console.print(Text(f"left: {render.plain(line)}", style="yellow"), soft_wrap=True)
    if commands:
        console.print("Then:" if applied else "Afterwards:")
        for line in commands:
            console.print(f"    {line}", soft_wrap=True)
    if not applied and left and not refused:
        console.print(
            "Nothing was changed: --apply writes, with --edit FILE for Slurm's own files."
        )
