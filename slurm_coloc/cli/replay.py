# SPDX-License-Identifier: Apache-2.0
"""coloc replay: a recorded decision of steered placement, made again."""

from dataclasses import asdict
from pathlib import Path

import typer
from rich.text import Text

from slurm_coloc.admin.replay import replay as again
from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson
from slurm_coloc.core.place.steering import Answer


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def replay(
        snapshot: Path = typer.Argument(
            metavar="SNAPSHOT", help="A file of <daemon.state_dir>/placement."
        ),
        as_json: AsJson = False,
    ) -> None:
        """Decide a recorded snapshot of steered placement again.

        Ends with 1 where an answer differs from the recorded one.
        """
        found = again(snapshot)
        if as_json:
            render.print_json(
                {
                    "schema": 1,
                    "same": found.same,
                    "at_s": found.snapshot.at_s,
                    "policy": found.snapshot.rules.policy,
                    "recorded": [asdict(one) for one in found.then],
                    "answers": [asdict(one) for one in found.now],
                }
            )
        else:
            before = {one.job_id: one for one in found.then}
            lines = [(_name(one), _line(one, before.get(one.job_id))) for one in found.now]
            head = f"{render.moment(found.snapshot.at_s)}, {found.snapshot.rules.policy}"
            render.show(Text(head, style="bold"), render.facts(lines))
        if not found.same:
            raise typer.Exit(1)


def _name(answer: Answer) -> str:
    return f"job {answer.job_id}" if answer.job_id > 0 else "a submission"


def _line(answer: Answer, before: Answer | None) -> str:
    where = f" {answer.pin.node} {answer.pin.kind}" if answer.pin else ""
    text = f"{answer.act}{where} ({answer.why})"
    if answer.text:
        text += f": {answer.text}"
    return text if answer == before else f"{text}; DIFFERS from what was recorded"
