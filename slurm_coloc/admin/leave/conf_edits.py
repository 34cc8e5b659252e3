# SPDX-License-Identifier: Apache-2.0
"""Which lines of Slurm's files are slurm-coloc's, and what they become; pure."""

import re
from collections.abc import Iterable, Iterator

from slurm_coloc.core.slurm.gres import Gres, model_of, parse_gres

#: parameters that are lists, and the words in them that are there for shares
LISTS = {
    "grestypes": ("shard",),
    "accountingstoragetres": ("gres/shard",),
    "selecttypeparameters": ("ll_shared_gres", "multiple_sharing_gres_pj"),
    "schedulerparameters": ("extra_constraints",),
}
#: parameters whose word lua may be the site's own
SCRIPTS = {"jobsubmitplugins": "job_submit.lua", "clifilterplugins": "cli_filter.lua"}
_GRES = re.compile(r'(\sGres=)("?)([^\s"]+)("?)', re.IGNORECASE)
_WEIGHTS = re.compile(r'(\sTRESBillingWeights=)("?)([^\s"]+)("?)', re.IGNORECASE)


def slurm_conf_edits(lines: Iterable[str]) -> Iterator[str]:
    """``OLD  ->  NEW`` for each line to change; NEW is "(out)" for a line that goes."""
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if new := _edited(line):
            yield f"{line.strip()}  ->  {new}"


def _edited(line: str) -> str:
    """What a line becomes; "" where it stays."""
    name, _, value = line.partition("=")
    key = name.strip().lower()
    if key in SCRIPTS and "lua" in _words(value):
        return f"(out, where {SCRIPTS[key]} has nothing but ours)"
    if key in LISTS:
        kept = [word for word in value.split(",") if word.strip().lower() not in LISTS[key]]
        if kept == value.split(","):
            return ""
        return f"{name.strip()}={','.join(kept)}" if kept else "(out)"
    if key in ("prolog", "epilog") and f"coloc-{key}" in value:
        return "(out)"
    if key == "nodename" and (hit := _GRES.search(line)):
        new = plain_gres(hit[3])
        return "" if new == hit[3] else _replaced(line, hit, new)
    if key == "partitionname" and (hit := _WEIGHTS.search(line)):
        kept = [one for one in hit[3].split(",") if not one.lower().startswith("gres/shard")]
        new = ",".join(kept)
        return "" if new == hit[3] else _replaced(line, hit, new)
    return ""


def _words(value: str) -> list[str]:
    return [word.strip().lower() for word in value.split(",")]


def _replaced(line: str, hit: re.Match[str], new: str) -> str:
    text = f"{hit[1]}{hit[2]}{new}{hit[4]}" if new else ""
    return (line[: hit.start()] + text + line[hit.end() :]).strip()


def plain_gres(text: str) -> str:
    """A node's Gres without shards, and with one type where each GPU had its own.

    >>> plain_gres("gpu:a100-0:1,gpu:a100-1:1,shard:78")
    'gpu:a100:2'
    """
    items = [item for item in parse_gres(text) if item.name != "shard"]
    gpus = [item for item in items if item.name == "gpu"]
    model = model_of(tuple(item.type or "" for item in gpus))
    if model and all(item.count == 1 for item in gpus):
        items = [Gres("gpu", model, len(gpus), f"gpu:{model}:{len(gpus)}")] + [
            item for item in items if item.name != "gpu"
        ]
    return ",".join(item.raw for item in items)


def node_edits(gres: Iterable[str], stack: Iterable[str]) -> Iterator[str]:
    """The same of gres.conf and plugstack.conf, whose names come first."""
    for line in gres:
        if re.search(r"\bName=shard\b", line, re.IGNORECASE):
            yield f"gres.conf: {line.strip()}  ->  (out)"
        elif re.search(r"\bName=gpu\b.*\bType=\S+-\d+\s", f"{line} ", re.IGNORECASE):
            yield f"gres.conf: {line.strip()}  ->  one line of all GPUs, without -N in Type"
    for line in stack:
        if "coloc" in line:
            yield f"plugstack.conf: {line.strip()}  ->  (out)"
