# SPDX-License-Identifier: Apache-2.0
"""Whether a lab's daemon serves: asked of it as its users ask, not read from a pid file."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import procs

if TYPE_CHECKING:
    from slurm_coloc.lab.lab import Lab

START_TIMEOUT_S = 30.0


def wait_daemon(lab: "Lab", name: str) -> None:
    """Wait until a daemon serves; SlurmError with its log when it dies or takes too long."""
    proc = lab.daemons[name]
    died = False

    def ready() -> bool:
        nonlocal died
        died = not proc.alive()
        return died or _serves(lab, name)

    if not procs.wait_until(ready, START_TIMEOUT_S, 0.05) or died:
        how = "died" if died else f"does not serve after {START_TIMEOUT_S:g} s"
        raise SlurmError(f"{name} {how}; the end of its log:\n{lab.log_tail(name)}")


def _serves(lab: "Lab", name: str) -> bool:
    """Whether the daemon answers what its users ask of it."""
    if name == "munged":
        return _connects(lab.dir / "munge" / "socket")
    if name == "mariadbd":
        return _connects(lab.dir / "db" / "socket")
    if name == "slurmdbd":
        done = lab.run(["sacctmgr", "-n", "show", "cluster"], check=False, timeout=30)
        return done.returncode == 0
    if name == "colocd":
        return _connects(lab.dir / "coloc" / "colocd.sock")
    if name.startswith("agent-"):
        return True  # it links by itself, whenever colocd is there
    if name == "slurmctld":
        done = lab.run(["scontrol", "ping"], check=False, timeout=30)
        return done.returncode == 0 and " is UP" in done.stdout
    node = name.removeprefix("slurmd-")
    done = lab.run(["sinfo", "-h", "-n", node, "-o", "%T"], check=False, timeout=30)
    return done.stdout.split()[:1] in (["idle"], ["mixed"], ["allocated"])


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
