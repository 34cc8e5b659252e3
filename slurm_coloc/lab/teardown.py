# SPDX-License-Identifier: Apache-2.0
"""`coloc lab down`: stop what is this lab's and nothing else, then remove its traces."""

from typing import TYPE_CHECKING

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import parts, procs, registry

if TYPE_CHECKING:
    from slurm_coloc.lab.lab import Lab


def down(lab: "Lab", grace_s: float) -> None:
    """Take the lab down; may be called on a lab that is half up, half down or gone.

    Raises SlurmError when something of it could not be removed.
    """
    with registry.locked() as data:
        entry = data["labs"].get(lab.spec.name)
    if entry is None:
        return
    daemons = list(lab.daemons.values())
    # colocd first: it must not act on jobs that end because the lab does.
    procs.stop([one for one in daemons if one.name == "colocd"], grace_s)
    procs.stop([one for one in daemons if one.name.startswith("agent-")], grace_s)
    procs.stop([one for one in daemons if one.name.startswith("slurm")], grace_s)
    procs.stop([one for one in daemons if one.name in ("munged", "mariadbd")], grace_s)
    uids = frozenset(u for name in entry["users"] if (u := parts.uid_of(name)) is not None)
    _end_leftovers(lab, uids)
    lab.forget()
    for name in entry["users"]:
        parts.remove_user(name)
    with registry.locked() as data:
        gone = data["labs"].pop(lab.spec.name, None)
        registry.drop_devices(data, gone["devices"] if gone else [])


def _end_leftovers(lab: "Lab", uids: frozenset[int]) -> None:
    """Kill job steps and what jobs left; again while killing brings new ones to light."""
    left: list[procs.Proc] = []

    def none_left() -> bool:
        left[:] = procs.leftovers(lab.dir, uids)
        procs.stop(left, 0.0)
        return not left

    if not procs.wait_until(none_left, 10.0):
        names = ", ".join(f"{one.name} {one.pid}" for one in left)
        raise SlurmError(f"processes of lab {lab.spec.name} do not end: {names}")
