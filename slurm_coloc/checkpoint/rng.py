# SPDX-License-Identifier: Apache-2.0
"""All random numbers that a training draws: Python's, numpy's, torch's, each GPU's."""

import random
import sys
from typing import Any

States = dict[str, Any]


def states() -> States:
    """All of them, of what the program has loaded."""
    found: States = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        # Plain numbers: torch.load's weights_only, which Lightning uses, takes no numpy array.
        found["numpy"] = (name, keys.tolist(), *rest)
    if torch is not None:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def restore(found: States) -> None:
    """Put them back. A run with another number of GPUs keeps what its further ones have."""
    random.setstate(found["python"])
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in found:
        numpy.random.set_state(found["numpy"])
    if torch is None:
        return
    if "torch" in found:
        torch.set_rng_state(found["torch"])
    if "cuda" in found and torch.cuda.is_available():
        for index, state in enumerate(found["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, index)


def generators(loader: Any) -> list[Any]:
    """Generators of a DataLoader's own, and of its sampler."""
    sampler = getattr(loader, "sampler", None)
    found = [getattr(one, "generator", None) for one in (loader, sampler)]
    return [one for one in dict.fromkeys(found) if one is not None]
