# SPDX-License-Identifier: Apache-2.0
"""The gate on present SM activity in Slurm itself, a node at a time (extra_constraints, 23.11+).

Each shared node carries ``{"smact": N}`` in Extra, the percentage of its least busy GPU, and a
shared job asks for ``smact<GATE``. A node without the key takes no such job (tried on 24.11), so a
job asks only where every node that it may get has it, and 0 stands for what is not known.
"""

import json
from collections.abc import Iterable

KEY = "smact"
PARAMETER = "extra_constraints"
FIRST_RELEASE = (23, 11)
# A change of fewer points is written only where it opens or shuts the node.
STEP_PCT = 5


def level(activities: Iterable[float | None]) -> int:
    """What a node is to say: its least busy GPU in per cent; 0 where one is not known, or none."""
    found = list(activities)
    if not found or any(one is None for one in found):
        return 0
    return round(100 * min(one or 0.0 for one in found))


def present(extra: str) -> int | None:
    """What a node says now; None where it has no such key."""
    values = _values(extra)
    found = values.get(KEY) if values is not None else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _values(extra: str) -> dict[str, object] | None:
    """A node's Extra as an object; None where it is something else, which is not ours to touch."""
    if extra in ("", "(null)"):
        return {}
    try:
        values = json.loads(extra)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def written(extra: str, pct: int) -> str | None:
    """The Extra with the key at ``pct``, the other keys as they are; None where it cannot be
    written into it."""
    values = _values(extra)
    if values is None:
        return None
    return json.dumps(values | {KEY: pct}, separators=(",", ":"))


def due(now_pct: int | None, pct: int, gate_pct: int) -> bool:
    """Whether a change is worth writing."""
    if now_pct is None:
        return True
    return abs(now_pct - pct) >= STEP_PCT or (now_pct < gate_pct) != (pct < gate_pct)
