# SPDX-License-Identifier: Apache-2.0
"""Knowing a batch script again, for --coloc=auto: by a hash of what it runs.

The same: other comments, blank lines and white space at the ends of lines, and other #SBATCH lines
(what of them bears on memory, GPUs and tasks, is asked of the request). Another one: any other
change of the text, other arguments. What the script starts (train.py) is not looked at.
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
