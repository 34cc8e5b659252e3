# SPDX-License-Identifier: Apache-2.0
"""coloc doctor: is everything in place?"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer
from rich.text import Text

from slurm_coloc.admin.doctor import examine, rollout
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson, ConfigFile
from slurm_coloc.config import load_config
from slurm_coloc.errors import SlurmError, UsageFault
from slurm_coloc.logs import set_up_log

COLOURS = {
    Status.OK: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.NA: "dim",
}


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def doctor(
        config: ConfigFile = None,
        for_rollout: bool = typer.Option(
            False, "--rollout", help="May slurmctld read slurm.conf now? And the next step."
        ),
        slurm_file: Path | None = typer.Option(
            None,
            "--slurm-conf",
            metavar="FILE",
            help="With --rollout: the slurm.conf that is to be used; default slurmctld's own.",
        ),
        as_json: AsJson = False,
    ) -> None:
        """Check configuration, colocd, Slurm, the hooks and the GPUs; says what to do.

        Ends with 1 when a check failed. Changes nothing, and works while colocd is dead. Run it on
        the host of slurmctld, and on a GPU node.

        With --rollout, on slurmctld's host as root or SlurmUser: compares slurm.conf, as slurmctld
        would read it next, with what each node's slurmd offers, as its agent says. It ends with 1
        where slurmctld would drain a node, would not start, or would lose the shards of jobs.
        """
        set_up_log("logfmt")
        if slurm_file and not for_rollout:
            raise UsageFault("--slurm-conf goes with --rollout")
        findings = list(_rollout(config, slurm_file) if for_rollout else examine(config))
        failed = any(found.status is Status.FAIL for found in findings)
        if as_json:
            rows = [asdict(found) for found in findings]
            render.print_json({"ok": not failed, "checks": rows})
        else:
            show(findings)
        if failed:
            raise typer.Exit(1)


def _rollout(config: Path | None, slurm_file: Path | None) -> Iterator[Finding]:
    try:
        yield from rollout.examine(load_config(config), slurm_file)
    except SlurmError as err:
        yield rollout.without_slurm(err)


def show(findings: list[Finding]) -> None:
    """Print what was found, and what to do."""
    for found in findings:
        todo = "" if found.status is Status.OK else found.todo
        head = Text(f"{found.status:<14} ", style=COLOURS[found.status])
        render.show_finding(head, f"{found.check:<16} ", found.found, todo)
    counts = [f"{sum(found.status is status for found in findings)} {status}" for status in Status]
    render.console().print(", ".join(counts))
