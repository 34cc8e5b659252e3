# SPDX-License-Identifier: Apache-2.0
"""Changes to the text of a summary: of its numbers, names, shapes, lines, bytes and recordings."""

import base64
import re
import zlib
from collections.abc import Callable, Sequence
from random import Random

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.block.text import integers, leb128
from tests.unit.estimate import bombs
from tests.unit.estimate.texts import KERAS, NAMES, REPR, TORCHINFO, TORCHSUMMARY, example, keras

LONGEST = 40_000  # characters; longer ones take the time of many short ones
CORPUS: tuple[str, ...] = (
    TORCHSUMMARY,
    TORCHINFO,
    REPR,
    *(keras(name) for name in KERAS),
    *(text for text in map(example, NAMES) if len(text) < LONGEST),
    bombs.repeated(3),
    bombs.nested_repeats(2, 4),
    bombs.table(12, kind="TransformerEncoderLayer", shape="[8, 64, 64]"),
    bombs.closed(6, 32),
    bombs.recording([0, 0, 8, 11, 3, 3, 0], parameters=3),
    "\f\n".join([TORCHINFO, REPR]),
)
NUMBERS = (
    "0", "1", "2", "3", "7", "8", "9", "12", "16", "31", "32", "49", "63", "64", "96", "127", "128",
    "196", "197", "255", "256", "384", "512", "513", "768", "1000", "1024", "3072", "4096", "32000",
    "50257", "65535", "65536", "1000000", "2147483647", "2147483648", "4294967296",
    "999999999999999999", "9223372036854775807", "9223372036854775808", "1" + "0" * 30, "-1", "-0",
    "None", "?", "1e9", "0x10", "1_000", "1,234,567", "²", "٣",
)  # fmt: skip
KIND_WORDS = """
Linear Conv1d Conv2d Conv3d ConvTranspose2d LayerNorm BatchNorm2d GroupNorm RMSNorm ReLU GELU SiLU
Softmax Dropout Embedding MaxPool2d AvgPool2d AdaptiveAvgPool2d Flatten Identity LSTM GRU Block MLP
MultiheadAttention SelfAttention BertSelfAttention GPT2Attention T5Attention LlamaAttention Mlp
WindowAttention ShiftedWindowAttention SwinTransformerBlock SwinTransformerBlockV2 Bottleneck
BasicBlock InvertedResidual MBConv FusedMBConv DepthwiseSeparableConv DenseLayer EdgeResidual
SqueezeExcite PatchMerging PatchEmbed ConvNeXtBlock CNBlock Sequential ModuleList Encoder Scale
DecoderLayer TransformerEncoderLayer BatchNormAct2d LambdaLayer MobileOneBlock LayerScale DropPath
BertForMaskedLM GPT2LMHeadModel T5ForConditionalGeneration LlamaForCausalLM DataParallel Multiply
Qwen2RotaryEmbedding EvoNorm2dS0 Bidirectional Dense InputLayer Parameter Halo SelectiveKernel
RelPosBias BasicConv2d GlobalResponseNorm
"""
KINDS = KIND_WORDS.split()
_NUMBER = re.compile(r"\d[\d,_]*")
_KIND = re.compile(r"[A-Z][A-Za-z0-9_]{2,40}")
_SHAPE = re.compile(r"\[[^\[\]\n]{1,60}\]|\([0-9, None]{3,60}\)")
_BLOCK = re.compile(r"coloc-recording: begin.*?coloc-recording: end [0-9a-f]*\n?", re.DOTALL)
_VALUE = re.compile(r"=\w+")
MARK = "coloc-recording:"

Change = Callable[[Random, str, Sequence[str]], str]


def _at(random: Random, text: str, pattern: re.Pattern[str], new: Callable[[str], str]) -> str:
    """``text`` with one match of ``pattern`` replaced."""
    start = random.randrange(len(text) + 1)
    found = pattern.search(text, start) or pattern.search(text)
    if found is None:
        return text
    return text[: found.start()] + new(found[0]) + text[found.end() :]


def number(random: Random, text: str, others: Sequence[str]) -> str:
    def other(old: str) -> str:
        digits = re.sub(r"\D", "", old)
        if random.random() < 0.5 and 0 < len(digits) < 30:
            value = int(digits)
            return f"{random.choice((value + 1, value - 1, value * 2, value // 2, value * 4)):,}"
        return random.choice(NUMBERS)

    return _at(random, text, _NUMBER, other)


def number_everywhere(random: Random, text: str, others: Sequence[str]) -> str:
    """One number, wherever it stands: a model of another width."""
    found = _NUMBER.findall(text)
    if not found:
        return text
    old, new = random.choice(found), random.choice(NUMBERS)
    return re.sub(rf"(?<![\d,_]){re.escape(old)}(?![\d,_])", new, text)


def kind(random: Random, text: str, others: Sequence[str]) -> str:
    return _at(random, text, _KIND, lambda old: random.choice(KINDS))


def kind_everywhere(random: Random, text: str, others: Sequence[str]) -> str:
    found = _KIND.findall(text)
    return text.replace(random.choice(found), random.choice(KINDS)) if found else text


def shape(random: Random, text: str, others: Sequence[str]) -> str:
    shapes = _SHAPE.findall(text)
    if not shapes:
        return text
    return _at(random, text, _SHAPE, lambda old: random.choice((*shapes, "--", "[]", "[1]")))


def lines(random: Random, text: str, others: Sequence[str]) -> str:
    """A run of lines is removed, repeated, moved or indented."""
    all_lines = text.split("\n")
    start = random.randrange(len(all_lines))
    run = all_lines[start : start + random.choice((1, 1, 1, 2, 3, 5, 8, 20))]
    match random.randrange(5):
        case 0:
            del all_lines[start : start + len(run)]
        case 1:
            all_lines[start:start] = run * random.choice((1, 1, 2, 5))
        case 2:
            del all_lines[start : start + len(run)]
            place = random.randrange(len(all_lines) + 1)
            all_lines[place:place] = run
        case 3:
            pad = random.choice(("  ", "    ", "│    ", "|    ", "\t"))
            all_lines[start : start + len(run)] = [pad + line for line in run]
        case _:
            all_lines[start : start + len(run)] = [line[2:] for line in run]
    return "\n".join(all_lines)


def spliced(random: Random, text: str, others: Sequence[str]) -> str:
    """Lines of another text among these."""
    mine, theirs = text.split("\n"), random.choice(others).split("\n")
    start = random.randrange(len(theirs))
    place = random.randrange(len(mine) + 1)
    mine[place:place] = theirs[start : start + random.choice((1, 3, 10, 50))]
    return "\n".join(mine)


def characters(random: Random, text: str, others: Sequence[str]) -> str:
    start = random.randrange(len(text) + 1)
    some = "()[]{}:,;.-=_|├└│─ \n\r\t\f\x00\x1b\x85\u2028\ud7ff\ufeff0aA\"'\\"
    new = "".join(random.choice(some) for _ in range(random.choice((0, 1, 1, 2, 40))))
    return text[:start] + new + text[start + random.choice((0, 1, 1, 3, 30)) :]


def cut(random: Random, text: str, others: Sequence[str]) -> str:
    return text[: random.randrange(len(text) + 1)]


def recording(random: Random, text: str, others: Sequence[str]) -> str:
    """The numbers of a recording changed, with a checksum that fits them."""
    found = list(_BLOCK.finditer(text))
    if not found:
        others = [one for one in others if MARK in one]
        return text + "\n" + random.choice(others) if others else text
    match = random.choice(found)
    rows = [line.strip() for line in match[0].split("\n")]
    packed = "".join(line for line in rows if not line.startswith(MARK))
    try:
        row = integers(zlib.decompress(base64.b64decode(packed)))
    except (ValueError, zlib.error, SummaryError):
        return text
    for _ in range(random.choice((1, 1, 2, 5))):
        _change_row(random, row)
    data = leb128(row)
    made = base64.b64encode(zlib.compress(data)).decode()
    heads = [_head(random, line) for line in rows if line.startswith(MARK)][:-1]
    new = "\n".join([*heads, made, f"{MARK} end {zlib.crc32(data):08x}", ""])
    return text[: match.start()] + new + text[match.end() :]


def _change_row(random: Random, row: list[int]) -> None:
    place = random.randrange(len(row) + 1)
    value = random.choice(
        (0, 1, 2, 3, 4, 5, 8, 11, 12, 13, 2**20, 2**40, 2**50, 2**56, random.randrange(200))
    )
    if place == len(row) or random.random() < 0.2:
        row.insert(place, value)
    elif random.random() < 0.2:
        del row[place]
    elif random.random() < 0.5:
        row[place] = value
    else:
        row[place] = max(0, row[place] + random.choice((-8, -1, 1, 8)))


def _head(random: Random, line: str) -> str:
    if random.random() < 0.9:
        return line
    return re.sub(
        r"=\w+", lambda old: "=" + random.choice((*NUMBERS, "mlp", "adam", "none")), line, count=1
    )


CHANGES: tuple[Change, ...] = (
    number, number, number, number_everywhere, number_everywhere, kind, kind, kind_everywhere,
    shape, shape, lines, lines, lines, spliced, characters, cut, recording, recording,
)  # fmt: skip


def mutated(random: Random, inputs: Sequence[str]) -> str:
    """One of ``inputs`` with a few changes."""
    text = random.choice(inputs)
    for _ in range(random.choice((1, 1, 2, 2, 3, 4, 6, 10))):
        text = random.choice(CHANGES)(random, text, inputs) or text
    return text[:LONGEST]
