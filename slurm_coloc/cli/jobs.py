# SPDX-License-Identifier: Apache-2.0
"""coloc jobs: the --coloc jobs that wait or run."""

import pwd
import sys
from typing import Any

import typer

from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson
from slurm_coloc.cli.tries import came_by, overran
from slurm_coloc.config import load_config
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.client.request import call

COLUMNS = (
    *("JOB>", "USER", "STATE", "GPU", "SHARE"),
    *("ESTIMATE>", "UPPER>", "PEAK>", "OUTCOME", "WHY", "AGE>"),
)


def row_of(run: render.Row) -> tuple[object, ...]:
    """One run as the cells of COLUMNS."""
    restart = f"+{run['restart']}" if run["restart"] else ""
    return (
        f"{render.job(run)}{restart}",
        render.user_name(run["uid"]),
        _state(run),
        render.gpu(run),
        render.share(run),
        render.gib(run["memory_mib"]),
        render.gib(run["upper_mib"]),
        render.gib(run["peak_mib"]),
        run["outcome"],
        overran(run) or came_by(run) or run["reason"],
        render.ago(run["end_s"] if run["outcome"] else run["start_s"] or run["submit_s"]),
    )


def _state(run: render.Row) -> str:
    idle_s = run.get("idle_since_s")
    if over := run.get("overrun"):
        held, promised = render.gib(over["held_mib"]), render.gib(over["promised_mib"])
        return f"{run['state']}, holds {held} of {promised}"
    return run["state"] if idle_s is None else f"{run['state']}, idle {render.ago(idle_s)}"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def jobs(
        everybody: bool = typer.Option(
            False, "--all", help="Everybody's, where PrivateData allows, and recently ended ones."
        ),
        user: str | None = typer.Option(None, "--user", help="Those of this user (name or uid)."),
        limit: int = typer.Option(200, "--limit", min=1, max=1000, help="At most so many."),
        as_json: AsJson = False,
    ) -> None:
        """The --coloc jobs that wait or run: yours; everybody's for root and SlurmUser.

        JOB+1 is a job that was put back once; WHY then says with which request, and who caused it.
        WHY also says where a job held more than its share and ended others by it.
        ESTIMATE, UPPER (the bound that was reserved for) and PEAK (measured) are GiB of GPU memory;
        "idle" is a job that holds a GPU and has not used it for a while; "holds 29.3 of 5.0" one
        that holds more of it than it was promised. Of other
        users' jobs you see what squeue shows, and nothing of their logs or models.
        """
        wanted: dict[str, Any] = {"limit": limit, "all": everybody}
        if user is not None:
            wanted["user"] = _uid(user)
        answer = call(load_config(), "jobs", wanted)
        if answer.get("private"):
            print("coloc: PrivateData=jobs: only your own are shown", file=sys.stderr)
        if as_json:
            render.print_json({"jobs": answer["jobs"]})
            return
        render.show(render.table("", COLUMNS, map(row_of, answer["jobs"])))


def _uid(user: str) -> int:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UsageFault(f"no user {user!r} on this host") from None
