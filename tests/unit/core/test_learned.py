# SPDX-License-Identifier: Apache-2.0
"""Earlier runs correct an estimate: never under what was measured, never surprised by the order."""

import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slurm_coloc.core.decide.decision import Estimate
from slurm_coloc.core.decide.learned import NOISE, Past, correct, step
from slurm_coloc.core.decide.levels import LEVELS, at_level
from slurm_coloc.core.gpu.peak import Use, peak_of

CONTEXT = 1900
TEXT = Estimate("text", 5425, 6052)
mib = st.integers(2000, 80_000)
batches = st.sampled_from([4, 8, 16, 32, 64])


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    peak = draw(mib)
    return Past(
        batch=draw(batches),
        runs=draw(st.integers(0, 200)),
        peak_mib=peak,
        low_mib=draw(st.integers(2000, peak)),
        at_least_mib=draw(st.sampled_from([0, 3000, 9000])),
        oom_mib=draw(st.sampled_from([0, 4096, 20480])),
        memory_mib=draw(st.sampled_from([0, 3000, 9000, 40_000])),
        context_mib=CONTEXT,
        other_gpu=draw(st.booleans()),
    )


def cleaned(past: list[Past]) -> list[Past]:
    """As the store has them: no peak without a run."""
    return [one if one.runs else replace(one, peak_mib=0, low_mib=0) for one in past]


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    memory = draw(mib)
    return Estimate("text", memory, memory + draw(st.integers(64, 40_000)))


@given(estimates(), batches, st.lists(pasts(), max_size=6))
def test_never_under_what_was_measured(estimate: Estimate, batch: int, past: list[Past]) -> None:
    past = cleaned(past)
    found = correct(estimate, batch, CONTEXT, past)
    bound = found.estimate if found else estimate
    assert bound.upper_mib >= bound.memory_mib
    measured = any(one.runs for one in past if one.batch == batch)
    for one in past:
        if one.batch == batch:
            assert bound.upper_mib >= max(one.peak_mib, one.at_least_mib)
        if one.batch < batch and not measured:
            assert bound.upper_mib >= max(one.peak_mib, one.at_least_mib, one.oom_mib)


@given(estimates(), batches, st.lists(pasts(), max_size=6), st.randoms())
def test_the_order_of_the_runs_does_not_matter(
    estimate: Estimate, batch: int, past: list[Past], rng: random.Random
) -> None:
    past = cleaned(past)
    mixed = rng.sample(past, len(past))
    assert correct(estimate, batch, CONTEXT, past) == correct(estimate, batch, CONTEXT, mixed)


@given(estimates(), batches, st.lists(pasts(), min_size=1, max_size=6), st.integers(1, 20_000))
def test_an_out_of_memory_and_an_early_end_never_lower(
    estimate: Estimate, batch: int, past: list[Past], more: int
) -> None:
    past = cleaned(past)
    before = correct(estimate, batch, CONTEXT, past)
    assume(before is not None)
    for worse in (
        replace(past[0], oom_mib=past[0].oom_mib + more),
        replace(past[0], at_least_mib=past[0].at_least_mib + more),
    ):
        after = correct(estimate, batch, CONTEXT, [worse, *past[1:]])
        assert before and after and after.estimate.upper_mib >= before.estimate.upper_mib


@given(estimates(), mib, st.integers(1, 50), st.integers(0, 20_000))
def test_a_larger_peak_never_lowers(estimate: Estimate, peak: int, runs: int, more: int) -> None:
    bounds = []
    for value in (peak, peak + more):
        found = correct(estimate, 32, CONTEXT, [Past(32, runs, value, peak)])
        assert found
        bounds.append(found.estimate.upper_mib)
    assert bounds[0] <= bounds[1]


@given(mib, st.integers(1, 100))
def test_more_equal_runs_never_widen(peak: int, runs: int) -> None:
    one = correct(TEXT, 32, CONTEXT, [Past(32, runs, peak, peak)])
    two = correct(TEXT, 32, CONTEXT, [Past(32, runs + 1, peak, peak)])
    assert one and two and two.estimate.upper_mib <= one.estimate.upper_mib


def test_runs_of_the_same_batch_take_over() -> None:
    found = correct(TEXT, 32, CONTEXT, [Past(32, 3, 4900, 4880, memory_mib=5425)])
    assert found
    assert found.estimate == Estimate("text", 4900, 5120)
    assert found.why == "3 earlier runs of this model used 4900 MiB at most"


def test_doubt_alone_does_not_lift_the_bound_above_the_estimates() -> None:
    scattered = correct(TEXT, 32, CONTEXT, [Past(32, 2, 5000, 2500)])
    assert scattered and scattered.estimate.upper_mib == TEXT.upper_mib
    other_card = correct(TEXT, 32, CONTEXT, [Past(32, 1, 4900, 4900, other_gpu=True)])
    assert other_card and other_card.estimate.upper_mib == TEXT.upper_mib
    above = correct(TEXT, 32, CONTEXT, [Past(32, 2, 7000, 2500)])
    assert above and 7000 < above.estimate.upper_mib < 8000


def test_a_first_run_that_hardly_trained_does_not_shrink_the_rest_away() -> None:
    tiny = [Past(32, 1, 500, 500, memory_mib=5425, context_mib=CONTEXT)]
    for batch in (32, 64):
        found = correct(TEXT, batch, CONTEXT, tiny)
        assert found and found.estimate.upper_mib > CONTEXT + (5425 - CONTEXT) // 2


def test_another_batch_transfers_by_the_ratio() -> None:
    one = [Past(16, 4, 3600, 3600, memory_mib=3900, context_mib=CONTEXT)]
    found = correct(TEXT, 32, CONTEXT, one)
    assert found and found.estimate.memory_mib == CONTEXT + round(3525 * 0.85 + 0.5)
    two = [*one, Past(8, 1, 2700, 2700, memory_mib=2900, context_mib=CONTEXT)]
    nearer = correct(TEXT, 32, CONTEXT, two)
    assert nearer and nearer.estimate.upper_mib < found.estimate.upper_mib < TEXT.upper_mib
    assert correct(TEXT, 32, CONTEXT, [replace(one[0], memory_mib=0)]) is None
    assert correct(None, 32, CONTEXT, one) is None, "without an estimate nothing transfers"


def test_an_out_of_memory_alone_leaves_the_same_batch_to_the_share_rule() -> None:
    assert correct(TEXT, 32, CONTEXT, [Past(32, oom_mib=6144)]) is None
    larger = correct(TEXT, 64, CONTEXT, [Past(32, oom_mib=6144)])
    assert larger and larger.estimate.upper_mib > 6144


def test_a_wrong_word_about_a_smaller_batch_ends_with_a_measured_run() -> None:
    wrong = Past(2, 1, 36_000, 36_000, oom_mib=5120)
    before = correct(TEXT, 32, CONTEXT, [wrong])
    assert before and before.estimate.upper_mib > 36_000
    after = correct(TEXT, 32, CONTEXT, [wrong, Past(32, 1, 4900, 4900)])
    assert after and after.estimate.upper_mib < 5500


def test_history_alone_where_there_is_no_estimate() -> None:
    found = correct(None, 0, CONTEXT, [Past(0, 1, 4000, 4000)])
    assert found and found.estimate.name == "history"
    assert 4000 < found.estimate.upper_mib < 4400
    assert correct(None, 0, CONTEXT, [Past(0, at_least_mib=4000)]) is None


@pytest.mark.parametrize("level", [0.9, 0.99])
@pytest.mark.parametrize("runs", [1, 3, 10])
def test_the_margin_keeps_its_promise_on_normal_noise(runs: int, level: float) -> None:
    rng = random.Random(runs)
    over = [
        rng.gauss(0, NOISE) - max(rng.gauss(0, NOISE) for _ in range(runs)) for _ in range(40_000)
    ]
    share = statistics.mean(one > step(runs, level) * NOISE for one in over)
    assert abs(share - (1 - level)) < 0.2 * (1 - level)


def test_levels() -> None:
    curve = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
    assert [at_level(curve, level) for level in LEVELS] == pytest.approx(curve)
    assert 1.3 < at_level(curve, 0.985) < 1.4
    assert (at_level(curve, 0.4), at_level(curve, 0.9999)) == (1.0, 1.6)


def test_peak_of_processes_that_ran_together_and_one_after_the_other() -> None:
    after = [Use(1, 100, 110, 3000), Use(2, 120, None, 4000)]
    assert peak_of([after], 100, 200) == (found := peak_of([after, []], 100, 200))
    assert found and (found.peak_mib, found.alone) == (4000, True)
    together = [Use(1, 100, 130, 3000), Use(2, 120, 125, 4000), Use(3, 125, 140, 500)]
    both = peak_of([together], 100, 200)
    assert both and both.peak_mib == 7500
    stranger = [Use(9, 10, None, 20_000), *after]
    beside = peak_of([stranger], 100, 200)
    assert beside and (beside.peak_mib, beside.alone) == (4000, False)
    gone = peak_of([[Use(9, 10, 50, 20_000), *after]], 100, 200)
    assert gone and gone.alone
    assert peak_of([[Use(9, 10, 50, 20_000)]], 100, 200) is None
