# SPDX-License-Identifier: Apache-2.0
"""A Traced as lines of a text, and the blocks of a text; see the package for the layout."""

import base64
import binascii
import re
import textwrap
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.block import MARK, MAX_NUMBERS, MAX_PACKED, SCHEMA, WIDTH
from slurm_coloc.estimate.block.traced import Traced
from slurm_coloc.estimate.block.wire import MAX_EVENTS, MAX_SIZE, MAX_TENSORS, numbers, step_of
from slurm_coloc.estimate.lexing import fail

MAX_BLOCKS = 32
FAMILIES = ("mlp", "cnn", "transformer", "other")
PRECISIONS = ("fp32", "amp", "bf16")
#: keys of the second line with the largest integer, or the words that are allowed
HEADER: dict[str, int | tuple[str, ...]] = {
    "batch": 2**31 - 1,
    "scales": ("yes", "no"),
    "precision": PRECISIONS,
    "optimizer": (*OPTIMIZERS, "none"),
    "accumulate": 2**31 - 1,
    "seq_len": 2**31 - 1,
    "models": 64,
    "family": FAMILIES,
    "elements": MAX_SIZE,
    "trainable": MAX_SIZE,
}
_FROM_ONE = ("batch", "accumulate", "models")
_TORCH = re.compile(r"[0-9A-Za-z.+_-]{1,32}\Z")


def block(traced: Traced) -> str:
    """The lines of a block, with a newline at the end."""
    data = leb128(numbers(traced))
    packed = base64.b64encode(zlib.compress(data, 9)).decode()
    head = " ".join(f"{key}={_value(traced, key)}" for key in HEADER)
    words = f"torch={traced.torch[:32]} {head}"
    lines = [
        f"{MARK} begin {SCHEMA}",
        *(f"{MARK} {line}" for line in textwrap.wrap(words, WIDTH - len(MARK))),
        *(packed[at : at + WIDTH] for at in range(0, len(packed), WIDTH)),
        f"{MARK} end {zlib.crc32(data):08x}",
    ]
    return "\n".join(lines) + "\n"


def _value(traced: Traced, key: str) -> str:
    value = getattr(traced, key)
    if key == "scales":
        return "yes" if value else "no"
    return str(value) or "none"


def leb128(row: Iterable[int]) -> bytes:
    """Integers from 0 on, seven bits a byte, the lowest first."""
    out = bytearray()
    for number in row:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


def integers(data: bytes) -> list[int]:
    """The integers of ``leb128``. Raises SummaryError damaged."""
    row: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        if byte > 127:
            shift += 7
            if shift > 56:
                raise fail("damaged", "the recording holds a number that is too long")
            continue
        row.append(number)
        number = shift = 0
    if shift:
        raise fail("damaged", "the recording is cut short")
    return row


def split(lines: Sequence[str]) -> tuple[list[str], list[Traced], list[str]]:
    """The lines that are no block, the recordings, and a note for each block that is no use.

    A damaged block costs its figure, not the text's: the rows beside it are still read.
    """
    if not any(MARK in line for line in lines):
        return list(lines), [], []
    rest: list[str] = []
    blocks = _Blocks()
    notes = blocks.notes
    inside: list[str] | None = None
    for line in lines:
        # A terminal or a log may have put blanks before the lines.
        text = line.strip()
        if text.startswith(MARK):
            words = text[len(MARK) :].split()
            if words[:1] == ["begin"]:
                if inside is not None:
                    notes.append("a recording has no end and is left out")
                inside = [text]
                continue
            if inside is not None:
                inside.append(text)
                if words[:1] == ["end"]:
                    blocks.add(inside)
                    inside = None
                continue
            notes.append("a recording has no beginning and is left out")
            continue
        if inside is None:
            rest.append(line)
        elif text:
            inside.append(text)
    if inside is not None:
        notes.append("a recording has no end and is left out")
    return rest, blocks.found, list(dict.fromkeys(notes))


class _Blocks:
    """The recordings of a text. What they may take they take together: a block of a hundred
    characters can stand for a million numbers."""

    def __init__(self) -> None:
        self.found: list[Traced] = []
        self.notes: list[str] = []
        self._count = 0
        self._bytes = MAX_NUMBERS
        self._events = MAX_EVENTS
        self._tensors = MAX_TENSORS

    def add(self, lines: list[str]) -> None:
        """Raises SummaryError too_many_models, too_many_layers."""
        self._count += 1
        if self._count > MAX_BLOCKS:
            raise fail("too_many_models", f"the text holds more than {MAX_BLOCKS} recordings")
        try:
            head, data = _unpacked(lines, self._bytes)
            self._bytes -= len(data)
            made = _made(head, data)
        except SummaryError as err:
            self.notes.append(f"{err.message}: the recording is left out")
            return
        self._events -= len(made.events)
        self._tensors -= len(made.parameters) + len(made.constants) + len(made.inputs)
        if self._events < 0 or self._tensors < 0:
            raise fail("too_many_layers", "the recordings of the text are too long")
        self.found.append(made)


def read(lines: Sequence[str]) -> Traced:
    """The recording of one block's lines, markers included. Raises SummaryError damaged, newer."""
    return _made(*_unpacked(lines, MAX_NUMBERS))


def _unpacked(lines: Sequence[str], most: int) -> tuple[dict[str, Any], bytes]:
    """The words at the head of a block, and its numbers' bytes, ``most`` at most."""
    words = [line[len(MARK) :].split() for line in lines if line.startswith(MARK)]
    if words[0][1:] != [str(SCHEMA)]:
        raise fail("newer", "the recording was made by another release of coloc")
    head = _header([word for line in words[1:-1] for word in line])
    if not _TORCH.match(head.get("torch", "")):
        raise fail("damaged", "the recording does not say which torch made it")
    if missing := set(HEADER) - set(head):
        raise fail("damaged", f"the recording does not say {min(missing)}")
    data = _inflated("".join(line for line in lines if not line.startswith(MARK)), most)
    if words[-1][1:] != [f"{zlib.crc32(data):08x}"]:
        raise fail("damaged", "the recording is damaged (its checksum is another)")
    return head, data


def _made(head: dict[str, Any], data: bytes) -> Traced:
    step = step_of(integers(data))
    head["scales"] = head["scales"] == "yes"
    head["optimizer"] = head["optimizer"].replace("none", "")
    return Traced(step.parameters, step.constants, step.inputs, step.events, step.gradients, **head)


def _header(words: list[str]) -> dict[str, Any]:
    """Values by the keys of HEADER, and ``torch``; each is checked."""
    head: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        limit = HEADER.get(key)
        if key == "torch":
            head[key] = value
        elif isinstance(limit, tuple):
            if value not in limit:
                raise fail("damaged", f"the recording has an unknown {key}")
            head[key] = value
        elif limit is not None:
            if not (value.isascii() and value.isdecimal() and len(value) < 20):
                raise fail("damaged", f"the recording has no number for {key}")
            if not (key in _FROM_ONE) <= int(value) <= limit:
                raise fail("damaged", f"the recording has a {key} out of its range")
            head[key] = int(value)
        # An unknown key is one that this release need not know: the schema would be another.
    return head


def _inflated(packed: str, most: int) -> bytes:
    """The numbers' bytes: inflating stops at ``most``, whatever the packed ones say."""
    if len(packed) > MAX_PACKED:
        raise fail("damaged", "the recording is too large")
    try:
        raw = base64.b64decode(packed, validate=True)
        inflater = zlib.decompressobj()
        data = inflater.decompress(raw, most + 1)
    except (binascii.Error, ValueError, zlib.error):
        raise fail("damaged", "the recording is damaged") from None
    if len(data) > most or not inflater.eof or inflater.unused_data:
        raise fail("damaged", "the recording is damaged or too large")
    return data
