# SPDX-License-Identifier: Apache-2.0
"""The form in which jobstats keeps a document in AdminComment: ``JS1:`` and JSON, gzip, base64.

Nothing else can stand in such a comment: Python's base64 reads on behind the padding since the
repair of CVE-2026-3446.
"""

import base64
import binascii
import json
import zlib
from typing import Any

PREFIX = "JS1:"
_GZIP = 31  # zlib's largest window, in gzip's own form
_MOST = 2**20  # bytes of a document: those of the largest jobs have some thousands


def packed(document: dict[str, Any]) -> str:
    """A comment of this document alone."""
    text = json.dumps(document, separators=(",", ":"))
    return PREFIX + base64.b64encode(zlib.compress(text.encode(), wbits=_GZIP)).decode()


def unpacked(comment: str) -> dict[str, Any] | None:
    """The document of a comment; None where it has none, as in jobstats' ``JS1:Short``."""
    if not comment.startswith(PREFIX):
        return None
    try:
        raw = base64.b64decode(comment[len(PREFIX) :], validate=True)
        text = zlib.decompressobj(_GZIP).decompress(raw, _MOST)
        found = json.loads(text)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
