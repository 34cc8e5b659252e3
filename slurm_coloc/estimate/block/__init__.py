# SPDX-License-Identifier: Apache-2.0
"""The machine-readable block of `coloc summarize`: one training step's allocations in a text.

Layout (schema 1), between the lines of a summary or below them::

    coloc-recording: begin 1
    coloc-recording: torch=2.13.0 batch=32 scales=yes precision=fp32 ... (key=value, see HEADER)
    <base64 of zlib of numbers, lines of at most 96 characters>
    coloc-recording: end <crc32 of the numbers, 8 hex digits>

``numbers`` are LEB128 integers, see wire. Nothing in a block is executed or trusted: every count is
bounded before memory is taken for it, and every index is checked.
"""

MARK = "coloc-recording:"
SCHEMA = 1
#: characters of a line of base64
WIDTH = 96
#: bytes of the numbers of all blocks of a text after inflating, and of a block's base64: a 48-layer
#: Transformer needs a tenth
MAX_NUMBERS = 1 << 20
MAX_PACKED = 1 << 19
