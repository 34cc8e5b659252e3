# SPDX-License-Identifier: Apache-2.0
"""Our own services, by systemd where it runs this host."""

import os
import pwd
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
        for words in (["daemon-reload"], ["enable", "--quiet", name], ["restart", name]):
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


def state(name: str) -> tuple[str, str] | None:
    """Whether a unit is active and enabled, in systemd's words; None where systemd does not run
    this host."""
    if not BOOTED.is_dir():
        return None
    return _word("is-active", name), _word("is-enabled", name)


def _word(verb: str, name: str) -> str:
    try:
        done = subprocess.run(
            ["systemctl", verb, name], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return str(err)
    return done.stdout.strip() or "not-found"


def runs_as(user: str, *argv: str) -> str:
    """Why a program does not run as that user, "" where it does; asked as oneself by who is not
    root."""
    own = pwd.getpwuid(os.geteuid()).pw_name
    words = ["runuser", "-u", user, "--", *argv] if os.geteuid() == 0 and user != own else [*argv]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd="/"
        )
    except OSError as err:
        return f"{argv[0]} does not run as {user}: {err.strerror} (it, or its interpreter)"
    except subprocess.TimeoutExpired:
        return f"{argv[0]} does not end within {LIMIT_S:g} s as {user}"
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return f"{argv[0]} does not run as {user}: {last[:200]}"
