# SPDX-License-Identifier: Apache-2.0
"""coloc gpus: how the GPUs are now."""

import sys

import typer

from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson
from slurm_coloc.config import load_config
from slurm_coloc.flow.client.request import call

COLUMNS = (
    *("NODE", "GPU", "NAME", "USED>", "OF>", "SMACT>", "DRAM>", "POWER>"),
    *("JOBS", "FOREIGN>", "AGE>"),
)


def row_of(gpu: render.Row) -> tuple[object, ...]:
    """One GPU as the cells of COLUMNS."""
    jobs = gpu["jobs"]
    return (
        gpu["node"],
        "-".join(str(gpu["uuid"]).split("-")[:2]),
        gpu["name"],
        render.gib(gpu["total_mib"] - gpu["free_mib"]),
        render.gib(gpu["total_mib"]),
        _percent(gpu["smact"]),
        _percent(gpu["dram"]),
        None if gpu["power_w"] is None else f"{gpu['power_w']:.0f} W",
        f"{gpu['jobs_here']} jobs"
        if jobs is None
        else " ".join(f"{one['job_id']}:{render.gib(one['mib'])}" for one in jobs),
        render.gib(gpu["foreign_mib"]) if gpu["foreign_mib"] else None,
        render.ago(gpu["at_s"]),
    )


def _percent(ratio: float | None) -> str | None:
    return None if ratio is None else f"{100 * ratio:.0f}%"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def gpus(
        as_json: AsJson = False,
    ) -> None:
        """The GPUs of the nodes whose agents answer: memory, activity, power, jobs.

        USED and OF are GiB, with what the driver keeps for itself. SMACT (SM activity, not
        utilization), DRAM (activity) and POWER are means of the last 90 s; a dash: not measured
        there, the reason is in --json, with SM occupancy and PCIe. JOBS are ids and what each
        holds, FOREIGN what processes of no job hold.
        """
        answer = call(load_config(), "gpus", {})
        if answer.get("private"):
            print("coloc: PrivateData=jobs: job ids are not shown", file=sys.stderr)
        for node, why in answer["without"].items():
            print(f"coloc: {render.plain(node)}: {render.plain(why)}", file=sys.stderr)
        if as_json:
            render.print_json({"gpus": answer["gpus"], "without": answer["without"]})
            return
        render.show(render.table("", COLUMNS, map(row_of, answer["gpus"])))
