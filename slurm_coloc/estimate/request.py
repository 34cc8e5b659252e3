# SPDX-License-Identifier: Apache-2.0
"""What is known when a text is estimated: the user's options and the site's configuration.

Plain data that crosses a process border; no estimator and no parser is loaded by it.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from slurm_coloc.errors import UsageFault
from slurm_coloc.estimate.replay.allocator import Rules
from slurm_coloc.estimate.replay.stack import Stack

# The text that the estimator is warmed up with. It loads parsers, kinds and estimators at their
# first use, which takes longer than the estimate itself.
WARM_UP = """\
================================================================================
Layer (type:depth-idx)                   Output Shape              Param #
================================================================================
Net                                      [1, 10]                   --
├─Conv2d: 1-1                            [1, 8, 30, 30]            224
├─Linear: 1-2                            [1, 10]                   72,010
================================================================================
Total params: 72,234
Trainable params: 72,234
Non-trainable params: 0
================================================================================
"""


@dataclass(frozen=True, slots=True)
class Given:
    """What a user says of a training, None where nothing. ``alloc_conf``:
    PYTORCH_CUDA_ALLOC_CONF. ``input``: shape of one sample, see shape_of. ``training``: see
    training_of."""

    batch_size: int | None = None
    seq_len: int | None = None
    optimizer: str | None = None
    precision: str | None = None
    alloc_conf: str | None = None
    input: str | None = None
    training: str | None = None


#: an input's shape as the plugin takes it, too: one to four sizes, channels first
SHAPE = r"^[1-9][0-9]{0,6}(x[1-9][0-9]{0,6}){0,3}$"


def shape_of(text: str | None) -> tuple[int, ...] | None:
    """3x224x224 as numbers. Raises UsageFault for what is not of the form SHAPE."""
    if text is None:
        return None
    if not re.fullmatch(SHAPE, text.lower()):
        raise UsageFault(f"an input's shape must be like 3x224x224, not {text!r}", "bad_option")
    return tuple(int(size) for size in text.lower().split("x"))


#: what else a training does that no summary shows: gradients of several batches are added up, the
#: model is compiled (torch.compile), its blocks are run again in the backward (gradient
#: checkpointing); ZeRO's stage or FSDP (stage 3) divides it among processes
FREE, STAGES = ("accumulate", "compile", "checkpoint"), ("zero1", "zero2", "zero3", "fsdp")
TRAINING = (*FREE, *STAGES)
TRAINING_FORM = rf"^({'|'.join(TRAINING)})(,({'|'.join(TRAINING)})){{0,3}}$"


class Training(NamedTuple):
    """The words of TRAINING as an estimate takes them."""

    accumulate: bool = False
    compiled: bool = False
    checkpointed: bool = False
    zero_stage: int = 0


def training_of(text: str | None) -> Training:
    """Words of TRAINING with commas between them. Raises UsageFault, also for two stages."""
    words = (text or "").split(",") if text else []
    stages = [3 if word == "fsdp" else int(word[-1]) for word in words if word in STAGES]
    if len(stages) > 1 or not set(words) <= set(TRAINING):
        known = f"{', '.join(FREE)} and one of {', '.join(STAGES)}"
        raise UsageFault(f"a training may be {known}, not {text!r}", "bad_option")
    accumulate, compiled, checkpointed = (word in words for word in FREE)
    return Training(accumulate, compiled, checkpointed, stages[0] if stages else 0)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the site's configuration says: [estimate] without its files. ``stacks``: by the names of
    calibrations; "" is that of all other GPU types."""

    estimator: str
    stacks: Mapping[str, Stack]
    optimizer: str
    precision: str
    seq_len: int
    level: float

    def as_json(self) -> dict[str, Any]:
        """An object that ``read`` takes."""
        return asdict(self)

    @property
    def basis(self) -> str:
        """A short name of all of it: estimates that follow from other defaults have another."""
        text = json.dumps(self.as_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def read(cls, given: dict[str, Any]) -> "Defaults":
        """From ``as_json``'s object, which colocd made."""
        stacks = {
            name: Stack(**{**one, "allocator": _rules(one["allocator"])})
            for name, one in given["stacks"].items()
        }
        return cls(**{**given, "stacks": stacks})


def _rules(given: dict[str, Any]) -> Rules:
    return Rules(**{**given, "divisions": tuple(given["divisions"])})
