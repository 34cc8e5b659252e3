# SPDX-License-Identifier: Apache-2.0
"""``coloc simulate``: what a policy would do to a trace of jobs."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from slurm_coloc.core.interference import REFERENCE
from slurm_coloc.core.placing import Conditions
from slurm_coloc.errors import UsageFault
from slurm_coloc.policies import policy as policy_named
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, simulate


def command(
    trace: Annotated[Path | None, typer.Option(help="Trace CSV.")] = None,
    gpus: Annotated[str, typer.Option(help="Machines, e.g. 4xa100-40gb.")] = "4xa100-40gb",
    policy: Annotated[str, typer.Option(help="A policy's name, best or exclusive.")] = "best",
    estimator: Annotated[
        str, typer.Option(help="oracle, none, error:RATIO or X of a column X_mib.")
    ] = "oracle",
    method: Annotated[str, typer.Option(help="mps, streams or mig.")] = "mps",
    interference: Annotated[str, typer.Option(help="reference or fitted.")] = "reference",
    runs: Annotated[int, typer.Option(min=1, help="Jittered runs; means are told.")] = 1,
    seed: Annotated[int, typer.Option(help="Of jitter and simulated errors.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play a trace of jobs under a policy and tell what it gains."""
    if trace is None:
        raise UsageFault("give --trace")
    experiment = Experiment(
        read_trace(trace),
        parse_machine(gpus),
        policy_named(policy),
        Setting(conditions=Conditions(), method=method, depth=50, interference=REFERENCE),
        estimator,
        runs,
        seed,
    )
    answer = simulate(experiment)
    if as_json:
        print(json.dumps(answer))
        return
    table = Table("figure", "value")
    for name, value in answer.items():
        if isinstance(value, float):
            table.add_row(name, f"{value:.1f}")
    Console().print(table)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("simulate")(command)
