# SPDX-License-Identifier: Apache-2.0
"""Our own services, by systemd where it runs this host."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

BOOTED = Path("/run/systemd/system")
LIMIT_S = 60.0


def restart(names: Iterable[str]) -> list[str]:
    """Enable and restart units; what could not be done, as the command to give."""
    left = []
    for name in names:
        if not BOOTED.is_dir():
            left.append(f"no systemd here: restart {name} by hand")
            continue
        for words in (["enable", "--quiet", name], ["restart", name]):
            try:
                done = subprocess.run(
                    ["systemctl", *words], capture_output=True, text=True, timeout=LIMIT_S,
                    check=False,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as err:
                left.append(f"systemctl {' '.join(words)}: {err}")
                break
            if done.returncode:
                left.append(f"systemctl {' '.join(words)}: {done.stderr.strip()[:200]}")
                break
    return left
