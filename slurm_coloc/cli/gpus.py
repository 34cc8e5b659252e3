# SPDX-License-Identifier: Apache-2.0
"""coloc gpus: how the GPUs are now."""

import sys

import typer

from slurm_coloc.cli import render
from slurm_coloc.cli.listing import Column, show_listing
from slurm_coloc.cli.options import AsJson, Watch, repeated
from slurm_coloc.config import load_config
from slurm_coloc.flow.client.request import call

NOTHING = "no agent has told of GPUs yet: coloc doctor says what is missing on which node"
COLUMNS = (
    Column("NODE", lambda gpu: gpu["node"]),
    Column("GPU", lambda gpu: gpu.get("index"), right=True),
    Column("UUID", lambda gpu: "-".join(str(gpu["uuid"]).split("-")[:2]), rank=5),
    Column("NAME", lambda gpu: gpu["name"], rank=4),
    Column("USED", lambda gpu: render.gib(gpu["total_mib"] - gpu["free_mib"]), right=True),
    Column("OF", lambda gpu: render.gib(gpu["total_mib"]), right=True),
    Column("SMACT", lambda gpu: render.percent(gpu["smact"]), right=True),
    Column("DRAM", lambda gpu: render.percent(gpu["dram"]), right=True, rank=2),
    Column("POWER", lambda gpu: _watts(gpu["power_w"]), right=True, rank=1),
    Column("FOREIGN", lambda gpu: render.gib(gpu["foreign_mib"] or None), right=True, rank=3),
    Column("AGE", lambda gpu: render.ago(gpu["at_s"]), right=True, rank=6),
    Column("JOBS", lambda gpu: _jobs(gpu), least=12),
)


def _jobs(gpu: render.Row) -> str:
    """Ids and the GiB that each holds; their number, where others' are not shown."""
    if gpu["jobs"] is None:
        return f"{gpu['jobs_here']} jobs"
    return " ".join(f"{render.job(one)}:{render.gib(one['mib'])}" for one in gpu["jobs"])


def _watts(power_w: float | None) -> str | None:
    return None if power_w is None else f"{power_w:.0f} W"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def gpus(
        watch: Watch = None,
        as_json: AsJson = False,
    ) -> None:
        """The GPUs of the nodes whose agents answer: memory, activity, power, jobs.

        USED and OF are GiB, with what the driver keeps for itself. SMACT (SM activity, not
        utilization), DRAM (activity) and POWER are means of the last 90 s; a dash: not measured
        there, the reason is in --json, with SM occupancy and PCIe. JOBS are ids and what each
        holds, FOREIGN what processes of no job hold.
        """

        def show() -> None:
            answer = call(load_config(), "gpus", {})
            hidden = {"private": True} if answer.get("private") else {}
            if hidden:
                print("coloc: PrivateData=jobs: job ids are not shown", file=sys.stderr)
            for node, why in answer["without"].items():
                print(f"coloc: {render.plain(node)}: {render.plain(why)}", file=sys.stderr)
            if as_json:
                render.print_json({name: answer[name] for name in ("gpus", "without")} | hidden)
                return
            show_listing(COLUMNS, answer["gpus"], NOTHING)

        repeated(watch, show, as_json)
