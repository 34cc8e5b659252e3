# SPDX-License-Identifier: Apache-2.0
"""What the front answers people from: the history, Slurm, the nodes' figures, the main process."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.config import Config
from slurm_coloc.core.peer import Peer
from slurm_coloc.flow.queries.figures import Figures

T = TypeVar("T")


class Reading(Protocol):
    """Runs ``what(store, *values)`` beside the event loop."""

    def __call__(self, what: Callable[..., T], *values: Any) -> Awaitable[T]: ...


class Main(Protocol):
    """The main process (adapters/channel.Channel)."""

    async def call(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]: ...


@dataclass(slots=True)
class Site:
    """What answers are made from. ``trusted``: uids that see all. ``private``: whether PrivateData
    hides users' jobs from each other; true while that is not known."""

    config: Config
    read: Reading
    slurm: SlurmClient
    main: Main
    trusted: frozenset[int]
    private: bool = True
    standby: bool = False
    figures: Figures = field(default_factory=Figures)

    def limited_to(self, peer: Peer) -> int | None:
        """The user whose jobs a peer may see; None: all."""
        return None if peer.uid in self.trusted else peer.uid
