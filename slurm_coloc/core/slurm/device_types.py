# SPDX-License-Identifier: Apache-2.0
"""GPUs of a node with a gres Type each, so that a job can be put on one of them.

``Name=gpu Type=a100-0 File=/dev/nvidia0`` ... beside one count of shards: with
``--gres=shard:a100-2:12`` a job runs on exactly that GPU, and untyped requests still run on any
(tried on 24.11 and 26.05). The part before the last ``-N`` is the model, the number that of the
device file and of the GPU's place on its node.
"""

import re

_OWN = re.compile(r"(?P<model>.+)-(?P<place>\d{1,3})")


def device_types(model: str, gpus: int) -> list[str]:
    """The type of each of a node's GPUs, in the order of their devices."""
    return [f"{model}-{place}" for place in range(gpus)]


def model_of(kinds: tuple[str, ...]) -> str | None:
    """The model of a node whose GPUs each have a type of their own, numbered from 0 in order; None
    for any other node. ``kinds``: gres types in slurm.conf's order."""
    if not kinds:
        return None
    found = [_OWN.fullmatch(kind) for kind in kinds]
    models = {one["model"] for one in found if one}
    places = [int(one["place"]) for one in found if one]
    if len(models) != 1 or places != list(range(len(kinds))):
        return None
    return models.pop()
