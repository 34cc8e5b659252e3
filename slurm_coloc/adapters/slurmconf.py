# SPDX-License-Identifier: Apache-2.0
"""slurm.conf of this host: where it lies, and which hosts slurmctld runs on.

An agent that was just installed has no coloc.toml and must find colocd all the same.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from slurm_coloc.core.slurm.hosts import DEFAULT_PORT, reached_as

#: in the order in which they are looked for; the second is slurmd's own copy (configless)
PLACES = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
)
MAX_BYTES = 4 << 20
_HOST = re.compile(r"^\s*(SlurmctldHost|ControlMachine)\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_USER = re.compile(r"^\s*SlurmUser\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)


def find(environ: Mapping[str, str]) -> Path | None:
    """The file that $SLURM_CONF names, else the first of PLACES that is there; None for none."""
    named = environ.get("SLURM_CONF")
    for place in [named] if named else PLACES:
        if Path(place).is_file():
            return Path(place)
    return None


def place(environ: Mapping[str, str]) -> Path:
    """The file that Slurm's own programs would read here, whether it is there or not."""
    return find(environ) or Path(environ.get("SLURM_CONF") or PLACES[0])


def controllers(environ: Mapping[str, str]) -> tuple[str, ...]:
    """host:port of each colocd by slurm.conf itself (not its includes); () where it names none."""
    found = [value for _, value in _HOST.findall(_text(environ))]
    return tuple(f"{reached_as(name)}:{DEFAULT_PORT}" for name in found)


def slurm_user(environ: Mapping[str, str]) -> str:
    """SlurmUser by slurm.conf; "" where it names none."""
    found = _USER.findall(_text(environ))
    return str(found[-1]).split("(")[0] if found else ""


def _text(environ: Mapping[str, str]) -> str:
    path = find(environ)
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""
