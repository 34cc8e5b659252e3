# SPDX-License-Identifier: Apache-2.0
"""Finds out from the end of a program's log whether it ended by a fault of the GPU or of MPS.

A fatal fault in one client of an MPS server ends all of them, and each gets the same error as if it
were its own (NVIDIA's MPS documentation, on error containment). So the log shows that there was a
fault, not which program caused it: a neighbour that ended at the same moment tells
(core/recover/outcome).
"""

import re
from typing import Literal

from slurm_coloc.core.recover.oom import MAX_EVIDENCE, MAX_LINE, sanitise

#: kind of the evidence of a log that could not be judged: nothing is known of the run's end
NOT_JUDGED = "not-judged"
#: ``mps``: said by MPS itself; ``device``: a fault of some client, or of this program
Kind = Literal["mps", "device"]

# Names and texts of CUDA's errors 700, 719 and 805 to 811 (runtime and driver API).
_MPS = (
    r"\bcudaErrorMps[A-Z]\w{1,40}|\bCUDA_ERROR_MPS_[A-Z_]{1,40}"
    r"|(?:CUDA|cuda|Cuda) .{0,80}?\b(?:MPS (?:client|server|connection)|MPS RPC)"
)
_DEVICE = (
    r"(?:CUDA|cuda|Cuda|GPUassert).{0,200}?(?:unspecified launch failure"
    r"|an illegal memory access was encountered)"
    r"|\bCUDA_ERROR_(?:LAUNCH_FAILED|ILLEGAL_ADDRESS)\b"
    r"|\bcudaError(?:LaunchFailure|IllegalAddress)\b"
)
# One of these (lower case) stands in every line that fits.
_NEEDLES = (
    "cudaerrormps",
    "cuda_error_mps",
    "mps client",
    "mps server",
    "mps connection",
    "mps rpc",
    "unspecified launch failure",
    "illegal memory access",
    "cuda_error_launch_failed",
    "cuda_error_illegal_address",
    "cudaerrorlaunchfailure",
    "cudaerrorillegaladdress",
)


def find_fault(text: bytes | str) -> tuple[Kind, str] | None:
    """The kind and the line of the last fault in the text; None without one."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    low = text.lower()
    if not any(needle in low for needle in _NEEDLES):
        return None
    found: tuple[Kind, str] | None = None
    for line in re.split(r"[\r\n]+", text):
        line = line[:MAX_LINE]
        if hit := re.search(_MPS, line):
            found = ("mps", _shown(line, hit))
        elif hit := re.search(_DEVICE, line):
            found = ("device", _shown(line, hit))
    return found


def _shown(line: str, hit: re.Match[str]) -> str:
    return sanitise(line[max(0, hit.start() - 120) :][:MAX_EVIDENCE])
