# SPDX-License-Identifier: Apache-2.0
"""coloc advise: what your jobs on whole GPUs left unused, and what --coloc would change."""

import time
from collections.abc import Iterator

import typer

from slurm_coloc.cli import render
from slurm_coloc.cli.listing import Column, show_listing
from slurm_coloc.cli.options import AsJson, Since, since_s
from slurm_coloc.config import load_config
from slurm_coloc.core.records.observed import ObservedJob
from slurm_coloc.core.report.advice import Advice, Advised, advise
from slurm_coloc.flow.client.request import call

DAYS = 30
SHOWN = 20
COLUMNS = (
    Column("JOB", lambda row: row["job_id"], right=True),
    Column("PARTITION", lambda row: row["partition"], rank=4),
    Column("GPU", lambda row: row["kind"], rank=5, least=8),
    Column("HOURS", lambda row: f"{row['hours']:.1f}", right=True),
    Column("PEAK", lambda row: render.gib(row["peak_mib"]), right=True),
    Column("OF", lambda row: render.gib(row["total_mib"]), right=True, rank=3),
    Column("SMACT", lambda row: render.percent(row["smact"]), right=True),
    Column("FIT", lambda row: row["together"], right=True, rank=2),
    Column("SAYS", lambda row: row["fit"], least=12),
)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command("advise")
    def advise_command(since: Since = None, as_json: AsJson = False) -> None:
        """What your jobs without --coloc left unused of their whole GPUs, and which would share.

        Of the last 30 days, or --since, by what the nodes' agents measured. A job would share whose
        peak, with 10 % more, is at most half of the memory, and whose SM activity is at most 60 %.
        It changes nothing.
        """
        from_s = since_s(since) if since else time.time() - DAYS * 86400.0
        answer = call(load_config(), "mine", {"since_s": from_s})
        found = advise(ObservedJob(**one) for one in answer["jobs"])
        rows = [row_of(one) for one in found.jobs]
        if as_json:
            sums = {name: getattr(found, name) for name in ("hours", "share_hours", "needed_hours")}
            render.print_json({"jobs": rows, **sums, "wait_s": found.wait_s})
            return
        if not rows:
            print("no job of yours had a GPU without --coloc then, or no agent measured it")
            return
        show_listing(COLUMNS, rows[:SHOWN], "")
        if len(rows) > SHOWN:
            print(f"and {len(rows) - SHOWN} shorter ones (--json has all)")
        print("\n".join(_words(found)))


def row_of(one: Advised) -> render.Row:
    """A line of the table."""
    job = one.job
    return {
        **{name: getattr(job, name) for name in ("job_id", "partition", "kind", "peak_mib")},
        "total_mib": job.total_mib,
        "smact": job.smact,
        "hours": round(one.hours, 2),
        "fit": str(one.fit),
        "together": one.together,
    }


def _words(found: Advice) -> Iterator[str]:
    """What follows for the user."""
    count, sharing = len(found.jobs), found.sharing
    yield f"{count} jobs had whole GPUs for {found.hours:.1f} h; {sharing} of them would share."
    if not found.sharing:
        yield "Memory or SM activity of each leaves no room for another job."
        return
    yield (
        f"By memory their {found.share_hours:.1f} GPU hours would have fitted into"
        f" {found.needed_hours:.1f} of whole GPUs."
    )
    if found.wait_s is not None and found.wait_s >= 60:
        waited = render.span(found.wait_s)
        yield f"They waited {waited} in the median; a share needs only a part of a GPU."
    yield "Next: coloc summarize SCRIPT > model.txt, then sbatch --coloc=model.txt"
