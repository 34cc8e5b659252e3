# SPDX-License-Identifier: Apache-2.0
"""The meaning of an error that the driver reports (an "Xid") for the jobs on its GPU.

Numbers and words are those of NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors). Those that
an application causes and that leave the GPU healthy are taken from NVIDIA's device plugin for
Kubernetes: 13, 31, 43, 45, 68 and 109. All others concern the GPU, its driver or its links.

A fatal exception of one MPS client ends all clients of that server, and none learns which client
caused it (NVIDIA's MPS documentation, on error containment). Exceptions of the compute engine are
13, 31, 43, 69 and 109; 45 is a cleanup, which also follows a killed process.
"""

import re
from dataclasses import dataclass

from slurm_coloc.core.codes import Code

GPU_LOST = 79
_NUMBER = re.compile(r"Xid ([0-9]{1,6})\b")


class Cause(Code):
    """Who or what causes an Xid."""

    APPLICATION = "application", "a program's fault"
    AFTERMATH = "aftermath", "follows another error or a killed program"
    HARDWARE = "hardware", "hardware"  # the GPU, its memory, its bus or links
    DRIVER = "driver", "driver or firmware"  # a reset mends it
    UNKNOWN = "unknown", "see NVIDIA's Xid catalog"


@dataclass(frozen=True, slots=True)
class Meaning:
    """``ends_clients``: under MPS it ends every client on the GPU."""

    cause: Cause
    text: str
    ends_clients: bool = False


_APP, _HARD, _DRIVER = Cause.APPLICATION, Cause.HARDWARE, Cause.DRIVER
KNOWN = {
    8: Meaning(_APP, "GPU stopped processing"),
    13: Meaning(_APP, "graphics engine exception", ends_clients=True),
    31: Meaning(_APP, "GPU memory page fault", ends_clients=True),
    32: Meaning(_APP, "invalid or corrupted push buffer stream"),
    43: Meaning(_APP, "GPU stopped processing", ends_clients=True),
    45: Meaning(Cause.AFTERMATH, "preemptive cleanup, due to previous errors"),
    48: Meaning(_HARD, "double bit ECC error"),
    62: Meaning(_DRIVER, "internal micro-controller halt"),
    63: Meaning(_HARD, "ECC page retirement or row remapping recorded"),
    64: Meaning(_HARD, "ECC page retirement or row remapping failed"),
    68: Meaning(_APP, "video processor exception"),
    69: Meaning(_APP, "graphics engine class error", ends_clients=True),
    74: Meaning(_HARD, "NVLink error"),
    GPU_LOST: Meaning(_HARD, "GPU has fallen off the bus"),
    92: Meaning(_HARD, "high single-bit ECC error rate"),
    94: Meaning(_HARD, "contained memory error"),
    95: Meaning(_HARD, "uncontained memory error"),
    109: Meaning(_APP, "context switch timeout", ends_clients=True),
    119: Meaning(_DRIVER, "GSP RPC timeout"),
    120: Meaning(_DRIVER, "GSP error"),
    140: Meaning(_HARD, "unrecovered ECC error"),
    154: Meaning(_DRIVER, "GPU recovery action changed"),
}
#: Xids that harm no running program
HARMLESS = frozenset({63, 92, 154})


def meaning(number: int) -> Meaning:
    """The meaning of an Xid; UNKNOWN for one that is not in the table."""
    return KNOWN.get(number, Meaning(Cause.UNKNOWN, "not in our table"))


def event(number: int, where: str, *, shared: bool) -> tuple[str, str]:
    """Kind and text of the event in a run's record. ``where``: the GPU; ``shared``: the run was a
    client of MPS there, beside clients of other runs."""
    found = meaning(number)
    kind = "mps-fault" if shared and found.ends_clients else "xid"
    if number == GPU_LOST:
        kind = "gpu-lost"
    return kind, f"Xid {number} on {where}: {found.text} ({found.cause.text})"


def breaks(text: str) -> bool:
    """Whether the Xid in an event's text ends programs that did not cause it."""
    hit = _NUMBER.match(text)
    number = int(hit[1]) if hit else 0
    return meaning(number).cause in (_HARD, _DRIVER) and number not in HARMLESS
