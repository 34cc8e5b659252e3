# SPDX-License-Identifier: Apache-2.0
"""Models that the learned estimators are trained on: a recorded step at another batch size."""

from random import Random

import pytest

pytest.importorskip("torch", reason="torch is not installed: estimator/gpumemnet needs it")

from estimator.gpumemnet.collect import DRAW, PRIME, at, kept
from estimator.gpumemnet.rows import label
from slurm_coloc.estimate.replay.recording import Recording

PADDED = 1000 * PRIME - 60  # a bias of attention whose last row ends early
OWN = 4096 * 65536  # a weight that is nearly as near to a multiple of the prime


def sizes(batch: int) -> tuple[int, ...]:
    step = Recording((OWN,), (), (4 * PRIME,), (4 * PRIME, -1, PADDED, OWN, 1024), frozenset({2}))
    found = at(step, batch)
    assert found.parameters == (OWN,) and found.inputs == (4 * batch,)
    return tuple(event for event in found.events if isinstance(event, int))


@pytest.mark.parametrize("batch", [1, 8, PRIME])
def test_another_batch_changes_what_belongs_to_it(batch: int) -> None:
    assert sizes(batch) == (4 * batch, -1, 1000 * batch - 60, OWN, 1024)


@pytest.mark.parametrize("family", DRAW)
def test_drawn_models_are_the_same_again_and_grow_with_the_batch(family: str) -> None:
    for number in range(1, 3):
        drawn = DRAW[family](Random(f"{family} {number}"))
        assert drawn.words == DRAW[family](Random(f"{family} {number}")).words
        one = kept(drawn, "here")
        assert one.summary.family == family and one.summary.parameters > 0
        few, many = (label(one, batch, "adam") for batch in (8, 512))
        assert few < many
