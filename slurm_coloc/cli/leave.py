# SPDX-License-Identifier: Apache-2.0
"""coloc leave: back to plain Slurm, step by step."""

import time
from collections.abc import Callable
from dataclasses import asdict

import typer
from rich.text import Text

from slurm_coloc.adapters import programfiles
from slurm_coloc.admin.doctor.network import colocd_on_another_host, found_colocd
from slurm_coloc.admin.leave import Facts, State, run, steps
from slurm_coloc.admin.leave.plan import Step
from slurm_coloc.admin.leave.undo import take_back
from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson, ConfigFile
from slurm_coloc.config import load_config
from slurm_coloc.errors import UsageFault
from slurm_coloc.logs import set_up_log

POLL_S = 5.0
COLOURS = {
    State.DONE: "green",
    State.NEXT: "bold yellow",
    State.WAITS: "dim",
    State.BY_HAND: "bold yellow",
}


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def leave(
        config: ConfigFile = None,
        yes: bool = typer.Option(False, "--yes", help="Do what can be done from here."),
        dry_run: bool = typer.Option(False, "--dry-run", help="Only show it (the default)."),
        edit: list[str] = typer.Option(
            [],
            "--edit",
            metavar="FILE",
            help="With --yes: take back what coloc init wrote into this file of this host"
            " (slurm.conf, gres.conf, plugstack.conf, job_submit.lua); may be given several times.",
        ),
        program: bool = typer.Option(
            False, "--program", help="With --yes: remove the files that coloc init put here."
        ),
        wait: bool = typer.Option(False, "--wait", help="With --yes: until no job has shards."),
        as_json: AsJson = False,
    ) -> None:
        """Go back to plain Slurm without losing a job: what is done, and what comes next.

        Run it on slurmctld's host as root. --yes switches slurm-coloc off and turns the jobs that
        wait for shards, held ones too, into jobs for whole GPUs. Running shares are waited for.
        Then it names the lines to take out of slurm.conf, gres.conf and plugstack.conf, and in
        which order. --edit puts a file of this host back as it was before `coloc init`, when its
        turn has come. Each step is found from what Slurm shows: stop it at any point and run it
        again. It ends with 0 when nothing is left to do, else with 1.
        """
        set_up_log("logfmt")
        if yes and dry_run:
            raise UsageFault("--yes and --dry-run exclude each other")
        if (wait or edit or program) and not yes:
            raise UsageFault("--wait, --edit and --program go with --yes")
        loaded = load_config(config)

        def say(line: str) -> None:
            typer.echo(line, err=True)

        # The switch and the queue belong to slurmctld's host; here it is about this host's files.
        yes = yes and not ((edit or program) and colocd_on_another_host(found_colocd(loaded)))
        facts = run(loaded, say, yes=yes)
        while wait and _busy(facts):
            time.sleep(POLL_S)
            facts = run(loaded, say, yes=True)
        taken = _taken_back(edit, facts, say, program=program)
        found = steps(run(loaded, say, yes=False) if edit else facts)
        if as_json:
            done = all(step.state is State.DONE for step in found)
            render.print_json({"done": done, "steps": [asdict(step) for step in found]})
        else:
            _show(found, yes)
        if any(step.state is not State.DONE for step in found) or not taken:
            raise typer.Exit(1)


def _taken_back(
    edit: list[str], facts: Facts, say: Callable[[str], None], *, program: bool
) -> bool:
    """Take back what `coloc init` did on this host; whether all of it could be."""
    taken = list(take_back(edit, facts)) if edit else []
    for _, text in taken:
        say(text)
    if program and facts.in_force:
        say("the program's files stay: slurmctld still has shards")
    elif program:
        for path in programfiles.remove():
            say(f"{path}: removed")
    return all(done for done, _ in taken) and not (program and facts.in_force)


def _busy(facts: Facts) -> bool:
    return bool(facts.shares.waiting or facts.shares.holding or facts.work)


def _show(found: list[Step], yes: bool) -> None:
    console = render.console()
    for number, step in enumerate(found, 1):
        todo = "" if step.state is State.DONE else step.todo
        head = Text(f"{step.state:<8} ", style=COLOURS[step.state])
        render.show_finding(head, f"{number} {step.name:<15} ", step.found, todo)
        for one in step.lines:
            console.print(Text(f"{'':<11} {render.plain(one)}"), soft_wrap=True)
    if not yes and any(step.state is State.NEXT for step in found):
        console.print("Nothing was changed: --yes does what is marked next.")
