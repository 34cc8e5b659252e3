# SPDX-License-Identifier: Apache-2.0
"""Whether root may trace processes here, as it may on a machine and not in a plain container."""

from pathlib import Path

CAP_SYS_PTRACE = 19
WITHOUT_TRACE = "needs CAP_SYS_PTRACE, as root has it on a machine"


def may_trace_processes() -> bool:
    """By the capabilities of this process."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> CAP_SYS_PTRACE & 1)
