# SPDX-License-Identifier: Apache-2.0
"""What the hook sends is checked field by field; a forwarded summary cannot hurt."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.packed import unpack_summary
from slurm_coloc.flow.submit.message import read_message


def pack(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text, 9)).decode()


def test_round_trip() -> None:
    assert unpack_summary(pack("├─Conv2d".encode())) == "├─Conv2d"


@pytest.mark.parametrize(
    ("packed", "code"),
    [
        ("%%%", "damaged"),
        ("", "damaged"),
        (base64.b64encode(b"not zlib").decode(), "damaged"),
        (pack(b"x" * 100)[:-8], "damaged"),
        (base64.b64encode(zlib.compress(b"abc" * 99)[:-6]).decode(), "damaged"),
        (pack(b"0" * (4 * 1024 * 1024 + 1)), "too-large"),
        (pack(b"0" * 40_000_000), "too-large"),  # a bomb: 39 KB that inflate to 40 MB
    ],
)
def test_damage_and_bombs_are_told(packed: str, code: str) -> None:
    with pytest.raises(SummaryError) as caught:
        unpack_summary(packed)
    assert caught.value.code == code


@given(st.text(max_size=400))
def test_any_text_is_a_summary_error_or_a_text(packed: str) -> None:
    try:
        assert isinstance(unpack_summary(packed), str)
    except SummaryError:
        pass


def test_job_fields_and_options_are_read() -> None:
    message = {
        "v": 1,
        "op": "submit",
        "uid": 1000,
        "tres_per_node": "gres/gpu:1",
        "num_tasks": 2,
        "requeue": 0,
        "env": ["SLURM_GPUS"],
        "coloc": {"batch_size": "32", "optimizer": "adamw", "kind": "batch"},
    }
    coloc, request = read_message(message)
    assert coloc.batch_size == 32
    assert request == JobRequest(
        1000, num_tasks=2, tres_per_node="gres/gpu:1", requeue=0, env=("SLURM_GPUS",)
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"uid": -1},
        {"uid": "root"},
        {"uid": 1, "tres_per_node": "x" * 20000},
        {"uid": 1, "coloc": {"batch_size": "0"}},
        {"uid": 1, "coloc": {"batch_size": str(2**63)}},
        {"uid": 1, "coloc": {"optimizer": "sophia"}},
        {"uid": 1, "coloc": {"summary": "A" * 70000}},
        {"uid": 1, "requeue": 7},
        {},
    ],
)
def test_a_wrong_field_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageFault) as caught:
        read_message(wrong)
    assert caught.value.code == "bad-request"
