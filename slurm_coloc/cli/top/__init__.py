# SPDX-License-Identifier: Apache-2.0
"""coloc top: GPUs, who is on them, and who waits, again and again."""

import sys
import time

import typer
from rich.live import Live
from rich.text import Text

from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson
from slurm_coloc.cli.top.keys import Keys
from slurm_coloc.cli.top.picture import Known, View, picture
from slurm_coloc.config import Config, load_config
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.client.request import call

MOST_JOBS = 1000


def now(config: Config, before: Known, everybody: bool) -> Known:
    """What colocd knows now; what was known ``before`` with the fault, where it does not answer."""
    try:
        gpus = call(config, "gpus", {})
        jobs = call(config, "jobs", {"limit": MOST_JOBS, "all": everybody})
    except ColocError as err:
        return before._replace(fault=err.message)
    private = bool(gpus.get("private") or jobs.get("private"))
    going = [run for run in jobs["jobs"] if not run["outcome"]]
    return Known(gpus["gpus"], gpus["without"], going, time.time(), private)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def top(
        every_s: float = typer.Option(
            2.0, "--delay", "-d", min=0.5, max=3600, metavar="SECONDS", help="Between two looks."
        ),
        mine: bool = typer.Option(False, "--mine", "-m", help="Begin with your own jobs alone."),
        once: bool = typer.Option(False, "--once", help="Print one picture and end."),
        as_json: AsJson = False,
    ) -> None:
        """GPUs with memory, SM activity and power, who is on each, and who waits and why.

        Keys: q ends it, the arrows, j and k, Page Up and Page Down scroll, s sorts by node, memory
        or activity, u shows your jobs or everybody's, w the waiting ones or none, p holds the
        picture, h tells the keys. Of other users' jobs you see what squeue shows. Where stdout is
        no terminal it prints one picture; --json is one, too.
        """
        config, view = load_config(), View(everybody=not mine)
        if as_json or once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            seen = now(config, Known(), view.everybody)
            if seen.fault:
                raise ColocError(seen.fault)
            if as_json:
                render.print_json({"gpus": seen.gpus, "without": seen.silent, "jobs": seen.runs})
                return
            for line in picture(seen, view, render.console().width, None):
                print(line.plain.rstrip())
            return
        _live(config, view, every_s)


def _live(config: Config, view: View, every_s: float) -> None:
    seen, next_s = Known(), 0.0
    console = render.console()
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if not view.held and time.monotonic() >= next_s:
                seen = now(config, seen, view.everybody)
                next_s = time.monotonic() + every_s
            lines = picture(seen, view, console.width, console.height)
            live.update(Text("\n").join(lines), refresh=True)
            wait_s = 60.0 if view.held else max(0.0, next_s - time.monotonic())
            key = keys.next(wait_s)
            if key == "q":
                return
            if view.press(key):
                next_s = 0.0
