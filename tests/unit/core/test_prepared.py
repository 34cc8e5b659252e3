# SPDX-License-Identifier: Apache-2.0
"""Estimates that were made before the submission: which one counts, and their way as JSON."""

import json
from typing import Any

import pytest

from slurm_coloc.core.decide.decision import Estimate, Reason
from slurm_coloc.core.decide.prepared import Estimated, Prepared, Variant
from slurm_coloc.errors import UsageFault


def estimated(mib: int, **more: Any) -> Estimated:
    known = {
        "fingerprint": "f" * 32, "options": "32/0/adam/fp32", "key": "0/adam/fp32", "batch": 32,
        "estimator": "text 5", "context_mib": 500, "features": {"n_conv": 3, "family": "cnn"},
    }  # fmt: skip
    return Estimated(Estimate("text", mib, mib + 100), **{**known, **more})


PREPARED = Prepared(
    (
        Variant("", 1, estimated(1000), {"a100-40gb": 0.5}),
        Variant("", 2, estimated(1200), {"a100-40gb": 0.4}),
        Variant("h100", 1, estimated(900)),
    )
)


def mib(found: Estimated) -> int:
    return found.estimate.memory_mib if found.estimate else -1


def test_the_variant_of_the_job() -> None:
    assert mib(PREPARED.of("", "", 1)) == 1000
    assert mib(PREPARED.of("h100", "h100-80gb", 1)) == 900
    alone, several = PREPARED.of("", "a100-40gb", 1), PREPARED.of("", "a100-40gb", 4)
    assert alone.estimate and several.estimate
    assert (alone.estimate.smact, several.estimate.smact) == (0.5, 0.4)
    assert (alone.key, several.key) == ("0/adam/fp32", "0/adam/fp32/4 processes")


def test_without_a_key_several_processes_have_none() -> None:
    array = Prepared((Variant("", 2, estimated(1, key="")),))
    assert array.of("", "", 2).key == ""


def test_a_stack_that_came_later_has_no_estimate() -> None:
    found = PREPARED.of("a30", "", 1)
    assert found.estimate is None and "calibrations" in found.detail


def test_a_text_without_an_estimate() -> None:
    none = Prepared.without(Reason.SLOW_ESTIMATE, "x" * 5000, lasting=False)
    found = none.of("h100", "", 3)
    assert (found.no_estimate, len(found.detail)) == (Reason.SLOW_ESTIMATE, 1000)
    assert Prepared.read(json.loads(json.dumps(none.as_json()))) == none


def test_it_comes_through_json() -> None:
    assert Prepared.read(json.loads(json.dumps(PREPARED.as_json()))) == PREPARED


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value of a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((*at, key))
        if isinstance(inner, dict | list):
            found += paths(inner, (*at, key))
    return found


@pytest.mark.parametrize("value", [[], {}, "\x1b[0m", "x" * 2000, -1, 2**64, 1.5, float("nan")])
def test_other_values_are_refused_or_read_whole(value: Any) -> None:
    """Whatever stands at whatever place, reading gives a UsageFault or a record of the bounds."""
    for path in paths(PREPARED.as_json()):
        document: Any = PREPARED.as_json()
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        try:
            read = Prepared.read(document)
        except UsageFault:
            continue
        assert len(json.dumps(read.as_json())) < 20_000, path


@pytest.mark.parametrize("given", [None, [], {}, {"schema": 2}, {"schema": 1, "variants": [1]}])
def test_other_documents_are_refused(given: object) -> None:
    with pytest.raises(UsageFault, match="prepared estimate"):
        Prepared.read(given)
