# SPDX-License-Identifier: Apache-2.0
"""What the driver's errors mean for a job."""

import pytest

from slurm_coloc.core.recover import xid
from slurm_coloc.core.recover.xid import Cause


@pytest.mark.parametrize(
    ("number", "shared", "kind", "words"),
    [
        (31, True, "mps-fault", "page fault (a program's fault)"),
        (31, False, "xid", "page fault"),
        (45, True, "xid", "follows another error"),  # a killed neighbour is no fault of the server
        (48, True, "xid", "ECC error (hardware)"),
        (79, False, "gpu-lost", "fallen off the bus"),
        (4711, True, "xid", "not in our table"),
    ],
)
def test_event(number: int, shared: bool, kind: str, words: str) -> None:
    found, text = xid.event(number, "GPU-1", shared=shared)
    assert found == kind and text.startswith(f"Xid {number} on GPU-1: ") and words in text


def test_what_breaks_a_gpu() -> None:
    texts = {number: xid.event(number, "GPU-1", shared=False)[1] for number in (13, 45, 63, 79, 95)}
    assert [number for number, text in texts.items() if xid.breaks(text)] == [79, 95]
    assert not xid.breaks("GPU-1: Timeout") and not xid.breaks("Xid x")


def test_the_table() -> None:
    """Applications' are those that NVIDIA's device plugin lets pass, and the engine's others."""
    ours = (Cause.APPLICATION, Cause.AFTERMATH)
    healthy = {number for number, one in xid.KNOWN.items() if one.cause in ours}
    assert healthy >= {13, 31, 43, 45, 68, 109}
    ending = {number for number, one in xid.KNOWN.items() if one.ends_clients}
    assert ending <= healthy and 45 not in ending
    assert xid.meaning(1).cause is Cause.UNKNOWN
