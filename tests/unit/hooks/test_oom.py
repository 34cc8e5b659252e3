# SPDX-License-Identifier: Apache-2.0
"""The frameworks' texts against their verdicts (tests/contract/oom), and hostile text."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.recover.oom import MAX_EVIDENCE, find_oom, sanitise

TEXTS = Path(__file__).parents[2] / "contract" / "oom"
EXPECTED: dict[str, dict[str, Any] | None] = json.loads((TEXTS / "expected.json").read_text())


def test_every_text_has_a_verdict() -> None:
    assert {file.stem for file in TEXTS.glob("*.txt")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_text(name: str) -> None:
    found = find_oom((TEXTS / f"{name}.txt").read_bytes())
    expected = EXPECTED[name]
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert {key: getattr(found, key) for key in expected} == expected
    assert found.oom is ("superseded_by" not in expected)
    assert found.line.isprintable()
    assert 0 < len(found.line) <= MAX_EVIDENCE


TORCH = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0"


def test_the_last_evidence_wins() -> None:
    first = TORCH.replace("64.00 MiB", "1.00 GiB")
    found = find_oom(f"{first}\nretry\n{TORCH}\n")
    assert found is not None
    assert found.requested_mib == 64


def test_control_characters_and_escapes_do_not_survive() -> None:
    found = find_oom(f"\x1b[31m{TORCH}\x1b]0;title\x07 \x00\x9b\u202e\u2028 end\n".encode())
    assert found is not None
    assert found.line.isprintable()
    assert "\x1b" not in found.line
    assert sanitise("a\x1b[1;31mb\tc\n") == "ab c"


def test_a_line_of_many_megabytes() -> None:
    found = find_oom(TORCH + " x" * 4_000_000)
    assert found is not None
    assert len(found.line) == MAX_EVIDENCE


def test_binary_text() -> None:
    assert find_oom(bytes(range(256)) * 1000) is None
    assert find_oom(b"\xff\xfe" + TORCH.encode() + b"\xff") is not None


@pytest.mark.parametrize(
    "piece",
    [
        "error ",
        "CUDA error ",
        "Error: CUDA error: out of memory",
        "OOM when allocating tensor with shape[",
        "RESOURCE_EXHAUSTED: ",
        "what(): failed cudaErrorMemoryAllocation",
        "CUDA out of memory. Tried to allocate 9",
        "9" * 64,
        "\x1b[",
        "error\r",
    ],
)
def test_time_is_linear(piece: str) -> None:
    text = piece * (2_000_000 // len(piece)) + " out of memory (2) cudnn_status_ _alloc_failed"
    start = time.perf_counter()
    find_oom(text)
    find_oom((piece * 60 + "\n") * (2_000_000 // (60 * len(piece))))
    assert time.perf_counter() - start < 8.0


@given(
    st.lists(
        st.sampled_from(
            [
                TORCH,
                "Traceback (most recent call last):",
                "KeyError: 'x'",
                "\r",
                "OOM when allocating tensor with shape[1,,9999999999999999999] and type float",
                "\n",
                "CUDA ",
                "Tried to allocate 1.2.3,4 GiB",
                "RESOURCE_EXHAUSTED: Out of memory allocating 9e9 bytes",
                "\x00\x1b[",
                "During handling of the above exception",
            ]
        )
    ),
    st.binary(max_size=64),
)
def test_any_text_has_a_verdict(pieces: list[str], noise: bytes) -> None:
    found = find_oom("\n".join(pieces).encode() + noise)
    if found is not None:
        assert found.line.isprintable()
        assert len(found.line) <= MAX_EVIDENCE
