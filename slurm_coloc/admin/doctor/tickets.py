# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: can a submission from this host have its text estimated beforehand?"""

import os
from collections.abc import Sequence
from pathlib import Path

from slurm_coloc.adapters import probe
from slurm_coloc.admin.doctor.slurm import Slurm
from slurm_coloc.admin.rules import slurm_conf
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.config import Config

CHECK = "tickets"
COSTS = "jobs from this host get a whole GPU until their text is known to colocd"


def check(config: Config, slurm: Slurm) -> Finding:
    """Whom the SPANK plugin of this host asks for a ticket."""
    path = Path(slurm_conf.value(slurm.conf, "PlugStackConfig") or "/etc/slurm/plugstack.conf")
    lines = (line.split() for line in probe.plugstack(path))
    words = next((w for w in lines if len(w) >= 2 and "coloc" in Path(w[1]).name), None)
    if words is None:
        return Finding(CHECK, Status.NA, f"{path} names no coloc plugin")
    return judged(words[2:], config, path)


def judged(words: Sequence[str], config: Config, path: Path) -> Finding:
    """``words``: the plugin's arguments in ``path``."""
    given = dict(word.split("=", 1) for word in words if "=" in word)
    program = given.get("ticket", "/usr/libexec/slurm-coloc/coloc-ticket")
    if program == "off":
        return Finding(CHECK, Status.WARN, f"ticket=off: {COSTS}", f"{path}: take ticket=off out")
    if not os.access(program, os.X_OK):
        return Finding(CHECK, Status.WARN, f"no program {program}: {COSTS}", "make install")
    socket = Path(given.get("socket", "/run/slurm-coloc/colocd.sock"))
    if socket.exists():
        return Finding(CHECK, Status.OK, f"by {socket}")
    if controllers := given.get("controllers"):
        return Finding(CHECK, Status.OK, f"by {controllers}; see network-answer")
    named = ",".join(config.network.controllers) or "HOST:6824"
    return Finding(
        CHECK,
        Status.WARN,
        f"no colocd on this host, and {path} names no controllers: {COSTS}",
        f"{path}: optional coloc.so controllers={named} (where jobs are submitted)",
    )
