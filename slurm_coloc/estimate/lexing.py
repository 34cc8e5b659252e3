# SPDX-License-Identifier: Apache-2.0
"""From hostile text to clean lines, bounded integers and shapes. Everything is linear in its input.

The bounds are ours: the largest real summary seen (a 36-layer Transformer by torchinfo) has 155 KB
and 1,200 rows, so 4 MiB and 20,000 rows leave a factor of 16.
"""

import re
from collections.abc import Callable, Sized
from functools import lru_cache, wraps
from typing import TypeVar

from slurm_coloc.errors import SummaryError

MAX_BYTES = 4 * 1024 * 1024
MAX_LINE = 8192  # characters; torchinfo's widest real row has 300
MAX_LINES = 200_000
MAX_ROWS = 20_000  # also with what repeated ones stand for
MAX_NUMBER = 2**63 - 1
MAX_NESTING = 8  # brackets inside brackets in one cell

Shape = tuple[int, ...]
Made = TypeVar("Made")
UNKNOWN_DIM = -1  # None, ? or -1 in the text

# CSI, OSC and two-character escape sequences. No branch can match what another starts with, and
# no run may hold an escape character, so a scan over the text stays linear.
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>78])")
_CONTROL = bytes((*range(1, 9), 11, 12, *range(14, 32), 127))
_COUNT = re.compile(r"\d+(?:[,_]\d+)*\Z")
_DIGITS = re.compile(r"\d+\Z")
_LIST = re.compile(r"\[[0-9]{1,18}(?:, [0-9]{1,18}){0,15}\]\Z")


def remembered(read: Callable[[str], Made]) -> Callable[[str], Made]:
    """``read`` with a cache, for equal cells are common. Long cells are hostile: not cached."""
    short = lru_cache(maxsize=4096)(read)

    def known(cell: str) -> Made:
        return short(cell) if len(cell) <= 96 else read(cell)

    return wraps(read)(known)


def fail(code: str, message: str) -> SummaryError:
    """The error for a summary that is refused: ``code`` for machines, one line for people."""
    safe = "".join(char if char.isprintable() else "?" for char in message)
    return SummaryError(safe, code)


def bound_rows(rows: Sized) -> None:
    """Raises too_many_layers where there are more than MAX_ROWS."""
    bound_layers(len(rows))


def bound_layers(count: int) -> None:
    """The same for rows that were counted."""
    if count > MAX_ROWS:
        raise fail("too_many_layers", f"the summary has more than {MAX_ROWS} layers")


def clean_lines(text: str) -> list[str]:
    """Lines without colours, carriage returns and trailing blanks.

    Raises SummaryError empty, binary, too_large, line_too_long or too_many_lines.
    """
    if len(text) > MAX_BYTES or (
        not text.isascii() and len(text.encode("utf-8", "replace")) > MAX_BYTES
    ):
        raise fail("too_large", f"the summary has more than {MAX_BYTES // 2**20} MiB")
    if "\x00" in text:
        raise fail("binary", "the summary holds NUL bytes: it is not a text")
    if "\x1b" in text:
        text = _ANSI.sub("", text).replace("\x1b", "")
    # A lone CR is a progress bar that wrote over its own line: what it wrote last is one line.
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "")
    raw = text.encode("utf-8", "replace")
    if len(text) > 64 and (len(raw) - len(raw.translate(None, _CONTROL))) * 20 > len(text):
        raise fail("binary", "the summary is mostly control characters: it is not a text")
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise fail("too_many_lines", f"the summary has more than {MAX_LINES} lines")
    if max(map(len, lines)) > MAX_LINE:
        raise fail("line_too_long", f"a line of the summary has more than {MAX_LINE} characters")
    lines = [line.rstrip() for line in lines]
    if "\t" in text or "\u00a0" in text:
        lines = [line.replace("\t", "    ").replace("\u00a0", " ") for line in lines]
    if not any(lines):
        raise fail("empty", "the summary is empty")
    return lines


@remembered
def parse_count(cell: str) -> int | None:
    """``1,234`` as 1234, None if the cell is no count; raises number_out_of_range over 2^63-1."""
    cell = cell.strip()
    if len(cell) >= 2 and cell[0] == "(" and cell[-1] == ")":
        cell = cell[1:-1]  # torchinfo puts the count of frozen parameters in parentheses
    if not cell.isascii() or not _COUNT.match(cell):
        return None
    digits = cell.replace(",", "").replace("_", "")
    return bounded(int(digits)) if len(digits) <= 19 else _too_big(digits)


def _too_big(digits: str) -> int:
    raise fail("number_out_of_range", f"the summary holds a number of {len(digits)} digits")


def bounded(number: int) -> int:
    """``number`` itself if it fits in 63 bits; raises number_out_of_range."""
    if number > MAX_NUMBER:
        raise fail("number_out_of_range", "a number over 2^63 follows from the summary")
    return number


def product(shape: Shape) -> int | None:
    """Elements of ``shape``; None when a dimension is not known."""
    total = 1
    for dim in shape:
        if dim == UNKNOWN_DIM:
            return None
        total = bounded(total * dim)
    return total


@remembered
def parse_shapes(cell: str) -> tuple[Shape, ...] | None:
    """The innermost integer lists of a cell: ``[8, 3]``, ``[(None, 4)]``, ``[[-1, 2], [-1, 3]]``.

    None when the cell is no shape. Raises bad_shape for a zero or negative dimension, and for
    brackets that do not close.
    """
    cell = cell.strip()
    if not cell or cell[0] not in "[({":
        return None
    if _LIST.match(cell):
        return (_checked(tuple(map(int, cell[1:-1].split(", ")))),)
    shapes: list[Shape] = []
    stack: list[list[int]] = []
    token = ""
    for char in cell:
        if char in "[({":
            stack.append([])
            if len(stack) > MAX_NESTING:
                raise fail("bad_shape", "a shape is nested too deeply")
            token = ""
        elif char in "])},: ":
            if token and stack and (dim := _dimension(token)) is not None:
                stack[-1].append(dim)
            token = ""
            if char in "])}":
                if not stack:
                    raise fail("bad_shape", "the brackets of a shape do not match")
                dims = stack.pop()
                if dims:
                    shapes.append(_checked(tuple(dims)))
        else:
            token += char
            if len(token) > 64:
                raise fail("bad_shape", "a shape holds something that is no number")
    if stack:
        raise fail("bad_shape", "the brackets of a shape do not close")
    return tuple(shapes)


def _dimension(token: str) -> int | None:
    if token in ("None", "?", "-1"):
        return UNKNOWN_DIM
    if _DIGITS.match(token) and token.isascii():
        return bounded(int(token)) if len(token) <= 19 else _too_big(token)
    if token[0] in "'\"":
        return None  # the key of a dictionary of shapes
    if token in ("torch.Size", "Size", "TensorShape", "tuple", "list"):
        return None
    raise fail("bad_shape", f"a shape holds {token[:24]!r}")


def _checked(shape: Shape) -> Shape:
    if any(dim == 0 for dim in shape):
        raise fail("bad_shape", f"a shape has a dimension of zero: {list(shape)}")
    if len(shape) > 16:
        raise fail("bad_shape", "a shape has more than 16 dimensions")
    return shape
