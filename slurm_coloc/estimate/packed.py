# SPDX-License-Identifier: Apache-2.0
"""The text of a summary as the SPANK plugin forwards it: base64 of zlib."""

import base64
import binascii
import zlib

from slurm_coloc.estimate.lexing import MAX_BYTES, fail

MAX_PACKED = 65536  # characters; the SPANK plugin sends no more


def unpack_summary(packed: str) -> str:
    """The text. Inflating stops at 4 MiB, so that a bomb costs no more than an honest text of that
    size. Raises SummaryError damaged, too-large."""
    if len(packed) > MAX_PACKED:
        raise fail("too-large", f"the summary has more than {MAX_PACKED} characters when packed")
    try:
        data = base64.b64decode(packed, validate=True)
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, MAX_BYTES + 1)
    except (binascii.Error, ValueError, zlib.error) as err:
        raise fail("damaged", f"the forwarded summary is damaged: {err}") from err
    if len(text) > MAX_BYTES:
        raise fail("too-large", "the summary is larger than 4 MiB")
    if not inflater.eof:
        raise fail("damaged", "the forwarded summary is cut short")
    return text.decode("utf-8", errors="replace")
