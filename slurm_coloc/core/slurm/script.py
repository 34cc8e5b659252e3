# SPDX-License-Identifier: Apache-2.0
"""Recognises a batch script, for --coloc=auto, by a hash of what it runs.

A script stays the same with other comments, blank lines, white space at the ends of lines and other
#SBATCH lines (memory, GPUs and tasks are taken from the request). Any other change of the text, or
other arguments, make it another one. What the script starts (train.py) is not read.
"""

import hashlib
from collections.abc import Sequence


def normal(script: str) -> str:
    """The lines that count: neither blank nor a comment; the first line's interpreter does."""
    lines = [line.rstrip() for line in script.splitlines()]
    first = lines[:1] if lines and lines[0].startswith("#!") else []
    rest = (line for line in lines if line and not line.lstrip().startswith("#"))
    return "\n".join([*first, *rest])


def script_fingerprint(uid: int, script: str, arguments: Sequence[str]) -> str:
    """32 hex digits for a user's script with its arguments; two users' are never the same."""
    digest = hashlib.blake2b(digest_size=16, person=b"coloc-auto")
    for part in (str(uid), normal(script), *arguments):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
