# SPDX-License-Identifier: Apache-2.0
"""Drop-ins for our systemd units where SlurmUser is another than the one that they name; pure."""

from collections.abc import Collection, Iterator
from pathlib import Path

FOLDER = Path("/etc/systemd/system")
UNITS_USER = "slurm"  # as the units have it
# An empty Group= is the user's own; the agent is root's, and makes a folder for SlurmUser.
_LINES = {
    "slurm-coloc": "User={user}\nGroup=",
    "slurm-coloc-agent": "Environment=COLOC_SLURM_USER={user}",
}


def drop_ins(units: Collection[str], user: str) -> Iterator[tuple[Path, str]]:
    """The file of each of our units, and its text."""
    for unit in units if user != UNITS_USER else ():
        path = FOLDER / f"{unit}.service.d/slurm-user.conf"
        lines = _LINES[unit].format(user=user)
        yield path, f"# SlurmUser, written by `coloc init`\n[Service]\n{lines}\n"
