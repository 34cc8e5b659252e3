# SPDX-License-Identifier: Apache-2.0
"""slurm.conf as a file that Slurm has not read yet: its parameters, and its NodeName lines."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_coloc.core.slurm.hosts import in_nodes

_WORD = re.compile(r'([A-Za-z]\w*)\s*=\s*("[^"]*"|\S+)')


@dataclass(frozen=True, slots=True)
class ConfFile:
    """``values``: each parameter in small letters with all its values, in the file's order;
    ``nodes``: names and parameters of each NodeName line, defaults filled in."""

    values: Mapping[str, tuple[str, ...]]
    nodes: tuple[tuple[str, Mapping[str, str]], ...]

    def value(self, name: str) -> str:
        """The value in force: Slurm takes the last one; "" where it is not set."""
        return (self.values.get(name.lower()) or ("",))[-1]

    def words(self, name: str) -> frozenset[str]:
        """A list in small letters."""
        return frozenset(one.strip().lower() for one in self.value(name).split(",") if one.strip())

    def gres(self, node: str) -> str | None:
        """A node's Gres, "" for none; None where no line names the node."""
        for names, pairs in self.nodes:
            if in_nodes(names, node):
                return pairs.get("gres", "")
        return None


def parse_conf(lines: Iterable[str]) -> ConfFile:
    """The file from its lines: comments and includes are resolved already (adapters/probe)."""
    values: dict[str, list[str]] = {}
    nodes: list[tuple[str, Mapping[str, str]]] = []
    defaults: dict[str, str] = {}
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        pairs = {name.lower(): text.strip('"') for name, text in _WORD.findall(line)}
        if "nodename" in pairs:
            names = pairs.pop("nodename")
            if names == "DEFAULT":
                defaults |= pairs
            else:
                nodes.append((names, {**defaults, **pairs}))
        elif pairs and not {"partitionname", "nodeset", "downnodes"} & set(pairs):
            name, text = next(iter(pairs.items()))
            values.setdefault(name, []).append(text)
    return ConfFile({name: tuple(found) for name, found in values.items()}, tuple(nodes))
