# SPDX-License-Identifier: Apache-2.0
"""coloc eta: how long running jobs still take."""

import os
import time
from datetime import datetime

import typer

from slurm_coloc.cli import render
from slurm_coloc.cli.jobs import name_of, order_of
from slurm_coloc.cli.listing import Column, show_listing
from slurm_coloc.cli.names import names_of
from slurm_coloc.cli.options import AsJson, Watch, repeated
from slurm_coloc.config import load_config
from slurm_coloc.flow.client.request import call

DAY_S = 86400.0
NOTHING = "no {}--coloc job{} runs: coloc jobs has those that wait"


def _range(run: render.Row) -> str | None:
    told = run.get("time_left")
    if not told or told["low_s"] is None or told["high_s"] is None:
        return None
    return f"{render.span(told['low_s'])} to {render.span(told['high_s'])}"


def _ends(run: render.Row) -> str | None:
    told = run.get("time_left")
    if not told or told["left_s"] is None:
        return None
    at = datetime.fromtimestamp(time.time() + told["left_s"])
    return at.strftime("%H:%M" if told["left_s"] < DAY_S / 2 else "%a %d %H:%M")


def _done(run: render.Row) -> str | None:
    told = run.get("time_left")
    return render.percent(told["done"]) if told and told["done"] is not None else None


def _epoch(run: render.Row) -> str | None:
    told = run.get("time_left")
    if not told or told["epoch"] is None:
        return None
    of = f" of {told['epochs']:g}" if told["epochs"] is not None else ""
    return f"{told['epoch']:.1f}{of}"


def _by(run: render.Row) -> str:
    told = run.get("time_left")
    if not told:
        return "not known"
    if told["left_s"] is None:
        return "its log: no total yet"
    runs = told["runs"]
    return "its log" if told["by"] == "log" else f"{runs} earlier run{'s' if runs > 1 else ''}"


COLUMNS = (
    Column("JOB", name_of, right=True),
    Column("NAME", lambda run: run["name"], least=6),
    Column("USER", lambda run: render.user_name(run["uid"]), rank=3),
    Column("RUNS", lambda run: render.ago(run["start_s"]), right=True, rank=2),
    Column("DONE", _done, right=True),
    Column("EPOCHS", _epoch, right=True, rank=1),
    Column("LEFT", render.left, right=True),
    Column("RANGE", _range),
    Column("ENDS", _ends),
    Column("BY", _by, least=8),
)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def eta(
        names: str | None = typer.Argument(
            None, metavar="JOBID", help="These alone: 9, 9_2, 9_[1-3], with commas."
        ),
        watch: Watch = None,
        as_json: AsJson = False,
    ) -> None:
        """How long your running --coloc jobs still take; for root and SlurmUser: everybody's.

        By the job's log, where the site has its nodes read that (agent.log_read_s): counters of
        epochs and steps as tqdm, Lightning, the Hugging Face Trainer, Keras and most scripts print
        them. Before there is one, and elsewhere, by how long earlier runs of the same model with
        the same options took. RANGE is meant to hold in eight of ten cases. "no total yet": the log
        counts epochs and says nowhere how many there are; a script that is started with --epochs N,
        or prints N, is understood.
        """
        chosen = names_of(names) if names else None

        def show() -> None:
            answer = call(load_config(), "jobs", {"limit": 1000, "all": False})
            runs = [
                run
                for run in answer["jobs"]
                if run["state"] == "RUNNING" and (chosen is None or chosen.has(run))
            ]
            if as_json:
                render.print_json({"jobs": runs})
                return
            empty = NOTHING.format("such " if chosen else "", " of yours" if os.geteuid() else "")
            show_listing(COLUMNS, sorted(runs, key=order_of), empty)

        repeated(watch, show, as_json)
