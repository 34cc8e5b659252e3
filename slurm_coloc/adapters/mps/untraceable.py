# SPDX-License-Identifier: Apache-2.0
"""How a daemon is started as its user and yet not lent to that user's debuggers.

An MPS daemon runs as the user that it serves, so that user's job may attach to it by ptrace(2) and
run code in it, outside of the job's cgroup and of its end. Linux refuses that where the traced
process has a capability that the tracer has not (ptrace(2), "Ptrace access mode checking"). So the
daemon gets one that is of no use to it, as an ambient capability: that survives the exec of the
control daemon and of the servers that it starts. setpriv(1), of util-linux, does this.
"""

import os
from pathlib import Path

SETPRIV = Path("/usr/bin/setpriv")
#: Numbers of linux/capability.h, the least first. Not CAP_WAKE_ALARM: systemd 254 gives it to the
#: sessions of users. The last one is what root still has in a container.
HARMLESS = {"block_suspend": 36, "lease": 28, "net_bind_service": 10}
CHECK_S = 2.0


def prefix(uid: int, gid: int) -> list[str]:
    """The words before a command that is to run as this user and not to be traced; [] where that
    cannot be had."""
    held = _permitted()
    for name, number in HARMLESS.items():
        if held >> number & 1:
            only = f"-all,+{name}"
            words = [
                *(str(SETPRIV), f"--reuid={uid}", f"--regid={gid}", "--clear-groups"),
                *(f"--inh-caps={only}", f"--ambient-caps={only}"),
            ]
            return words if _works(words) else []
    return []


def _works(words: list[str]) -> bool:
    import subprocess  # 3 ms that a job on whole GPUs need not wait

    try:
        quiet = subprocess.DEVNULL
        done = subprocess.run(
            [*words, "/bin/true"],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            timeout=CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _permitted() -> int:
    """The capabilities of this process, a bit each."""
    for line in Path(f"/proc/{os.getpid()}/status").read_text("ascii", "replace").splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0
