# SPDX-License-Identifier: Apache-2.0
"""Whether something keeps a share off other users' GPUs, and what a job gets where nothing does."""

from dataclasses import replace

import pytest

from slurm_coloc.config import Config, parse_config
from slurm_coloc.core.decide.decide import decide
from slurm_coloc.core.decide.decision import Action, Decision, Estimate, Question, Reason, Rules
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.cluster import ClusterShape, PartitionShape, keeps_users_apart
from slurm_coloc.flow.submit.decide import rules_of
from tests.unit.core.conftest import a100, make_shape

DEFAULT = rules_of(Config())
ONE = JobRequest(uid=1000, tres_per_node="gres/gpu:1")
OPEN = PartitionShape("main", default=True)
APART = replace(OPEN, exclusive_user=True)
BESIDE = PartitionShape("beside")


def ask(
    *parts: PartitionShape,
    request: JobRequest = ONE,
    rules: Rules = DEFAULT,
    slices: tuple[tuple[str, int], ...] = (),
) -> Decision:
    names = tuple(part.name for part in parts)
    shape = make_shape(a100(partitions=names, slices=slices), partitions=parts)
    return decide(Question(request, Estimate("text", 3000, 3000)), shape, rules)


def test_the_default_is_the_user_alone() -> None:
    assert DEFAULT.share_with == "user"
    for value in ("user", "account", "anyone"):
        config = parse_config({"sharing": {"with": value}}, "test")
        assert rules_of(config).share_with == value


def test_native_shares_need_exclusive_user() -> None:
    found = ask(OPEN)
    assert (found.action, found.reason) == (Action.EXCLUSIVE, Reason.SHARING_WITH)
    assert found.why == (
        "nothing here keeps a share off other users' GPUs (sharing.with):"
        " partition main has no ExclusiveUser=YES"
    )
    assert ask(APART).action is Action.COLLOCATE


@pytest.mark.parametrize("value", ["user", "account"])
def test_each_partition_that_it_may_start_in_counts(value: str) -> None:
    rules = replace(DEFAULT, share_with=value)  # type: ignore[arg-type]
    both = replace(ONE, partition="main,beside")
    found = ask(APART, BESIDE, request=both, rules=rules)
    assert found.detail == "partition beside has no ExclusiveUser=YES"
    closed = replace(BESIDE, exclusive_user=True)
    assert ask(APART, closed, request=both, rules=rules).action is Action.COLLOCATE


def test_anyone_is_a_word_of_the_site() -> None:
    assert ask(OPEN, rules=replace(DEFAULT, share_with="anyone")).action is Action.COLLOCATE


def test_pins_keep_users_apart() -> None:
    pinned = replace(DEFAULT, steered=frozenset({"n1"}))
    assert ask(OPEN, rules=pinned).action is Action.COLLOCATE
    for change in ({"reservation": "course"}, {"features": "[rack1*2]"}):
        found = ask(OPEN, request=replace(ONE, **change), rules=pinned)
        assert found.reason is Reason.SHARING_WITH and "pins no job" in found.detail
    elsewhere = replace(DEFAULT, steered=frozenset({"n2"}))
    assert "steered" in ask(OPEN, rules=elsewhere).detail


def test_another_reason_comes_first() -> None:
    shape = make_shape(a100(), partitions=(OPEN,))
    large = Question(ONE, Estimate("text", 60_000, 60_000))
    assert decide(large, shape, DEFAULT).reason is Reason.FILLS_GPU


def test_a_mig_device_is_nobody_else_s() -> None:
    found = ask(OPEN, slices=(("1g.5gb", 7),))
    assert (found.reason, found.slice_mib > 0) == (Reason.FITS_SLICE, True)


def test_no_partition_known_keeps_nobody_apart() -> None:
    assert not keeps_users_apart((), ClusterShape("c", (24, 11)))
    assert not keeps_users_apart(("main",), ClusterShape("c", (24, 11)))
