# SPDX-License-Identifier: Apache-2.0
"""Recognises a batch script, for --coloc=auto, by a hash of what it runs.

Other comments, blank lines, white space at the ends of lines and other #SBATCH lines (memory, GPUs
and tasks come from the request) leave it the same script. Any other change of the text, or other
arguments, make it another one. What the script starts (train.py) is not read.
"""

import hashlib
from collections.abc import Sequence


def normal(script: str) -> str:
    """The lines that count: the first one, and those neither blank nor a comment."""
    lines = [line.rstrip() for line in script.splitlines()]
    first = lines[:1] if lines and lines[0].startswith("#!") else []
    rest = (line for line in lines if line and not line.lstrip().startswith("#"))
    return "\n".join([*first, *rest])


def script_fingerprint(uid: int, script: str, arguments: Sequence[str]) -> str:
    """32 hex digits for a user's script with its arguments; different for every user."""
    digest = hashlib.blake2b(digest_size=16, person=b"coloc-auto")
    for part in (str(uid), normal(script), *arguments):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
