# SPDX-License-Identifier: Apache-2.0
"""The cluster's shape as last read, and whether it may be out of date."""

import asyncio
import contextlib
import time

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.errors import SlurmError


class ShapeCache:
    """``shape``: None until Slurm has answered once; ``at_s``: when that reading began."""

    def __init__(self, slurm: SlurmClient) -> None:
        self._slurm = slurm
        self.shape: ClusterShape | None = None
        self.at_s: float | None = None  # Unix seconds
        self._began_s = 0.0  # the same, monotonic seconds
        self.answered = asyncio.Event()  # the first reading has ended
        self._refreshing: asyncio.Task[None] | None = None

    def gpu_type(self, node: str | None) -> str:
        """The type of a node's GPUs; "" where it has none or the node is not known."""
        nodes = self.shape.nodes if self.shape else ()
        return next((one.gpu_type or "" for one in nodes if one.name == node), "")

    async def refresh(self) -> None:
        """Read the shape; after a SlurmError the last one stays."""
        at_s, began_s = time.time(), time.monotonic()
        try:
            self.shape = await self._slurm.shape()
            self.at_s, self._began_s = at_s, began_s
        finally:
            self.answered.set()

    async def is_stale(self, loaded_ms: object, limit_s: float) -> bool:
        """Whether slurmctld has started or read slurm.conf since the last reading, and a new one
        took longer than ``limit_s``: Slurm refuses shards that it no longer has, and with other
        SelectTypeParameters a share in this spelling.

        ``loaded_ms``: when slurmctld loaded the hook, which it does after it read slurm.conf
        (milliseconds of this host's monotonic clock); anything but a number: not known.
        """
        if self.shape is None:
            return False  # there is nothing to be out of date
        if not isinstance(loaded_ms, int) or self._younger(loaded_ms):
            return False
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_quietly())
        await asyncio.wait([self._refreshing], timeout=limit_s)  # it goes on after that
        return not self._younger(loaded_ms)

    def _younger(self, than_ms: int) -> bool:
        return self._began_s * 1000 > than_ms

    async def _refresh_quietly(self) -> None:
        with contextlib.suppress(SlurmError):
            await self.refresh()
