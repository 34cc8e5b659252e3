# SPDX-License-Identifier: Apache-2.0
"""The GPUs that ``coloc estimate --fit`` looks at, and the batch sizes of ``--batch-sizes``."""

import re
from collections.abc import Iterator
from dataclasses import replace

from slurm_coloc.cli.estimate.request import Request, Setting, options_of, site_of, total_of
from slurm_coloc.core.decide.slices import HELD_MIB
from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.core.gpu.mig import CARDS
from slurm_coloc.errors import UsageFault
from slurm_coloc.estimate.answer import Answer
from slurm_coloc.estimate.fit import Device, Fitted, fitted

MOST_SIZES = 64
_SIZE = "[1-9][0-9]{0,8}"
_SIZES = re.compile(f"{_SIZE}(?:,{_SIZE}){{0,{MOST_SIZES - 1}}}")


def sizes_of(text: str | None) -> tuple[int, ...]:
    """8,16,32 as numbers. Raises UsageFault."""
    if text is None:
        return ()
    if not _SIZES.fullmatch(text):
        raise UsageFault(
            f"--batch-sizes: give at most {MOST_SIZES} whole numbers, as 8,16,32, not {text!r}"
        )
    return tuple(int(one) for one in text.split(","))


def batch_of(found: Answer, given: Request) -> int | None:
    """The batch size that was asked for."""
    return given.batch_size or found.summary.batch_in_text


def _devices(setting: Setting, given: Request) -> Iterator[Device]:
    """The GPU of ``given``, else all that are known or calibrated; and the MIG devices of each."""
    margin_mib = setting.config.pool.margin_mib
    names = [given.gpu] if given.gpu else [*GPU_TYPES]
    if not given.gpu:
        names += [name for name in setting.stacks.by_type if name not in GPU_TYPES]
    for name in names:
        site = site_of(setting, given.model_copy(update={"gpu": name, "visible_mib": None}))
        stack = replace(site.stack, visible_mib=None)
        yield Device(name, total_of(setting, name) - margin_mib, stack)
        seen = set()
        for profile in CARDS[name].profiles if name in CARDS else ():
            if profile.memory < CARDS[name].memory and profile.mib not in seen:
                seen.add(profile.mib)  # of equal ones that with the fewest SMs
                yield Device(f"{name} {profile.name}", profile.mib - HELD_MIB, stack)


def fits_of(setting: Setting, found: Answer, given: Request) -> list[Fitted]:
    """What it fits, smallest first."""
    devices = sorted(_devices(setting, given), key=lambda one: one.mib)
    return fitted(found.summary, options_of(setting.config, given), devices, found.chosen.name)
