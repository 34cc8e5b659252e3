# SPDX-License-Identifier: Apache-2.0
"""How the jobs of one GPU share it: MPS, or taking turns (streams). Rules only, no I/O.

An MPS server serves one user at a time; another user's client waits until the first one's have
gone, which may be hours. So the first user on a GPU has MPS there for as long as a job of theirs
runs on it, and other users' jobs take turns with that server. Where the site allows one server for
all users (`sharing.users = "all"`, Volta and later), everybody has MPS and a fault of one client
ends all of them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Method(StrEnum):
    """What a job does on its GPU."""

    MPS = "mps"
    STREAMS = "streams"  # its kernels take turns with those of other processes
    ALONE = "alone"  # a whole GPU: nothing is set up


@dataclass(frozen=True, slots=True)
class Rules:
    """[sharing] of the configuration."""

    method: Literal["auto", "mps", "streams", "mig"] = "auto"
    users: Literal["one", "all"] = "one"


@dataclass(frozen=True, slots=True)
class Chosen:
    """``reason``: for the job's owner, why it is not MPS; "" where it is, or needs none."""

    method: Method
    reason: str = ""


def chosen(rules: Rules, uid: int, present: Collection[int], missing: str = "") -> Chosen:
    """The method of a job of ``uid`` on a GPU where the users ``present`` have MPS already.
    ``missing``: why MPS cannot be had on this node; "" where it can."""
    if rules.method == "streams":
        return Chosen(Method.STREAMS, "this site shares GPUs without MPS")
    if missing:
        return Chosen(Method.STREAMS, missing)
    if rules.users == "one" and any(other != uid for other in present):
        return Chosen(Method.STREAMS, "another user has MPS on this GPU")
    return Chosen(Method.MPS)
