# SPDX-License-Identifier: Apache-2.0
"""Which of several colocds is active: the one on the host of the slurmctld in charge.

`scontrol ping` tells which controller answers, not which is in charge: a backup answers while it
waits. A backup is in charge when no controller before it answers and Slurm's commands work all the
same. A colocd that loses the role stops at once, one that gains it waits for another check, so two
never act at one time.
"""

import os
import time
from collections.abc import Sequence
from enum import StrEnum

import structlog

from slurm_coloc.adapters.link.address import Names, is_own
from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.core.slurm.controller import Controller, active_controller
from slurm_coloc.errors import SlurmError

log = structlog.get_logger()

LOOK_S = 5.0  # between two checks where there are several controllers
# A check that hangs (a host that is off, a backup that is taking over) must end the role as well.
TRUSTED_S = 4 * LOOK_S


class Part(StrEnum):
    """What this colocd is."""

    UNKNOWN = "unknown"  # Slurm has not answered yet
    ACTIVE = "active"
    STANDBY = "standby"


class Role:
    """This colocd's part, kept fresh by ``refresh``."""

    def __init__(self, slurm: SlurmClient, host: str = "") -> None:
        """``host``: this host's name, for tests."""
        self._slurm = slurm
        self._host = host or os.uname().nodename
        self._names = Names()
        self._alone = False
        self._part = Part.UNKNOWN
        self._chosen_s: float | None = None  # since when this host's slurmctld is in charge
        self._refreshed_s = 0.0

    @property
    def part(self) -> Part:
        """The present part; STANDBY in place of ACTIVE once checks have failed for TRUSTED_S."""
        stale = not self._alone and time.monotonic() - self._refreshed_s > TRUSTED_S
        return Part.STANDBY if self._part is Part.ACTIVE and stale else self._part

    @property
    def pause_s(self) -> float:
        """Seconds to the next check; a single controller needs few."""
        return 120.0 if self._alone else LOOK_S

    async def refresh(self) -> None:
        """Check which controller is in charge; raises SlurmError where none answers."""
        found = await self._slurm.controllers()
        before, self._alone = self.part, len(found) < 2
        chosen = self._alone or await self._is_mine(found)
        now = self._refreshed_s = time.monotonic()
        if not chosen:
            self._chosen_s, self._part = None, Part.STANDBY
        else:
            self._chosen_s = now if self._chosen_s is None else self._chosen_s
            held = self._alone or now - self._chosen_s >= LOOK_S
            self._part = Part.ACTIVE if held else Part.STANDBY
        if before is not self._part and not (self._alone and before is Part.UNKNOWN):
            log.info("role", part=str(self._part), host=self._host)

    async def _is_mine(self, found: Sequence[Controller]) -> bool:
        """Whether the slurmctld of this host is in charge."""
        one = active_controller(found)
        if one is None or not await self._is_here(one.host):
            return False
        if one.primary:
            return True
        try:
            # A waiting backup refuses this, or does not answer in time.
            await self._slurm.config()
        except SlurmError:
            return False
        return True

    async def _is_here(self, host: str) -> bool:
        name = host.partition("(")[0]
        if name.partition(".")[0] == self._host.partition(".")[0]:
            return True
        return any(is_own(address) for address in await self._names.addresses(name))
