# SPDX-License-Identifier: Apache-2.0
"""Names of hosts as Slurm and the configuration write them: node lists, host:port."""

import re
from math import prod

DEFAULT_PORT = 6824  # beside slurmctld's 6817, slurmd's 6818, slurmdbd's 6819, slurmrestd's 6820


def address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``, ``[v6]:port``, ``host`` or ``:port``; raises ValueError."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\s\[\]]*))(?::([0-9]{1,5}))?", text)
    if found is None or not text:
        raise ValueError(f"{text!r} is not host:port")
    port = int(found[3]) if found[3] else DEFAULT_PORT
    if not 0 < port < 65536:
        raise ValueError(f"{text!r}: no such port")
    return found[1] or found[2] or "", port


def reached_as(name: str) -> str:
    """How SlurmctldHost is reached: ``ctl1(10.0.0.1)`` by the name in brackets."""
    return name.rstrip(")").split("(")[-1]


def in_nodes(nodes: str, name: str) -> bool:
    """Whether a node list (``n1,gpu[01-08,12]x[1-2]``) contains ``name``. The list is not expanded:
    it may stand for a hundred thousand names."""
    return any(_fits(item, name) for item in re.split(r",(?![^\[]*\])", nodes) if item)


def count_nodes(nodes: str) -> int:
    """How many names a node list stands for."""

    def size(part: str) -> int:
        first, dash, last = part.partition("-")
        return int(last) - int(first) + 1 if dash else 1

    items = [item for item in re.split(r",(?![^\[]*\])", nodes) if item]
    ranges = [re.findall(r"\[([0-9,-]*)\]", item) for item in items]
    return sum(prod(sum(map(size, one.split(","))) for one in each) for each in ranges)


def _fits(item: str, name: str) -> bool:
    parts = re.split(r"\[([0-9,-]*)\]", item)
    pattern = "([0-9]+)".join(re.escape(literal) for literal in parts[::2])
    found = re.fullmatch(pattern, name)
    return found is not None and all(map(_in_ranges, parts[1::2], found.groups()))


def _in_ranges(ranges: str, digits: str) -> bool:
    """Whether ``07`` is in ``01-08,12``: Slurm pads a range to the width of its first number."""
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if not dash and first == digits:
            return True
        if dash and first and last and int(first) <= int(digits) <= int(last):
            return digits == digits.lstrip("0").zfill(len(first)) or digits == first
    return False
