# SPDX-License-Identifier: Apache-2.0
"""`coloc lab status`: what of a lab is alive, and what runs on it."""

import json
from typing import Any

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab.daemons import Daemons


def status(lab: Daemons) -> dict[str, Any]:
    """The answer of `coloc lab status --json`; a part that does not answer is null."""
    daemons = {name: {"pid": proc.pid, "alive": proc.alive()} for name, proc in lab.daemons.items()}
    return {
        "schema": 1,
        "name": lab.spec.name,
        "dir": str(lab.dir),
        "slurm_version": lab.version,
        "alive": bool(daemons) and all(one["alive"] for one in daemons.values()),
        "daemons": daemons,
        "nodes": _nodes(lab),
        "gpus": {node: _gpus(lab, node) for node in lab.spec.node_names},
        "jobs": _jobs(lab),
    }


def _deaf(lab: Daemons) -> bool:
    """Whether slurmctld is dead: its clients would wait for it for a long time."""
    ctld = lab.daemons.get("slurmctld")
    return ctld is None or not ctld.alive()


def _nodes(lab: Daemons) -> list[dict[str, str]] | None:
    if _deaf(lab):
        return None
    try:
        text = lab.run(["sinfo", "-h", "-N", "-o", "%N %T %C %G"], timeout=15, cwd="/").stdout
    except (SlurmError, OSError):
        return None
    rows = [line.split(None, 3) for line in text.splitlines()]
    return [dict(zip(("node", "state", "cpus", "gres"), row, strict=False)) for row in rows]


def _gpus(lab: Daemons, node: str) -> Any:
    argv = [f"{lab.dir}/bin/coloc-emu", "show", f"{lab.dir}/nodes/{node}/ledger", "--json"]
    try:
        return json.loads(lab.run(argv, timeout=15, cwd="/").stdout)
    except (SlurmError, OSError, ValueError):
        return None


def _jobs(lab: Daemons) -> list[dict[str, str]] | None:
    if _deaf(lab):
        return None
    try:
        jobs = lab.jobs()
    except (SlurmError, OSError):
        return None
    keys = ("JobId", "UserId", "JobState", "Reason", "NodeList", "TresPerNode", "AdminComment")
    return [{key: job[key] for key in keys if key in job} for job in jobs]
