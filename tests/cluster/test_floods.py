# SPDX-License-Identifier: Apache-2.0
"""One user floods colocd's public socket while another submits, with the hook's own short deadline.

What counts is whether the other user's jobs still share. The same number of them goes before the
flood, so that a slow machine costs both alike.
"""

from collections.abc import Callable

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.floods import FLOODS, flood, remember
from tests.cluster.jobs import Desk, desk

# A flood takes a core from all tests beside it, and they would miss their limits.
pytestmark = pytest.mark.long

SUBMISSIONS = 16
MORE = 2  # that may fail in a flood on top of those that fail without


def not_shared(me: Desk) -> list[str]:
    """What is said to a user whose jobs get whole GPUs."""
    argv = ["sbatch", "--hold", f"--coloc={me.summary}", "--wrap=true"]
    told = [me.lab.run(argv, user=me.user).stderr for _ in range(SUBMISSIONS)]
    me.lab.run(["scancel", "-u", str(me.user)])
    return [text for text in told if "whole GPU" in text]


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_costs_no_other_user_a_share(lab_like: Callable[..., Lab], kind: str) -> None:
    lab = lab_like(users=2, deadline_ms=200)
    remember(lab)
    me = desk(lab)
    not_shared(me)  # the first ones are slower: slurmctld loads modules
    quiet = not_shared(me)
    with flood(lab, kind):
        flooded = not_shared(me)
    print(f"{len(quiet)} and {len(flooded)} of {SUBMISSIONS} on whole GPUs: {set(flooded)}")
    assert len(flooded) <= len(quiet) + MORE, set(flooded)
