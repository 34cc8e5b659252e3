# SPDX-License-Identifier: Apache-2.0
"""Gres and TRES strings as sbatch, slurmctld and scontrol write them.

Forms on real clusters: ``gres:gpu:1`` (22.05), ``gres/gpu:1`` and ``gres/gpu:a100:2`` (24.11),
``gpu:1``, ``gpu``, ``gpu:a100``, ``gres/gpu=2``, with several items separated by commas, and
``gpu:a100:2(S:0-1)`` in ``scontrol show node``. Items that are no gres (``cpu:4``) are kept
unchanged.

A node's GPUs may have a gres Type each, so that a job can be put on one of them: ``Name=gpu
Type=a100-0 File=/dev/nvidia0`` ... beside one count of shards. With ``--gres=shard:a100-2:12`` a
job runs on exactly that GPU, and untyped requests still run on any (tried on 24.11 and 26.05). The
part before the last ``-N`` is the model, the number that of the device file and of the GPU's place
on its node.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from slurm_coloc.core.gpu.mig import slice_of

# Prefix of a request in tres_per_task, which is for each task and not for each node.
PER_TASK = "per-task:"

USUAL = 100  # characters
_OWN_TYPE = re.compile(r"(?P<model>.+)-(?P<place>\d{1,3})")
_SUFFIX = {"k": 1024, "m": 1024**2, "g": 1024**3}


@dataclass(frozen=True, slots=True)
class Gres:
    """One item: ``name`` (gpu, shard, ...), optional ``type``, ``count``; ``raw`` as written."""

    name: str
    type: str | None
    count: int
    raw: str
    prefix: str = ""


def _count(text: str) -> int | None:
    body, factor = text, 1
    if text and text[-1].lower() in _SUFFIX:
        body, factor = text[:-1], _SUFFIX[text[-1].lower()]
    return int(body) * factor if body.isascii() and body.isdigit() else None


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    items, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth <= 0:
            items.append(text[start:i])
            start = i + 1
    items.append(text[start:])
    return [item for item in items if item]


def _item(raw: str) -> Gres:
    body = raw.split("(", 1)[0].replace("=", ":")
    prefix = next((p for p in ("gres/", "gres:") if body.startswith(p)), "")
    parts = body[len(prefix) :].split(":")
    name, rest = parts[0], parts[1:]
    last = _count(rest[-1]) if rest else None
    if last is not None:
        kind = ":".join(rest[:-1]) or None
        return Gres(name, kind, last, raw, prefix)
    return Gres(name, ":".join(rest) or None, 1, raw, prefix)


def parse_gres(text: str | None) -> tuple[Gres, ...]:
    """The items of a gres or TRES string; () for None, empty and ``(null)``."""
    if not text or text == "(null)":
        return ()
    # Thousands of jobs ask for the same. What is long is some user's, and not worth memory.
    return _parsed(text) if len(text) > USUAL else _known(text)


def _parsed(text: str) -> tuple[Gres, ...]:
    return tuple(_item(raw) for raw in _split(text.removeprefix(PER_TASK)))


_known = lru_cache(maxsize=1024)(_parsed)


def without(text: str | None, *names: str) -> str:
    """The string without the items called ``names``; the others as they were written."""
    return ",".join(item.raw for item in parse_gres(text) if item.name not in names)


def with_item(text: str | None, item: str) -> str:
    return f"{item},{text}" if text else item


def with_pin(text: str, shards: int, kind: str = "") -> str:
    """The request ``text`` (see gpu_request) for shards of the GPU of this type alone, "" for any,
    in place of its GPUs or shards."""
    per_task = PER_TASK if text.startswith(PER_TASK) else ""
    share = f"gres/shard:{kind}:{shards}" if kind else f"gres/shard:{shards}"
    return per_task + with_item(without(text, "gpu", "shard"), share)


def update_fields(text: str) -> dict[str, str]:
    """The fields of ``scontrol update`` for a request (see gpu_request)."""
    if text.startswith(PER_TASK):
        task = text.removeprefix(PER_TASK)
        return {"TresPerTask": task, "TresBind": task_bind(task)}
    return {"TresPerNode": text}


def with_shards(text: str, shards: int) -> str:
    """The request ``text`` (see gpu_request) with ``shards`` shards of the same kind."""
    kinds = [item.type for item in parse_gres(text) if item.name == "shard" and item.type]
    return _with_share(text, f"gres/shard:{kinds[0]}:{shards}" if kinds else f"gres/shard:{shards}")


def _with_share(text: str, share: str) -> str:
    per_task = PER_TASK if text.startswith(PER_TASK) else ""
    return per_task + with_item(without(text, "shard"), share)


def without_pin(text: str, pins: Collection[str]) -> str:
    """The request with its shards on any GPU, where their type is one of ``pins``."""
    pinned = any(item.name == "shard" and item.type in pins for item in parse_gres(text))
    return _with_share(text, f"gres/shard:{count_of(text, 'shard')}") if pinned else text


def count_of(text: str | None, name: str) -> int | None:
    """Sum of the counts of gres ``name``; None where no item names it."""
    counts = [item.count for item in parse_gres(text) if item.name == name]
    return sum(counts) if counts else None


def gpu_request(per_node: str, per_task: str) -> str:
    """A job's request for GPUs or shards in one text: tres_per_node as it is, or the request per
    task behind ``per-task:`` (CPUs left out)."""
    wanted = without(per_task, "cpu")
    named = any(item.name in ("gpu", "shard") for item in parse_gres(wanted))
    return f"{PER_TASK}{wanted}" if named else per_node


def same_gres(left: str, right: str) -> bool:
    """Whether two requests (see gpu_request) ask for the same, whatever their spelling. Shards are
    the same whatever GPU they are pinned to by its type."""

    def normal(text: str) -> tuple[bool, list[tuple[str, str, int]]]:
        items = parse_gres(without(text, "cpu"))
        return text.startswith(PER_TASK), sorted(
            (item.name, "" if item.name == "shard" else item.type or "", item.count)
            for item in items
        )

    return normal(left) == normal(right)


def task_bind(per_task: str) -> str:
    """The binding that sbatch sets for a request of GPUs or shards per task; "" for none."""
    items = [item for item in parse_gres(per_task) if item.name in ("gpu", "shard")]
    return f"gres/{items[0].name}:per_task:{items[0].count}" if items else ""


def device_types(model: str, gpus: int) -> list[str]:
    """The type of each of a node's GPUs, in the order of their devices."""
    return [f"{model}-{place}" for place in range(gpus)]


def model_of(kinds: tuple[str, ...]) -> str | None:
    """The model of a node whose GPUs each have a type of their own, numbered from 0 in order; None
    for any other node. ``kinds``: gres types in slurm.conf's order."""
    if not kinds:
        return None
    found = [_OWN_TYPE.fullmatch(kind) for kind in kinds]
    models = {one["model"] for one in found if one}
    places = [int(one["place"]) for one in found if one]
    if len(models) != 1 or places != list(range(len(kinds))):
        return None
    return models.pop()


def on_slice(tres: str) -> bool:
    """Whether a request is for a MIG device."""
    return any(item.name == "gpu" and slice_of(item.type) for item in parse_gres(tres))


def called(tres: str) -> str:
    """What a request after an out-of-memory asks for, in words."""
    return "a larger MIG device" if on_slice(tres) else "a whole GPU"
