# SPDX-License-Identifier: Apache-2.0
"""`scontrol show reservation -o`: the same names from 22.05 to 26.05."""

from slurm_coloc.adapters.slurm.commands.parse import UNSET, parse_pairs, seconds
from slurm_coloc.core.time.stretch import Reserved


def parse_reservations(text: str) -> list[Reserved]:
    """One line each; "No reservations in the system" has no name and is none. A reservation without
    nodes (licences) holds none."""
    found = []
    for line in text.splitlines():
        pairs = parse_pairs(line) if line.startswith("ReservationName=") else {}
        nodes = pairs.get("Nodes", "")
        if nodes and nodes not in UNSET:
            times = seconds(pairs.get("StartTime", "")), seconds(pairs.get("EndTime", ""))
            found.append(Reserved(pairs["ReservationName"], nodes, *times))
    return found
