# SPDX-License-Identifier: Apache-2.0
"""What a short text can make the estimator do is bounded, counted in calls and not by a clock."""

from collections.abc import Callable
from cProfile import Profile
from typing import Any

import pytest

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.decide.prepared import Prepared
from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.api import PRECISIONS, TrainingOptions, estimate, estimate_all
from slurm_coloc.estimate.estimators.text import Text
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.request import Given
from slurm_coloc.estimate.variants import MAX_TEXTS, prepared
from slurm_coloc.flow.estimators.calibrations import defaults_of, load_stacks
from tests.unit.estimate import bombs
from tests.unit.estimate.bombs import BOMBS, pack

CONFIG = EstimateConfig()
DEFAULTS = defaults_of(CONFIG, load_stacks(CONFIG))
#: function calls, of which a second has ten to twenty millions; an example needs 50,000 at most
MOST_CALLS = 10_000_000


def estimated(text: str) -> Prepared:
    return prepared(pack(text), Given(batch_size=8, input="3x64x64"), DEFAULTS)


def calls(work: Callable[[], Any]) -> int:
    """Function calls in ``work``, C's own included. One that does not end: pytest's timeout."""
    counter = Profile()
    counter.runcall(work)
    return sum(one.callcount for one in counter.getstats())


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_short_to_send_is_not_long_to_read(name: str) -> None:
    text = BOMBS[name]()
    assert len(pack(text)) <= 65536, "the plugin forwards no more"
    assert calls(lambda: estimated(text)) <= MOST_CALLS


def alone(text: str) -> tuple[Reason, str]:
    found = estimated(text).of("", "", 1)
    assert found.estimate is None
    return found.no_estimate, found.detail


def test_an_array_of_more_texts_than_may_be() -> None:
    at_most = "\f\n".join(["Net(\n)\n"] * MAX_TEXTS)
    assert "1024" not in alone(at_most)[1], "equal texts are read once"
    assert alone(at_most + "\f\nx") == (
        Reason.BAD_SUMMARY, f"the array has more than {MAX_TEXTS} summaries"
    )  # fmt: skip


def test_an_array_counts_as_its_largest_task_and_as_unreadable_as_its_worst() -> None:
    small, large = bombs.table(3), bombs.table(3).replace("[8, 64]", "[8, 640000]")
    one, both = estimated(large).of("", "", 1), estimated(f"{small}\f\n{large}").of("", "", 1)
    assert one.estimate == both.estimate and one.key and not both.key
    assert alone(f"{small}\f\nno model\f\n{large}")[0] is Reason.BAD_SUMMARY


def code(text: str) -> str:
    with pytest.raises(SummaryError) as caught:
        parse_summary(text)
    return caught.value.code


def test_rows_and_what_repeated_ones_stand_for() -> None:
    assert code(bombs.table(20_001)) == "too_many_layers"
    assert code(bombs.table(10_000) * 3) == "too_many_layers", "all models of a text together"
    assert code(bombs.printed(rows=20_001)) == "too_many_layers"
    assert code(bombs.repeated(3_000)) == "too_many_layers"
    assert parse_summary(bombs.repeated(2_000)).layers, "a model of 14,000 layers is one"


def test_recordings_have_what_they_may_take_together() -> None:
    assert parse_summary(bombs.recordings(2, 100_000)).recording
    assert code(bombs.recordings(3, 100_000)) == "too_many_layers"
    assert code(bombs.recording_with_parameters(2)) == "too_many_layers"
    assert code(bombs.recordings_left_out(33)) == "too_many_models"


def test_notes_are_few_and_what_the_user_is_told_is_short() -> None:
    row = "  (0): Linear(in_features=2, out_features=2), 6 params\n"
    body = "".join(f"  (0): Block{n}(\n  {row}  ), 1 params\n" for n in range(5_000))
    summary = parse_summary(f"Net(\n{body}), 1 params\n")
    assert len(summary.notes) <= 10
    assert len(estimated("coloc-recording: end\n" * 9 + bombs.table(3)).of("", "", 1).detail) < 1001


#: Texts that fuzzing found, whose estimate left by another error than it declares.
UNDECLARED = {
    # A float rounds a share of 2^60 parameters up: an allocation of -2 bytes was a free.
    "allocations below zero": bombs.table(2, kind="Conv2d", shape="[8, 64, 8, 8]").replace(
        "4,160", "999999999999999999"
    ),
    "a convolution that gives one number": bombs.table(2, kind="Conv2d", shape="[1]"),
}


@pytest.mark.parametrize("name", UNDECLARED)
def test_no_error_leaves_an_estimate_but_those_that_it_declares(name: str) -> None:
    for precision in PRECISIONS:
        options = TrainingOptions(batch_size=2**31 - 1, precision=precision)
        try:
            summary = parse_summary(UNDECLARED[name])
            found = estimate_all(summary, options, stack=Stack(1900))
        except SummaryError:
            continue
        assert not [one for one in found if "failed" in one.reason]


def test_a_defect_of_an_estimator_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ValueError, IndexError, ZeroDivisionError, RecursionError):

        def broken(*args: object, error: type[Exception] = error) -> None:
            raise error("no tables")

        monkeypatch.setattr(Text, "estimate", broken)
        found = estimate(parse_summary(bombs.table(3)), TrainingOptions(8), stack=Stack(1))
        assert found.memory_mib is None
        assert found.reason == f"the estimate failed ({error.__name__})"


def test_a_recording_that_trains_more_than_it_has() -> None:
    text = bombs.recording([0]).replace("trainable=4096", "trainable=9999")
    summary = parse_summary(text)
    assert (summary.parameters, summary.trainable) == (4096, 4096)
