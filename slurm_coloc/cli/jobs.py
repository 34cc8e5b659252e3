# SPDX-License-Identifier: Apache-2.0
"""coloc jobs: the --coloc jobs that wait or run."""

import os
import pwd
import sys
from typing import Any

import typer

from slurm_coloc.cli import render
from slurm_coloc.cli.listing import Column, show_listing
from slurm_coloc.cli.names import MOST, names_of
from slurm_coloc.cli.options import AsJson, Watch, repeated
from slurm_coloc.cli.tries import came_by, ended, overran
from slurm_coloc.config import load_config
from slurm_coloc.core.decide.decision import TEXTS, Reason
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.client.request import call

#: the usual reasons: nothing is told of them
USUAL = (Reason.FITS, Reason.FITS_SLICE)


def name_of(run: render.Row) -> str:
    """JOB, or JOB+1 where it was put back once."""
    return render.job(run) + (f"+{run['restart']}" if run["restart"] else "")


def state_of(run: render.Row) -> object:
    """How a run ended; else Slurm's state and what is wrong with it now."""
    if run["outcome"]:
        return ended(run)
    if over := run.get("overrun"):
        held, promised = render.gib(over["held_mib"]), render.gib(over["promised_mib"])
        return f"{run['state']}, holds {held} of {promised}"
    idle_s = run.get("idle_since_s")
    return f"{run['state']}, idle {render.ago(idle_s)}" if idle_s is not None else run["state"]


def share_of(run: render.Row) -> str:
    """In GiB, as the columns beside it."""
    return render.share(run).removesuffix(" GiB")


def why_of(run: render.Row) -> str | None:
    """What is unusual about a run."""
    if told := overran(run) or came_by(run):
        return told
    reason = run["reason"]
    return None if reason in USUAL else TEXTS.get(reason, reason)


def age_of(run: render.Row) -> str:
    """Since its end, its start or its submission."""
    return render.ago(run["end_s"] if run["outcome"] else run["start_s"] or run["submit_s"])


COLUMNS = (
    Column("JOB", name_of, right=True),
    Column("NAME", lambda run: run["name"], least=6),
    Column("USER", lambda run: render.user_name(run["uid"]), rank=3),
    Column("PARTITION", lambda run: run["partition"], rank=5),
    Column("STATE", state_of, least=9),
    Column("GPU", render.gpu, least=8),
    Column("SHARE", share_of, least=12),
    Column("ESTIMATE", lambda run: render.gib(run["memory_mib"]), right=True, rank=4),
    Column("UPPER", lambda run: render.gib(run["upper_mib"]), right=True, rank=6),
    Column("PEAK", lambda run: render.gib(run["peak_mib"]), right=True, rank=1),
    Column("AGE", age_of, right=True, rank=2),
    Column("LEFT", render.left, right=True, rank=2),
    Column("WHY", why_of, least=12),
)
MORE = f"coloc: the newest {{}} are shown: -n COUNT shows up to {MOST}, -j LIST those that it names"


def order_of(run: render.Row) -> tuple[int, int, int]:
    """By job, array task and run."""
    task = run.get("array_task")
    return run.get("array_job_id") or run["job_id"], -1 if task is None else task, run["restart"]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def jobs(
        everybody: bool = typer.Option(
            False,
            "--all",
            "-a",
            help="Everybody's, where PrivateData allows, and recently ended ones.",
        ),
        user: str | None = typer.Option(
            None, "--user", "-u", help="Those of this user (name or uid)."
        ),
        names: str | None = typer.Option(
            None, "--jobs", "-j", metavar="LIST", help="These alone: 9, 9_2, 9_[1-3], with commas."
        ),
        limit: int = typer.Option(200, "--limit", "-n", min=1, max=MOST, help="At most so many."),
        watch: Watch = None,
        as_json: AsJson = False,
    ) -> None:
        """The --coloc jobs that wait or run: yours; everybody's for root and SlurmUser.

        JOB+1 is a job that was put back once; WHY then says with which request, and who caused it.
        WHY also says why a job has a whole GPU, and where it held more than its share and ended
        others by it. GPU is the node and NVML's number, as nvidia-smi shows it.
        SHARE, ESTIMATE, UPPER (the bound that was reserved for) and PEAK (measured) are GiB of GPU
        memory; "idle" is a job that holds a GPU and has not used it for a while; "holds 29.3 of
        5.0" one that holds more of it than it was promised. Of other users' jobs you see what
        squeue shows, and nothing of their logs or models. LEFT: as coloc eta tells it. A narrow
        terminal has fewer columns; what is no terminal has all.
        """
        chosen = names_of(names) if names else None
        # One more than is shown tells that there are more.
        most = min(limit + 1, MOST) if chosen is None else MOST
        wanted: dict[str, Any] = {"limit": most, "all": everybody}
        if user is not None:
            wanted["user"] = _uid(user)

        def show() -> None:
            answer = call(load_config(), "jobs", wanted)
            rows = answer["jobs"]
            found = [run for run in rows if chosen is None or chosen.has(run)]
            hidden = {"private": True} if answer.get("private") else {}
            if hidden:
                what = f"the jobs of {user} are hidden" if user else "only your own are shown"
                print(f"coloc: PrivateData=jobs: {what}", file=sys.stderr)
            # With --all those that ended come last: only the recent ones are meant to be there.
            left_out = found[limit:] or (rows[MOST - 1 :] if chosen is None else [])
            if any(not run["outcome"] for run in left_out):
                print(MORE.format(limit), file=sys.stderr)
            if as_json:
                render.print_json({"jobs": found[:limit], **hidden})
            elif not hidden or user is None:
                mine = not everybody and user is None and os.geteuid() != 0
                nothing = _nothing(chosen is not None, len(rows), mine)
                show_listing(COLUMNS, sorted(found[:limit], key=order_of), nothing)

        repeated(watch, show, as_json)


def _nothing(named: bool, rows: int, mine: bool) -> str:
    """What a table without a row says; of ``rows`` none was named."""
    what = f"no --coloc job {'of yours ' if mine else ''}waits or runs"
    if named:
        where = "waits or runs" if rows < MOST else f"is among the newest {MOST:,}"
        what = f"none of these {where}"
    return f"{what}: coloc history has those that ended"


def _uid(user: str) -> int:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UsageFault(f"no user {user!r} on this host") from None
