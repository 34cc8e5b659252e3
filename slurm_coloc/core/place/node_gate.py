# SPDX-License-Identifier: Apache-2.0
"""The gate on SM activity inside Slurm, per node (extra_constraints, 23.11+).

Each GPU node carries ``{"smact": N, "coloc": ID}`` in Extra: the percentage of its least busy GPU
(1 to 100; 0: not known, open; with steered placement 1 or 0) and a number of its own. A shared job
asks for ``smact<GATE`` among the numbers of the nodes that it may get.

Why the numbers (tried on 24.11 and 26.05): where *no* node of the cluster meets a constraint, the
job waits and keeps its place and age. Where only a node that the job cannot get meets it (another
partition, too small), slurmctld takes the request for impossible: BadConstraints, priority 0, for
ever. A new constraint frees such a job, with its age. A node without a key never meets it.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping

KEY, NUMBER = "smact", "coloc"
PARAMETER = "extra_constraints"
#: the limit of a job that must wait at the gate: no node with a fresh figure is below it
SHUT_PCT = 1
#: what replaces a constraint of ours: Slurm does not let Extra be cleared (24.11, 26.05)
OPENED = f"{KEY}>=0"
# No longer list of nodes is written: slurmctld evaluates it for each node each time.
MOST_RANGES = 8
# A change of fewer points is written only where it opens or shuts the node.
STEP_PCT = 5


def level(activities: Iterable[float | None]) -> int:
    """The figure for a node: the activity of its least busy GPU in per cent, 1 at least; 0 where
    one is not known, or there is no GPU."""
    found = list(activities)
    if not found or any(one is None for one in found):
        return 0
    return max(SHUT_PCT, round(100 * min(one or 0.0 for one in found)))


def present(extra: str) -> int | None:
    """A node's present figure; None where it has no such key."""
    return _whole(extra, KEY)


def _whole(extra: str, key: str) -> int | None:
    values = _values(extra)
    found = values.get(key) if values is not None else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def numbers(extras: Mapping[str, str]) -> dict[str, int]:
    """The number of each node: the one in its Extra; the next free one where it has none, or
    another node has the same."""
    found: dict[str, int] = {}
    for name in sorted(extras):
        number = _whole(extras[name], NUMBER)
        if number is not None and number > 0 and number not in found.values():
            found[name] = number
    following = max(found.values(), default=0)
    for name in sorted(extras.keys() - found.keys()):
        following += 1
        found[name] = following
    return found


def _values(extra: str) -> dict[str, object] | None:
    """A node's Extra as an object; None where it is anything else, which must not be changed."""
    if extra in ("", "(null)"):
        return {}
    try:
        values = json.loads(extra)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def written(extra: str, pct: int, number: int | None = None) -> str | None:
    """The Extra with the figure ``pct`` and the node's number, other keys unchanged; None for no
    object."""
    values = _values(extra)
    if values is None:
        return None
    ours = {KEY: pct} | ({} if number is None else {NUMBER: number})
    return json.dumps(values | ours, separators=(",", ":"))


def due(extra: str, pct: int, number: int, gate_pct: int) -> bool:
    """Whether a change of a node's Extra is worth writing."""
    now_pct = present(extra)
    if now_pct is None or _whole(extra, NUMBER) != number or (now_pct == 0) != (pct == 0):
        return True
    return abs(now_pct - pct) >= STEP_PCT or (now_pct < gate_pct) != (pct < gate_pct)


def constraint_below(pct: int, nodes: Collection[int]) -> str | None:
    """A job's constraint: a figure below ``pct`` on one of these nodes; None where there is none,
    or the list is too long."""
    ranges: list[list[int]] = []
    for number in sorted(nodes):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    if not ranges or len(ranges) > MOST_RANGES:
        return None
    parts = [
        f"{NUMBER}={first}" if first == last else f"({NUMBER}>={first}&{NUMBER}<={last})"
        for first, last in ranges
    ]
    return f"{KEY}<{pct}&({'|'.join(parts)})"


# Our constraint stands alone or behind the owner's own in parentheses.
_OURS = re.compile(rf"(?:\((?P<own>.+)\)&)?{KEY}(?:<(?P<pct>\d+)(?:&.*)?|>=0)")


def joined(extra: str, ours: str) -> str:
    """A job's Extra with our constraint beside its owner's."""
    own = own_part(extra)
    return f"({own})&{ours}" if own else ours


def own_part(extra: str) -> str:
    """The owner's own part of a job's Extra."""
    if extra in ("", "(null)"):
        return ""
    found = _OURS.fullmatch(extra)
    return (found["own"] or "") if found else extra


def limit_pct(extra: str) -> int | None:
    """The figure of our constraint in a job's Extra; None without a constraint of ours."""
    found = _OURS.fullmatch(extra)
    return int(found["pct"]) if found and found["pct"] else None
