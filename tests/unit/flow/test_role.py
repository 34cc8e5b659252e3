# SPDX-License-Identifier: Apache-2.0
"""Which of two colocds acts, from what `scontrol ping` writes."""

import asyncio
from collections.abc import Callable

import pytest

from slurm_coloc.adapters.slurm.commands.parse import parse_ping
from slurm_coloc.core.slurm.controller import Controller
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster import role
from slurm_coloc.flow.cluster.role import Part, Role

BOTH = "Slurmctld(primary) at ctl1 is UP\nSlurmctld(backup) at ctl2 is UP\n"
FIRST_DOWN = "Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is UP\n"
SECOND_DOWN = "Slurmctld(primary) at ctl1 is UP\nSlurmctld(backup) at ctl2 is DOWN\n"
NONE_UP = "Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is DOWN\n"
ONE = "Slurmctld(primary) at ctl1 is UP\n"


class Slurm:
    """A Slurm of two controllers: what scontrol writes, and whether orders are taken."""

    def __init__(self, ping: str, *, obeys: bool = True) -> None:
        self.ping, self.obeys = ping, obeys

    async def controllers(self) -> list[Controller]:
        if not self.ping:
            raise SlurmError("scontrol: no answer within 10 s", "slurm-timeout")
        return parse_ping(self.ping)

    async def config(self) -> dict[str, str]:
        if not self.obeys:
            raise SlurmError("Slurm backup controller in standby mode")
        return {}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advances the monotonic time that a role sees."""
    now = [1000.0]
    monkeypatch.setattr(role.time, "monotonic", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


Clock = Callable[[float], None]


def look(who: Role, clock: Clock, times: int = 1) -> Part:
    for _ in range(times):
        clock(role.LOOK_S)
        try:
            asyncio.run(who.refresh())
        except SlurmError:
            pass
    return who.part


def test_one_controller_is_active_at_once(clock: Clock) -> None:
    who = Role(Slurm(ONE), "elsewhere")  # type: ignore[arg-type]
    assert who.part is Part.UNKNOWN
    assert look(who, clock) is Part.ACTIVE
    clock(10_000)
    assert who.part is Part.ACTIVE


@pytest.mark.parametrize(
    ("ping", "obeys", "first", "second"),
    [
        (BOTH, True, Part.ACTIVE, Part.STANDBY),
        (SECOND_DOWN, True, Part.ACTIVE, Part.STANDBY),
        # The backup answers a ping while it waits; it is in charge once it obeys.
        (FIRST_DOWN, False, Part.STANDBY, Part.STANDBY),
        (FIRST_DOWN, True, Part.STANDBY, Part.ACTIVE),
        (NONE_UP, True, Part.STANDBY, Part.STANDBY),
    ],
)
def test_two_controllers(clock: Clock, ping: str, obeys: bool, first: Part, second: Part) -> None:
    slurm = Slurm(ping, obeys=obeys)
    found = [Role(slurm, name) for name in ("ctl1", "ctl2.site.org")]  # type: ignore[arg-type]
    for who in found:
        look(who, clock, 2)
    assert [who.part for who in found] == [first, second]


def test_never_two_at_one_time(clock: Clock) -> None:
    """Failover, failback and a restart of the primary, with the looks of both in any phase."""
    slurm = Slurm(BOTH)
    roles = [Role(slurm, name) for name in ("ctl1", "ctl2")]  # type: ignore[arg-type]
    story = [BOTH] * 3 + [FIRST_DOWN] * 5 + [BOTH] * 5 + [FIRST_DOWN] + [BOTH] * 3
    seen = []
    for number, ping in enumerate(story):
        slurm.ping, slurm.obeys = ping, number != 13  # 13: a restart, the backup only waits
        for phase in (0, 1):
            clock(role.LOOK_S / 2)
            asyncio.run(roles[phase if number % 2 else 1 - phase].refresh())
            parts = [who.part for who in roles]
            assert parts.count(Part.ACTIVE) < 2, (number, phase)
            seen.append(tuple(parts))
    assert (Part.ACTIVE, Part.STANDBY) in seen[:6]
    assert (Part.STANDBY, Part.ACTIVE) in seen[6:16]
    assert seen[-1] == (Part.ACTIVE, Part.STANDBY)


def test_the_role_lapses_when_slurm_is_silent(clock: Clock) -> None:
    slurm = Slurm(BOTH)
    who = Role(slurm, "ctl1")  # type: ignore[arg-type]
    assert look(who, clock, 2) is Part.ACTIVE
    slurm.ping = ""
    assert look(who, clock) is Part.ACTIVE
    assert look(who, clock, 5) is Part.STANDBY
    slurm.ping = BOTH
    assert look(who, clock, 2) is Part.ACTIVE


def test_a_host_by_its_address(clock: Clock) -> None:
    ping = "Slurmctld(primary) at 127.0.0.1 is UP\nSlurmctld(backup) at 192.0.2.1 is UP\n"
    assert look(Role(Slurm(ping), "x"), clock, 2) is Part.ACTIVE  # type: ignore[arg-type]
