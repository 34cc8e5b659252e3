# SPDX-License-Identifier: Apache-2.0
"""What steering keeps from one decision to the next saves time and changes no answer."""

import pytest

from slurm_coloc.core.place.placing import Policy, Start, View
from slurm_coloc.core.place.queue_discipline import first_that_starts
from slurm_coloc.core.place.steering import steer
from slurm_coloc.policies import interference, policy
from tests.bench.place_bench import snapshot


class Forgetful:
    """A policy that is given nothing of what was kept."""

    name = "forgetful"

    def __init__(self, inner: Policy) -> None:
        self._inner = inner

    def next(self, view: View) -> Start | None:
        view.by_job = view.reservations = None
        view.plans, view.by_host = {}, {}
        return self._inner.next(view)


class EveryKey:
    """Interference in a mixed pool, with the key of every GPU."""

    name = "every-key"

    def next(self, view: View) -> Start | None:
        return first_that_starts(view, lambda *given: interference._SPARING(*given))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("nodes", (1, 3, 12))
def test_the_answers_are_the_same(nodes: int, seed: int) -> None:
    seen = snapshot(nodes, 12 * nodes, seed)
    auto = policy("auto")
    answers = steer(seen, auto)
    assert any(one.pin for one in answers[0])
    assert answers == steer(seen, Forgetful(auto)) == steer(seen, Forgetful(EveryKey()))
