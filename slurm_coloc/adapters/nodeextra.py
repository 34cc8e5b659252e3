# SPDX-License-Identifier: Apache-2.0
"""A node's Extra, asked and set by its own agent (root) with scontrol (23.11 and later)."""

import json
import os
import subprocess

from slurm_coloc.errors import SlurmError

LIMIT_S = 10.0


def _scontrol(*words: str) -> str:
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["scontrol", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            env=env,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise SlurmError(f"scontrol {words[0]}: {err}") from err
    if done.returncode:
        raise SlurmError(f"scontrol {words[0]}: {done.stderr.strip()[-200:]}")
    return done.stdout


def read(node: str) -> str:
    """The Extra of a node where it is a JSON object, else "". Raises SlurmError."""
    _, sep, rest = _scontrol("show", "node", "-o", node).partition(" Extra={")
    if not sep:
        return ""
    rest = "{" + rest
    try:
        _, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return ""
    return rest[:end]


def write(node: str, text: str) -> None:
    """Replace it. Raises SlurmError."""
    _scontrol("update", f"NodeName={node}", f"Extra={text}")
