# SPDX-License-Identifier: Apache-2.0
"""What PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF from PyTorch 2.9 on) says of the allocator.

Names, bounds and meanings as in c10/core/AllocatorConfig.h of PyTorch 2.13. Options about pinned
host memory and threads move nothing on the GPU and are passed over without a word.
"""

import re
from dataclasses import replace

from slurm_coloc.errors import UsageFault
from slurm_coloc.estimate.replay.allocator import MEDIUM_SEGMENT, MIB, Rules

LONGEST = 512  # characters: no honest value comes near
INTERVALS = 16  # roundup_power2_divisions: from 1 MiB to 64 GiB
#: Change what is taken or given back in ways that are not played: the figure is that without them.
NOT_PLAYED = ("garbage_collection_threshold", "max_non_split_rounding_mb", "large_segment_size_mb",
              "per_process_memory_fraction", "throw_on_cudamalloc_oom")  # fmt: skip
_ITEM = re.compile(r"([a-z0-9_]{1,64}):(\[[^\[\]]*\]|[^,\[\]]*)(?:,|$)")


def rules_of(text: str) -> tuple[Rules, tuple[str, ...]]:
    """The allocator's rules, and notes on options that are known and not played. Raises UsageFault
    for what PyTorch would refuse, and for names that are not known."""
    rules, notes = Rules(), []
    rest = "".join(text.split())
    if len(rest) > LONGEST:
        raise UsageFault(
            f"the allocator's options have more than {LONGEST} characters", "bad_option"
        )
    while rest:
        found = _ITEM.match(rest)
        if found is None:
            raise _wrong(f"{rest[:40]!r} is not NAME:VALUE")
        name, value, rest = found[1], found[2], rest[found.end() :]
        if name in NOT_PLAYED:
            notes.append(f"{name} is not played by the estimate")
        elif not name.startswith(("pinned_", "release_lock_on_")):
            rules = _with(rules, name, value)
    return rules, tuple(notes)


def _with(rules: Rules, name: str, value: str) -> Rules:
    match name:
        case "backend":
            if value not in ("native", "cudaMallocAsync"):
                raise _wrong(f"backend {value[:40]!r}: native or cudaMallocAsync")
            return replace(rules, driver_pool=value == "cudaMallocAsync")
        case "expandable_segments":
            if value.lower() not in ("true", "false"):
                raise _wrong("expandable_segments is True or False")
            return replace(rules, expandable=value.lower() == "true")
        case "max_split_size_mb":
            size = _number(name, value) * MIB
            if size < MEDIUM_SEGMENT:
                raise _wrong(f"max_split_size_mb must be at least {MEDIUM_SEGMENT // MIB}")
            return replace(rules, max_split=size)
        case "roundup_power2_divisions":
            return replace(rules, divisions=_divisions(value))
    raise _wrong(f"no option is named {name!r}")


def _divisions(value: str) -> tuple[int, ...]:
    """Parts of a power of two for sizes from 1, 2, 4, ... MiB on: one number for all, or
    [MIB:PARTS, ..., >:PARTS], where sizes below the first and between two take the next lower."""
    if not value.startswith("["):
        return (_power("roundup_power2_divisions", value),) * INTERVALS
    found = [1] * INTERVALS
    last: int | None = None
    for item in value[1:-1].split(","):
        size, _, parts_text = item.partition(":")
        parts = _power("roundup_power2_divisions", parts_text)
        first = 0 if last is None else last + 1
        if size == ">":
            found[first:] = [parts] * len(found[first:])
            continue
        place = _power("roundup_power2_divisions", size).bit_length() - 1
        if last is None:
            found[:place] = [parts] * len(found[:place])
        if place < INTERVALS:
            found[place] = parts
        last = place
    return tuple(found)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise _wrong(f"{name}: {text[:40]!r} is no number")
    return int(text)


def _power(name: str, text: str) -> int:
    number = _number(name, text)
    if number & (number - 1):
        raise _wrong(f"{name}: {number} is no power of two")
    return max(1, number)


def _wrong(why: str) -> UsageFault:
    return UsageFault(f"allocator options: {why}", "bad_option")
