# SPDX-License-Identifier: Apache-2.0
"""coloc mig: which MIG layout the past would have wanted, and gres.conf of the one that is there.

Nothing here cuts a GPU: the commands are printed for an admin.
"""

import dataclasses
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import typer

from slurm_coloc.adapters.nvml.mig import MigGpu
from slurm_coloc.admin.mig_plan import cut_here, gres_lines, past_runs
from slurm_coloc.admin.rules.mig_plan import Fit, Score, commands, fits, node_gres, plan
from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson
from slurm_coloc.config import load_config
from slurm_coloc.core.gpu.cards import GPU_TYPES, shards_of
from slurm_coloc.core.gpu.mig import card
from slurm_coloc.errors import UsageFault

SHOWN = 5
SECONDS_OF_HOUR = 3600.0
PROFILES = ("PROFILE", "RUNS THAT FIT>", "OF THEIR TIME>")
LAYOUTS = ("LAYOUT", "NO ROOM FOR>", "WAIT h>", "RUN h>", "ALL h>")


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    group = typer.Typer(help="MIG layouts: what to cut, and gres.conf of what is cut.")
    app.add_typer(group, name="mig")
    group.command("plan")(plan_command)
    group.command("gres")(gres_command)


def plan_command(
    gpu: str = typer.Option("a100-40gb", "--gpu", help="The cards, e.g. a100-40gb, h100-80gb."),
    gpus: int = typer.Option(1, "--gpus", min=1, max=64, help="Cards of a node."),
    cut: int = typer.Option(0, "--cut", min=0, help="Of these to be cut; 0: all."),
    limit: int = typer.Option(1000, "--limit", min=1, max=1000, help="At most so many runs."),
    as_json: AsJson = False,
) -> None:
    """The static layout that would have served the recorded runs best.

    It asks colocd for the completed runs whose peak was measured, plays them in their order on
    every full layout, and prints the commands for the best. It cuts nothing.

    Whole GPUs hold one run each in this comparison: what MPS gains on them is left out.
    """
    kind = card(gpu)
    cut = cut or gpus
    if cut > gpus:
        raise UsageFault(f"--cut {cut}: there are {gpus} GPUs")
    config = load_config()
    runs, others = past_runs(config, limit)
    if not runs:
        raise UsageFault(
            f"no completed run with a measured peak is recorded ({others} others): nothing to plan"
        )
    total_mib = GPU_TYPES[gpu].total_mib
    scores = plan(kind, runs, gpus, cut, total_mib)
    layout = scores[0].layout
    each = shards_of(total_mib, config.pool.shard_mib, config.pool.margin_mib)
    name = gpu.partition("-")[0]
    gres = node_gres(name, gpus - cut, layout, cut, (gpus - cut) * each) if layout else ""
    how = commands(kind, layout, range(gpus - cut, gpus)) if layout else []
    unknown = sum(run.smact is None for run in runs)
    if as_json:
        about = {"used": len(runs), "left_out": others, "smact_unknown": unknown}
        answer = {
            "gpu": gpu,
            "gpus": gpus,
            "cut": cut,
            "runs": about,
            "commands": how,
            "gres": gres,
        }
        answer["fits"] = [dataclasses.asdict(one) for one in fits(kind, runs)]
        render.print_json(answer | _compared(scores))
        return
    title = f"{len(runs)} completed runs, {others} left out; SM activity unknown of {unknown}"
    cutting = f"{cut} of {gpus} {gpu} cut; whole ones hold one run each here, without MPS"
    _show(title, fits(kind, runs), cutting, scores)
    _say(_advice(scores[0], how, gres))


def _uncut(scores: list[Score]) -> Score:
    return next(one for one in scores if not one.layout)


def _compared(scores: list[Score]) -> dict[str, object]:
    none = _uncut(scores)
    others = [_plain(one) for one in scores[1:SHOWN] if one is not none]
    return {"best": _plain(scores[0]), "uncut": _plain(none), "others": others}


def _show(title: str, found: list[Fit], cutting: str, scores: list[Score]) -> None:
    rows = [(one.profile, one.runs, f"{100 * one.share:.0f} %") for one in found]
    shown = list(dict.fromkeys([*scores[:SHOWN], _uncut(scores)]))
    render.show(
        render.table(title, PROFILES, rows),
        render.table(cutting, LAYOUTS, map(_row, shown)),
    )


def _plain(score: Score) -> dict[str, object]:
    return dataclasses.asdict(score) | {"mean_s": score.mean_s}


def _row(score: Score) -> tuple[object, ...]:
    hours = (score.mean_wait_s, score.mean_run_s, score.makespan_s)
    name = "+".join(score.layout) or "not cut"
    return (name, score.unserved, *(f"{one / SECONDS_OF_HOUR:.2f}" for one in hours))


def _advice(best: Score, how: list[str], gres: str) -> list[str]:
    if not best.layout:
        return ["No layout would have served these runs better than whole GPUs, one run each."]
    return [
        "By an admin, with nobody on the GPUs:",
        *(f"  {line}" for line in how),
        f"slurm.conf, on the node's line: Gres={gres}",
        "gres.conf: `coloc mig gres` on the node once it is cut (the driver chooses the numbers)",
    ]


def gres_command(
    gres_conf: Path = typer.Option(Path("-"), "--gres-conf", help="File to write; -: stdout."),
    node: str = typer.Option("", "--node", help="NodeName; default: the short host name."),
    multiple: bool = typer.Option(
        False, "--multiple-files", help="All device files of each (Slurm 23.11.5 and later)."
    ),
    as_json: AsJson = False,
    dry_run: bool = typer.Option(False, "--dry-run", help="Write no file."),
) -> None:
    """gres.conf lines of the MIG devices that this node has, for AutoDetect=off."""
    found = cut_here()
    name = node or os.uname().nodename.partition(".")[0]
    lines = gres_lines(found, name, multiple=multiple)
    if as_json:
        render.print_json({"gpus": [_as_dict(one) for one in found], "gres_conf": lines})
        return
    if not lines:
        raise UsageFault("no GPU of this node is cut into MIG devices")
    if str(gres_conf) == "-" or dry_run:
        _say(lines)
        return
    gres_conf.write_text("\n".join(lines) + "\n", encoding="ascii")
    typer.echo(f"{len(lines)} lines in {gres_conf}: include them in gres.conf", err=True)


def _as_dict(gpu: MigGpu) -> dict[str, object]:
    devices = [device._asdict() for device in gpu.devices]
    about = {"uuid": gpu.uuid, "index": gpu.nvml_index, "minor": gpu.minor, "name": gpu.name}
    return {**about, "devices": devices}


def _say(lines: Iterable[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
