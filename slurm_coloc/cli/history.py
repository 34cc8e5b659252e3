# SPDX-License-Identifier: Apache-2.0
"""coloc history: how runs ended, and what observe mode would have done."""

import typer

from slurm_coloc.cli import render
from slurm_coloc.cli.jobs import COLUMNS, order_of, share_of
from slurm_coloc.cli.listing import Column, show_listing
from slurm_coloc.cli.names import names_of
from slurm_coloc.cli.options import AsJson, Since, Watch, repeated, since_s
from slurm_coloc.config import load_config
from slurm_coloc.core.decide.decision import TEXTS
from slurm_coloc.flow.client.request import call

WOULD_BE = {"collocate": "share", "exclusive": "whole GPU", "asis": "as submitted"}
OBSERVED = (
    Column("JOB", lambda row: row["job_id"], right=True),
    Column("USER", lambda row: render.user_name(row["uid"]), rank=3),
    Column("PARTITION", lambda row: row["partition"], rank=5),
    Column("WOULD BE", lambda row: WOULD_BE.get(row["action"], row["action"])),
    Column("SHARE", share_of, least=12),
    Column("ESTIMATE", lambda row: render.gib(row["memory_mib"]), right=True, rank=4),
    Column("UPPER", lambda row: render.gib(row["upper_mib"]), right=True, rank=6),
    Column("AGE", lambda row: render.ago(row["made_s"]), right=True, rank=2),
    Column("WHY", lambda row: TEXTS.get(row["reason"], row["reason"]), least=12),
)
MOST = 1000  # runs that colocd tells of
NOTHING = "no run of a --coloc job {}: sbatch --coloc=FILE begins one"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def history(
        since: Since = None,
        names: str | None = typer.Option(
            None, "--jobs", "-j", metavar="LIST", help="These alone: 9, 9_2, 9_[1-3], with commas."
        ),
        limit: int = typer.Option(
            50, "--limit", "-n", min=1, max=MOST, help="At most so many runs."
        ),
        watch: Watch = None,
        as_json: AsJson = False,
    ) -> None:
        """Newest runs of --coloc jobs, and decisions of observe mode, which changes nothing.

        Yours; everybody's for root and SlurmUser. Share, estimate, bound and measured peak are
        GiB of GPU memory.
        """
        chosen = names_of(names) if names else None

        def show() -> None:
            most = limit if chosen is None else MOST  # of which those that are named are shown
            answer = call(load_config(), "history", {"limit": most, "since_s": since_s(since)})
            runs = [run for run in answer["runs"] if chosen is None or chosen.has(run)][:limit]
            observed = [row for row in answer["observed"] if chosen is None or chosen.has(row)]
            if as_json:
                render.print_json({"runs": runs, "observed": observed})
                return
            if runs or not observed:
                when = f"since {since}" if since else "is known"
                if chosen is not None:
                    when = f"of these is among the newest {most:,}"
                # By job, an array's tasks together: colocd met them in the order of their starts.
                newest = sorted(runs, key=order_of, reverse=True)
                show_listing(COLUMNS, newest, NOTHING.format(when))
            if observed:
                print("observe mode: submitted unchanged, and what it would have been")
                show_listing(OBSERVED, observed, "")

        repeated(watch, show, as_json)
