# SPDX-License-Identifier: Apache-2.0
"""`scontrol show reservation -o` as slurmctld 22.05.8 wrote it, with Unix seconds for times."""

import pytest

from slurm_coloc.adapters.slurm.commands.shape import parse_reservations

MEND = (
    "ReservationName=mend StartTime=1795411344 EndTime=1795411944 Duration=00:10:00 Nodes=n[2-3]"
    " NodeCnt=2 CoreCnt=64 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES"
    " TRES=cpu=64 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE"
    " BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)


def test_reservations_of_nodes() -> None:
    (one,) = parse_reservations(MEND + "\n")
    assert (one.name, one.nodes) == ("mend", "n[2-3]")
    assert (one.start_s, one.end_s) == (1795411344.0, 1795411944.0)


@pytest.mark.parametrize(
    "text",
    ["", "No reservations in the system\n", MEND.replace("n[2-3]", "(null)")],
    ids=["nothing", "none", "licences"],
)
def test_none(text: str) -> None:
    assert parse_reservations(text) == []
