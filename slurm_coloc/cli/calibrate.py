# SPDX-License-Identifier: Apache-2.0
"""``coloc calibrate``: what CUDA and its libraries take on this node's type of GPU."""

from pathlib import Path

import typer

from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.admin import calibrate as flow
from slurm_coloc.cli import render
from slurm_coloc.config import load_config


def _calibrate(
    gpu: str | None = typer.Option(None, help="GPU type, the file's name; default: the card's."),
    device: str | None = typer.Option(
        None, help="UUID of a GPU or MIG device, or NVML's index; default: the idlest GPU."
    ),
    python: str | None = typer.Option(
        None, help="Python that has torch; default: the one that runs coloc."
    ),
    out: Path | None = typer.Option(
        None, help="File to write, - prints it; default: TYPE.toml in estimate.stacks_dir."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be done; no CUDA."),
    as_json: bool = typer.Option(False, "--json", help="The answer as JSON."),
) -> None:
    """Measure the CUDA context and cuDNN's workspaces with one tiny job on a GPU of this node."""
    config = load_config()
    with Nvml() as nvml:
        todo = flow.plan(nvml, config.estimate.stacks_dir, device, gpu, python)
        path = out or todo.path
        if dry_run:
            told = {
                "dry_run": True,
                "gpu": todo.gpu_type,
                "uuid": todo.gpu.uuid,
                "card": todo.gpu.name,
                "python": todo.python,
                "file": str(path),
            }
            if as_json:
                render.print_json(told)
                return
            print(f"would run a CUDA job on {todo.gpu.uuid} ({todo.gpu.name}) by {todo.python}")
            print(f"would write {path}")
            return
        found = flow.measure(nvml, todo, config.estimate.context_mib)
    text = flow.as_toml(found, todo.gpu_type)
    if str(path) != "-":
        flow.write(path, text)
    if as_json:
        written = {"gpu": todo.gpu_type, "uuid": todo.gpu.uuid, "file": str(path)}
        render.print_json(written | found.model_dump(mode="json"))
    elif str(path) == "-":
        print(text, end="")
    else:
        before = config.estimate.context_mib
        print(f"{todo.gpu_type}: context {found.context_mib} MiB (not calibrated: {before})")
        if not found.torch:
            print(f"only {found.how}: give --python a Python with torch for the libraries' part")
        print(f"wrote {path}; colocd reads it at its next start")


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("calibrate")(_calibrate)
