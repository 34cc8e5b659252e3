# SPDX-License-Identifier: Apache-2.0
"""Gres strings in every form met on real clusters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.slurm import gres
from slurm_coloc.core.slurm.gres import count_of, parse_gres, with_item, without


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gres:gpu:1", [("gpu", None, 1)]),
        ("gres/gpu:a100:2", [("gpu", "a100", 2)]),
        ("gpu", [("gpu", None, 1)]),
        ("gpu:a100", [("gpu", "a100", 1)]),
        ("gres/gpu=2", [("gpu", None, 2)]),
        ("cpu:4,gres/gpu:1", [("cpu", None, 4), ("gpu", None, 1)]),
        ("gpu:a100:2(S:0-1),shard:a100:78(S:0,1)", [("gpu", "a100", 2), ("shard", "a100", 78)]),
        ("gres/gpu:1,gres/lustre:2K", [("gpu", None, 1), ("lustre", None, 2048)]),
        ("gres/shard:0", [("shard", None, 0)]),
        ("(null)", []),
        ("", []),
        (None, []),
    ],
)
def test_forms(text: str | None, expected: list[tuple[str, str | None, int]]) -> None:
    assert [(item.name, item.type, item.count) for item in parse_gres(text)] == expected


def test_without_keeps_the_others_as_written() -> None:
    assert without("gres/gpu:a100:1,gres/lustre:2K", "gpu") == "gres/lustre:2K"
    assert without("gres/gpu:1", "gpu") == ""
    assert with_item("gres/lustre:1", "gres/shard:4") == "gres/shard:4,gres/lustre:1"
    assert with_item("", "gres/shard:4") == "gres/shard:4"


def test_count_of_tells_none_from_zero() -> None:
    assert count_of("gres/gpu:0", "gpu") == 0
    assert count_of("gres/lustre:1", "gpu") is None


@given(st.text(max_size=200))
def test_any_text_is_parsed(text: str) -> None:
    for item in parse_gres(text):
        assert item.count >= 0
        assert item.raw in text


def test_long_requests_are_not_remembered() -> None:
    """A user may send thousands of different ones."""
    for number in range(50):
        text = ",".join([f"gres/gpu:{number}", *["x"] * 100])
        before = gres._known.cache_info().currsize
        assert len(parse_gres(text)) == 101
        assert gres._known.cache_info().currsize == before
    assert parse_gres("gres/gpu:2") is parse_gres("gres/gpu:2")
