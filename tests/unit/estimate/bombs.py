# SPDX-License-Identifier: Apache-2.0
"""Short texts that are long to read: what a user would send to keep an estimator busy.

Each is one forwarded summary, that is at most 65,536 characters when packed.
"""

import base64
import zlib
from collections.abc import Callable

from slurm_coloc.estimate.block.text import leb128

MIB = 2**20


def pack(text: str) -> str:
    """As the SPANK plugin forwards it."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def pieces(salt: str = "") -> str:
    """4 MiB of an array's summaries of one character."""
    return f"{salt}\n" + "a\n\f\n" * ((4 * MIB - len(salt) - 1) // 4)


def different_pieces(count: int = 1023) -> str:
    """An array of as many models as one may have, all of them read."""
    return "\f\n".join(table(3, salt=str(number)) for number in range(count))


def printed(salt: str = "", rows: int = 49_990) -> str:
    """4 MiB of print(model)."""
    row = "Linear(in_features=64, out_features=64, bias=True)"
    return f"Net{salt}(\n" + f"  (0): {row}\n" * rows + ")\n"


def printed_blocks(salt: str = "", blocks: int = 12_000) -> str:
    """Attention in blocks."""
    body = (
        "  (0): Block(\n"
        "    (attn): SelfAttention(\n"
        "      (qkv): Linear(in_features=64, out_features=192, bias=True)\n"
        "    )\n  )\n"
    )
    return f"Net{salt}(\n{body * blocks})\n"


def repeated(times: int = 2**31, salt: str = "") -> str:
    """1.3 KB that stand for two thousand million blocks."""
    return (
        f"Net{salt}(\n  (layers): ModuleList(\n    (0-9): {times} x Block(\n"
        "      (attn): SelfAttention(\n"
        "        (query): Linear(in_features=64, out_features=64, bias=True)\n"
        "        (key): Linear(in_features=64, out_features=64, bias=True)\n"
        "        (value): Linear(in_features=64, out_features=64, bias=True)\n"
        "      )\n"
        "      (norm): LayerNorm((64,), eps=1e-05, elementwise_affine=True)\n"
        "      (fc): Linear(in_features=64, out_features=64, bias=True)\n"
        "    )\n  )\n)\n"
    )


def nested_repeats(times: int = 30, deep: int = 8) -> str:
    """Repeats in repeats."""
    lines = ["Net("]
    lines += [f"{'  ' * (at + 1)}(0-9): {times} x Block(" for at in range(deep)]
    lines.append("  " * (deep + 1) + "(fc): Linear(in_features=64, out_features=64, bias=True)")
    lines += ["  " * (at + 1) + ")" for at in reversed(range(deep))]
    return "\n".join([*lines, ")", ""])


def deep(levels: int = 198, rows: int = 50) -> str:
    """Modules in modules, again and again."""
    lines = ["Net("]
    for _ in range(rows):
        lines += [f"{'  ' * (at + 1)}(0): Block(" for at in range(levels)]
        lines.append("  " * (levels + 1) + "(fc): Linear(in_features=64, out_features=64)")
        lines += ["  " * (at + 1) + ")" for at in reversed(range(levels))]
    return "\n".join([*lines, ")", ""])


def convolutions(rows: int = 19_000) -> str:
    """print(model) of convolutions none of which reads what the one before it makes."""
    lines = ["Net("]
    for at in range(rows):
        reads, makes = (3, 64) if at % 2 == 0 else (64, 5)
        lines.append(f"  ({at}): Conv2d({reads}, {makes}, kernel_size=(3, 3), stride=(1, 1))")
    return "\n".join([*lines, ")", ""])


def branches(deep: int = 60, wide: int = 60) -> str:
    """Blocks in blocks, whose first rows may read the block's input or half of what is there."""
    lines, pad = ["Net(", "  (stem): Conv2d(3, 64, kernel_size=(1, 1), stride=(1, 1))"], "  "
    for _ in range(deep):
        lines.append(f"{pad}(0): Block(")
        pad += "  "
        lines += [
            f"{pad}({at}): Conv2d({reads}, {makes}, kernel_size=(1, 1), stride={stride})"
            for at in range(wide)
            for reads, makes, stride in ((64, 128, "(2, 2)"), (128, 64, "(1, 1)"))
        ]
    while len(pad) > 2:
        pad = pad[:-2]
        lines.append(f"{pad})")
    return "\n".join([*lines, ")", ""])


def table(rows: int = 45_000, kind: str = "Linear", shape: str = "[8, 64]", salt: str = "") -> str:
    """A torchinfo table."""
    rule = "=" * 90
    body = "\n".join([f"├─{kind}: 1-1 {shape} 4,160"] * rows)
    head = "Layer (type:depth-idx)                   Output Shape              Param #"
    total = f"{rows * 4160:,}"
    return (
        f"{rule}\n{head}\n{rule}\nNet{salt}    [8, 64]   --\n{body}\n{rule}\n"
        f"Total params: {total}\nTrainable params: {total}\nNon-trainable params: 0\n{rule}\n"
    )


def recording(events: list[int], parameters: int = 0, batch: int = 1) -> str:
    """One recording: sizes, no workspaces, parameters of 4 KiB, then ``events``."""
    row = [1, 4096, 0, 0, 0]
    row += [1, 0, parameters] if parameters else [0]
    data = leb128([*row, 0, 0, len(events), *events])
    packed = base64.b64encode(zlib.compress(data, 9)).decode()
    lines = "\n".join(packed[at : at + 96] for at in range(0, len(packed), 96))
    return (
        "coloc-recording: begin 1\n"
        f"coloc-recording: torch=2.13.0 batch={batch} scales=yes precision=fp32 optimizer=adamw"
        " accumulate=1 seq_len=0 models=1 family=mlp elements=4096 trainable=4096\n"
        f"{lines}\ncoloc-recording: end {zlib.crc32(data):08x}\n"
    )


def recordings(count: int = 32, events: int = 399_000, salt: int = 0) -> str:
    """So many recordings of one step each, which pack to almost nothing."""
    return recording([0] * (events + salt)) * count


def recording_with_parameters(count: int = 1) -> str:
    return recording([0] * 39_000, parameters=39_000) * count


def recordings_left_out(count: int = 600) -> str:
    """Recordings whose last number is wrong, which is seen when all of it was read."""
    return recording([0] * 200_000 + [7]) * count


def loop(times: int = 19_000) -> str:
    """Layers that allocate nothing, as often as may be."""
    return (
        f"Net(\n  (0): {times} x Identity()\n"
        "  (attn): SelfAttention(\n"
        "    (qkv): Linear(in_features=64, out_features=192, bias=True)\n  )\n)\n"
    )


def closed(rows: int = 5_000, channels: int = 2**40) -> str:
    """Blocks that a depth limit closed, of widths that no model has."""
    body = "\n".join(
        f"├─InvertedResidual: 1-1 [8, {channels}, 8, 8] {channels * 9 + number:,}"
        for number in range(rows)
    )
    head = "Layer (type:depth-idx)                   Output Shape              Param #"
    rule, total = "=" * 90, f"{sum(channels * 9 + number for number in range(rows)):,}"
    return (
        f"{rule}\n{head}\n{rule}\nNet [8, 3, 8, 8] --\n├─Conv2d: 1-1 [8, 3, 8, 8] 84\n"
        f"{body}\n{rule}\n"
        f"Total params: {total}\nTrainable params: {total}\nNon-trainable params: 0\n"
        f"Forward/backward pass size (MB): 99999.00\n{rule}\n"
    )


def marks(count: int = 190_000) -> str:
    """Lines of which each could begin a model."""
    return "Net(\n" * count


def begun_recordings(count: int = 160_000) -> str:
    return "coloc-recording: begin 1\n" * count


def keras3_row(lines: int = 80_000) -> str:
    """A row whose cells go on in each line: all of it would be copied again and again."""
    return "┃ Layer (type) ┃ Output Shape ┃ Param # ┃\n" + "│ a (B) │ ( │ 1 │\n" * lines


def keras2_row(lines: int = 80_000) -> str:
    """The same in the older form."""
    rule = "=" * 65
    head = " Layer (type)                Output Shape              Param #   "
    first = " a (Dense)                   (None, 10)                110       "
    more = " bcdefghijk                  1)                                  "
    return f'Model: "m"\n{"_" * 65}\n{head}\n{rule}\n{first}\n' + f"{more}\n" * (lines * 3 // 4)


#: by name: what a user might send
BOMBS: dict[str, Callable[[], str]] = {
    "pieces": pieces,
    "different pieces": lambda: different_pieces(500),
    "print(model)": printed,
    "print(model) of attention": printed_blocks,
    "print(model) as long as may be": lambda: printed(rows=19_900),
    "attention as long as may be": lambda: printed_blocks(blocks=6_600),
    "repeats as many as may be": lambda: repeated(3_000),
    "two thousand million blocks": repeated,
    "repeats in repeats": nested_repeats,
    "deep": deep,
    "deep as may be": lambda: deep(98, 150),
    "convolutions that do not fit": convolutions,
    "branches in branches": branches,
    "branches as deep as may be": lambda: branches(90, 2),
    "layers that allocate nothing": loop,
    "table of convolutions": lambda: table(45_000, kind="Conv2d", shape="[8, 64, 8, 8]"),
    "table as long as may be": lambda: table(19_900),
    "blocks as many as may be": lambda: table(19_900, kind="Block", shape="[8, 64, 64]"),
    "attention blocks": lambda: table(19_900, kind="SelfAttention", shape="[8, 64, 64]"),
    "layers of transformers": lambda: table(
        19_900, kind="TransformerEncoderLayer", shape="[8, 64, 64]"
    ),
    "convolutions as many as may be": lambda: table(19_900, kind="Conv2d", shape="[8, 64, 8, 8]"),
    "tables of 32 models": lambda: table(600) * 32,
    "closed rows of absurd widths": closed,
    "32 recordings": recordings,
    "a recording as long as may be": lambda: recordings(1, 199_000),
    "a recording of as many parameters as may be": recording_with_parameters,
    "recordings that are left out": recordings_left_out,
    "begun recordings": begun_recordings,
    "a row of Keras 3 that goes on": keras3_row,
    "a row of Keras 2 that goes on": keras2_row,
    "lines that begin a model": marks,
}
