# SPDX-License-Identifier: Apache-2.0
"""coloc history: how runs ended, and what observe mode would have done."""

import typer

from slurm_coloc.cli import render
from slurm_coloc.cli.jobs import COLUMNS, row_of
from slurm_coloc.cli.options import AsJson
from slurm_coloc.config import load_config
from slurm_coloc.flow.client.request import call

OBSERVED = ("JOB>", "USER", "PARTITION", "WOULD BE", "SHARE", "ESTIMATE>", "UPPER>", "WHY", "AGE>")


def _observed(row: render.Row) -> tuple[object, ...]:
    return (
        row["job_id"],
        render.user_name(row["uid"]),
        row["partition"],
        row["action"],
        render.share(row),
        render.gib(row["memory_mib"]),
        render.gib(row["upper_mib"]),
        row["reason"],
        render.ago(row["made_s"]),
    )


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def history(
        limit: int = typer.Option(50, "--limit", min=1, max=1000, help="At most so many runs."),
        as_json: AsJson = False,
    ) -> None:
        """Newest runs of --coloc jobs, and decisions of observe mode, which changes nothing.

        Yours; everybody's for root and SlurmUser. Estimate, bound and measured peak are GiB of
        GPU memory.
        """
        answer = call(load_config(), "history", {"limit": limit})
        runs, observed = answer["runs"], answer["observed"]
        if as_json:
            render.print_json({"runs": runs, "observed": observed})
            return
        if runs or not observed:
            render.show(render.table("", COLUMNS, map(row_of, runs)))
        if observed:
            title = "observe mode: submitted unchanged, and what it would have been"
            render.show(render.table(title, OBSERVED, map(_observed, observed)))
