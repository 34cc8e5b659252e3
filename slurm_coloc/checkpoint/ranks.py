# SPDX-License-Identifier: Apache-2.0
"""Several processes of one training (torch.distributed), where there are several."""

import atexit
import contextlib
import sys
from typing import Any


def _group() -> Any | None:
    """torch.distributed, where the program has set it up."""
    torch = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    if group is None or not group.is_available() or not group.is_initialized():
        return None
    return group


def rank() -> int:
    """Number of this process; 0 where it is alone."""
    group = _group()
    return 0 if group is None else int(group.get_rank())


def size() -> int:
    """Processes of the training."""
    group = _group()
    return 1 if group is None else int(group.get_world_size())


def barrier() -> None:
    """Wait for all of them."""
    group = _group()
    if group is not None and size() > 1:
        group.barrier()


def part_at_exit() -> None:
    """Where all of them leave together: take the group down when the program ends. gloo's threads
    otherwise may end a process by SIGABRT, and its exit code is no longer that of a slot's end."""
    group = _group()
    if group is not None:
        atexit.register(_part, group)


def _part(group: Any) -> None:
    if group.is_initialized():  # the program's own code may have done so
        with contextlib.suppress(Exception):
            group.destroy_process_group()


def anyone(flag: bool) -> bool:
    """Whether one of them says so: all get the same answer, so all leave at the same step."""
    group = _group()
    if group is None or size() == 1:
        return flag
    torch = sys.modules["torch"]
    device = "cuda" if group.get_backend() == "nccl" else "cpu"
    flags = torch.tensor([int(flag)], device=device)
    group.all_reduce(flags, op=group.ReduceOp.MAX)
    return bool(flags.item())


def gathered(value: Any) -> list[Any]:
    """``value`` of every process, in order; every process must call this."""
    group = _group()
    if group is None or size() == 1:
        return [value]
    found: list[Any] = [None] * size()
    group.all_gather_object(found, value)
    return found
