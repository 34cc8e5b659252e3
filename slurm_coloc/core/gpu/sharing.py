# SPDX-License-Identifier: Apache-2.0
"""How the jobs of one GPU share it: MPS, or taking turns (streams). Rules only, no I/O.

An MPS server serves one user at a time; another user's client waits until the first one's have
left, which may be hours. So the first user on a GPU has MPS there for as long as his jobs run on
it, and other users' jobs take turns with that server. Where the site allows one server for all
users (`sharing.users = "all"`, Volta and later), everybody has MPS and one client's fault ends all.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

from slurm_coloc.core.slurm.hosts import in_nodes


class Method(StrEnum):
    """How a job uses its GPU."""

    MPS = "mps"
    STREAMS = "streams"  # its kernels take turns with those of other processes
    ALONE = "alone"  # a whole GPU: nothing is set up


class Rules(NamedTuple):
    """[sharing] of the configuration."""

    method: Literal["auto", "mps", "streams", "mig"] = "auto"
    users: Literal["one", "all"] = "one"


NODE_NAMES = r"[0-9A-Za-z_.,\[\]-]{1,4096}"
# A GPU by its UUID (or a MIG device by its), or by the minor number of its device file.
GPU_NAME = r"(?:GPU|MIG)-[0-9A-Za-z/-]{8,80}|[0-9]{1,4}"


class Rule(NamedTuple):
    """An exception of [[sharing.rules]] by ``node`` (a list) and ``gpu`` (GPU_NAME); None: all."""

    method: Literal["mps", "streams"]
    node: str | None = None
    gpu: str | None = None

    def fits(self, node: str, uuid: str, minor: int | None) -> bool:
        """Whether it applies to this GPU. ``minor``: of a MIG device, that of its GPU."""
        if self.node is not None and not in_nodes(self.node, node):
            return False
        return self.gpu is None or self.gpu == uuid or self.gpu == str(minor)


def method_on(
    default: str, rules: Sequence[Rule], node: str, uuid: str, minor: int | None = None
) -> str:
    """The method of [sharing] for one GPU: the first rule that fits, else ``default``."""
    return next((rule.method for rule in rules if rule.fits(node, uuid, minor)), default)


class Chosen(NamedTuple):
    """``reason``: tells the job's owner why it is not MPS; "" for MPS, or where none is needed."""

    method: Method
    reason: str = ""


def chosen(rules: Rules, uid: int, present: Collection[int], missing: str = "") -> Chosen:
    """The method of a job of ``uid`` on a GPU where the users ``present`` have MPS already.
    ``missing``: why this node has no MPS; "" where it has."""
    if rules.method == "streams":
        return Chosen(Method.STREAMS, "this site shares this GPU without MPS")
    if missing:
        return Chosen(Method.STREAMS, missing)
    if rules.users == "one" and any(other != uid for other in present):
        return Chosen(Method.STREAMS, "another user has MPS on this GPU")
    return Chosen(Method.MPS)
