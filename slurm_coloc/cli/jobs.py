# SPDX-License-Identifier: Apache-2.0
"""coloc jobs: the --coloc jobs that wait or run."""

import typer

from slurm_coloc.adapters.client import ask
from slurm_coloc.cli import render
from slurm_coloc.config import load_config

COLUMNS = (
    *("JOB>", "USER", "STATE", "GPU", "SHARE"),
    *("ESTIMATE>", "UPPER>", "PEAK>", "OUTCOME", "WHY", "AGE>"),
)


def row_of(run: render.Row) -> tuple[object, ...]:
    """One run as the cells of COLUMNS."""
    restart = f"+{run['restart']}" if run["restart"] else ""
    return (
        f"{run['job_id']}{restart}",
        render.user_name(run["uid"]),
        run["state"],
        render.gpu(run),
        render.share(run),
        render.gib(run["memory_mib"]),
        render.gib(run["upper_mib"]),
        render.gib(run["peak_mib"]),
        run["outcome"],
        run["reason"],
        render.ago(run["end_s"] if run["outcome"] else run["start_s"] or run["submit_s"]),
    )


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def jobs(
        everything: bool = typer.Option(False, "--all", help="With those that ended lately."),
        limit: int = typer.Option(200, "--limit", min=1, max=1000, help="At most so many."),
        as_json: bool = typer.Option(False, "--json", help="Answer as JSON."),
    ) -> None:
        """The --coloc jobs that wait or run: yours; everybody's for root and SlurmUser.

        JOB+1 is a job that was put back once. ESTIMATE, UPPER (the bound that was reserved for)
        and PEAK (measured) are GiB of GPU memory.
        """
        path = load_config().daemon.socket
        if everything:
            rows = ask(path, "history", limit=limit)["runs"]
        else:
            rows = ask(path, "jobs", limit=limit)["jobs"]
        if as_json:
            render.print_json({"jobs": rows})
            return
        render.show(render.table("", COLUMNS, map(row_of, rows)))
