# SPDX-License-Identifier: Apache-2.0
"""coloc lab up|down|status: a private one-machine Slurm with emulated GPUs."""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from slurm_coloc.cli.options import AsJson
from slurm_coloc.errors import UsageFault
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.parts import SLURM
from slurm_coloc.lab.spec import MACHINES, LabSpec

lab_app = typer.Typer(
    no_args_is_help=True, help="A private Slurm with emulated GPUs on this machine (needs root)."
)

NAME = typer.Option("lab", "--name", help="Name of the lab; several may be up side by side.")
DRY = typer.Option(False, "--dry-run", help="Say what would be done and change nothing.")


def register(app: typer.Typer) -> None:
    """Add `lab` to the command line."""
    app.add_typer(lab_app, name="lab")


def _say(text: str) -> None:
    print(f"coloc lab: {text}", file=sys.stderr)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@lab_app.command("up")
def up(
    name: str = NAME,
    nodes: int = typer.Option(1, "--nodes", help="Nodes, each with the GPUs of the machine."),
    machine: str = typer.Option("2xa100-40gb", "--machine", help=f"One of {', '.join(MACHINES)}."),
    users: int = typer.Option(3, "--users", help="Local accounts to submit as."),
    mode: str = typer.Option("on", "--mode", help="on or observe."),
    folder: Path | None = typer.Option(None, "--dir", help="Folder of the lab (a short path)."),
    shard_mib: int = typer.Option(1024, "--shard-mib", help="MiB of GPU memory in one shard."),
    least_loaded: bool = typer.Option(
        False, "--least-loaded", help="Place on the emptiest GPU (LL_SHARED_GRES, 23.02 and later)."
    ),
    slurm: Path | None = typer.Option(
        None,
        "--slurm",
        metavar="PREFIX",
        help="Another Slurm than the system's, for every part: the folder it was installed into."
        " Default: $COLOC_LAB_SLURM.",
    ),
    no_coloc: bool = typer.Option(False, "--no-coloc", help="Slurm and shards alone."),
    slurm_conf_extra: Path | None = typer.Option(
        None, "--slurm-conf-extra", help="File whose lines are added to slurm.conf."
    ),
    dry_run: bool = DRY,
    as_json: AsJson = False,
) -> None:
    """Bring a lab up; if that fails, remove all of it."""
    try:
        extra = slurm_conf_extra.read_text() if slurm_conf_extra else ""
    except OSError as err:
        raise UsageFault(f"{slurm_conf_extra}: {err.strerror}") from err
    spec = LabSpec(
        name=name,
        nodes=nodes,
        machine=machine,
        users=users,
        mode=mode,
        dir=folder.absolute() if folder else None,
        shard_mib=shard_mib,
        least_loaded=least_loaded,
        coloc=not no_coloc,
        slurm_conf_extra=extra,
        slurm=str(slurm.absolute()) if slurm else os.environ.get(SLURM, ""),
    )
    if dry_run:
        _print_plan(Lab.plan(spec), as_json)
        return
    # An orderly kill must take down what is up so far, too.
    signal.signal(signal.SIGTERM, _interrupt)
    lab = Lab.up(spec)
    about = lab.describe()
    for note in lab.notes:
        _say(note)
    if as_json:
        print(json.dumps(about))
        return
    print(f"lab {name}: Slurm {lab.version}, {nodes} x {machine}, {len(lab.users)} users")
    print(f"users   {' '.join(lab.users)}")
    print(f"use it  . {lab.dir}/env.sh")
    print(f"end it  coloc lab down --name {name}")


def _print_plan(lab: Lab, as_json: bool) -> None:
    spec = lab.spec
    if as_json:
        print(json.dumps(lab.describe() | {"dry_run": True}))
        return
    print(f"would make the folder {lab.dir} and the accounts {' '.join(lab.users)}")
    print(f"would use the device nodes /dev/nvidia0 to {spec.cards.gpus - 1}, made where missing")
    daemons = ["munged", "slurmctld", *(f"slurmd of {node}" for node in spec.node_names)]
    print(f"would start {', '.join(daemons + ['colocd'] * spec.coloc)} (Slurm {lab.version})")


@lab_app.command("down")
def down(name: str = NAME, dry_run: bool = DRY, as_json: AsJson = False) -> None:
    """Stop a lab's own processes and remove all of it; it is no error if there is no such lab."""
    try:
        lab = Lab.attach(name)
    except UsageFault:
        _say(f"no lab is called {name!r}")
        was = False
    else:
        was = True
        if dry_run:
            pids = [f"{one.name} {one.pid}" for one in lab.daemons.values() if one.alive()]
            _say(f"would stop {', '.join(pids) or 'nothing'} and remove {lab.dir}")
        else:
            lab.down()
    if as_json:
        print(json.dumps({"schema": 1, "name": name, "was_up": was}))


@lab_app.command("status")
def status(name: str = NAME, as_json: AsJson = False) -> None:
    """Daemons, nodes, GPUs and jobs of a lab; exit 1 when a daemon is not alive."""
    found = Lab.attach(name).status()
    if as_json:
        print(json.dumps(found))
    else:
        _print(found)
    if not found["alive"]:
        raise typer.Exit(1)


def _print(found: dict[str, Any]) -> None:
    print(f"lab {found['name']} in {found['dir']}, Slurm {found['slurm_version']}")
    for daemon, one in found["daemons"].items():
        print(f"  {daemon:<12} {one['pid']:>8} {'alive' if one['alive'] else 'DEAD'}")
    for node in found["nodes"] or [{"node": "slurmctld does not answer"}]:
        print("  " + "  ".join(node.values()))
    for node, gpus in found["gpus"].items():
        for gpu in (gpus or {}).get("gpus", []):
            print(f"  {node}: " + "  ".join(f"{key}={value}" for key, value in gpu.items()))
    for job in found["jobs"] or []:
        print("  " + "  ".join(f"{key}={value}" for key, value in job.items()))
