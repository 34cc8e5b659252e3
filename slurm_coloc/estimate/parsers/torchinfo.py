# SPDX-License-Identifier: Apache-2.0
"""torchinfo 1.5 to 1.8: a tree with any columns in any order.

Rows at the depth limit carry what lies below them, so a row may be a collapsed block. The footer's
"Forward/backward pass size" counts the outputs of all leaf modules with parameters, twice, also of
those that the limit hides: the difference to the rows is what is hidden. MB is 10^6 bytes.
"(recursive)" rows run again and have outputs of their own; their parameters count once. A count in
parentheses is of parameters that are not trained.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_coloc.estimate.kinds import Role, holds_activation
from slurm_coloc.estimate.lexing import (
    MAX_ROWS,
    UNKNOWN_DIM,
    Shape,
    bounded,
    fail,
    parse_count,
    parse_shapes,
)
from slurm_coloc.estimate.summary import Layer, Summary, family_of
from slurm_coloc.estimate.tables import (
    Footer,
    footer_of,
    is_rule,
    per_sample,
    refuse_negative,
    trainable_of,
)

_COLUMNS = (
    ("Input Shape", "input"),
    ("Output Shape", "output"),
    ("Param #", "count"),
    ("Param %", "percent"),
    ("Kernel Shape", "kernel"),
    ("Mult-Adds", "macs"),
    ("Trainable", "trainable"),
    ("Groups", "groups"),
)
_NAME = re.compile(
    r"(?P<tree>(?:[│|]? {4})*(?:[│|] {0,4})*(?:[├└+][─-]? ?)?)"
    r"(?P<kind>[^\s:()\[\]]{1,128})"
    r"(?: \((?P<var>[^()\s]{1,128})\))?"
    r"(?:: (?P<depth>\d{1,4})(?:-\d{1,7})?)?(?=\s|$)"
)
_MAX_DEPTH = 500
# A row without brackets in brackets, that is nearly every row.
_FLAT = re.compile(r"\[[^\[\](){}]*\]|\([^\[\](){}]*\)|[^ \[\](){}]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the tree, its shapes as printed."""

    kind: str
    depth: int
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    count: int
    recursive: bool
    kernel: int
    frozen: bool


def _cells(text: str) -> list[str]:
    """Cells of a row: a bracketed list is one cell whatever blanks it holds. Linear."""
    flat = _FLAT.findall(text)
    if " ".join(flat) == " ".join(text.split()):  # no bracket is left over or touches a cell
        return flat
    cells: list[str] = []
    depth, current = 0, ""
    for char in text:
        if char == " " and depth == 0:
            if current:
                cells.append(current)
            current = ""
            continue
        current += char
        if char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
    if depth != 0:
        raise fail("bad_shape", "the brackets of a shape do not close")
    if current:
        cells.append(current)
    return cells


def _columns(header: str) -> list[str]:
    found = sorted(
        (header.find(title), name) for title, name in _COLUMNS if header.find(title) >= 0
    )
    return [name for _, name in found]


class TorchInfo:
    """The parser of torchinfo's tree."""

    name = "torchinfo"

    def starts(self, lines: Sequence[str], index: int) -> bool:
        """The header line, told from torchsummary's by ``:depth-idx`` or the rule above it."""
        line = lines[index].lstrip()
        if not line.startswith("Layer (type"):
            return False
        below = [text for text in lines[index + 1 : index + 3] if text]
        if not below or not is_rule(below[0], "="):
            return False
        if ":depth-idx" in line or "(var_name)" in line:
            return True
        return bool(index) and is_rule(lines[index - 1], "=")

    def parse(self, lines: Sequence[str]) -> Summary:
        """See Parser.parse."""
        columns = _columns(lines[0])
        if "count" not in columns:
            raise fail("unknown_sizes", 'the torchinfo table has no "Param #" column')
        rows, end = self._rows(lines, columns)
        footer = footer_of(lines[end:])
        if footer.total is None and not any("total params" in x.lower() for x in lines[end:]):
            raise fail("truncated", "the torchinfo table has no footer: its end is missing")
        return self._summary(
            rows,
            columns,
            footer,
            _size(lines[end:], "Forward/backward pass size"),
            _size(lines[end:], "Input size"),
        )

    def _rows(self, lines: Sequence[str], columns: list[str]) -> tuple[list[Row], int]:
        rows: list[Row] = []
        indent = len(lines[0]) - len(lines[0].lstrip())
        for index, line in enumerate(lines[1:], 1):
            if not line:
                continue
            if is_rule(line, "="):
                if rows:
                    return rows, index
                continue
            rows.append(self._row(line[min(indent, len(line) - len(line.lstrip())) :], columns))
            if len(rows) > MAX_ROWS:
                raise fail("too_many_layers", f"the summary has more than {MAX_ROWS} rows")
        raise fail("truncated", "the torchinfo table has no end")

    def _row(self, line: str, columns: list[str]) -> Row:
        match = _NAME.match(line)
        cells = _cells(line[match.end() :]) if match else []
        if match is None or len(cells) != len(columns):
            raise fail("bad_row", f"a row of the table cannot be read: {line.strip()[:60]!r}")
        cell = dict(zip(columns, cells, strict=True))
        tree = match["tree"]
        depth = int(match["depth"]) if match["depth"] else (len(tree) + 3) // 5
        if depth > _MAX_DEPTH:
            raise fail("bad_row", "the tree is too deep")
        count_cell = cell["count"]
        count = parse_count(count_cell)
        if count is None and count_cell not in ("--", "(recursive)", "(unused)", "0"):
            raise fail("bad_row", f"a parameter count cannot be read: {count_cell[:40]!r}")
        return Row(
            kind=match["kind"],
            depth=depth,
            inputs=_shapes(cell.get("input", "--")),
            outputs=_shapes(cell.get("output", "--")),
            count=count or 0,
            recursive=count_cell == "(recursive)",
            kernel=_kernel(cell.get("kernel", "--")),
            frozen=count is not None and count_cell.startswith("("),
        )

    def _summary(
        self,
        rows: list[Row],
        columns: list[str],
        footer: Footer,
        pass_bytes: int,
        input_bytes: int,
    ) -> Summary:
        batch = _batch(rows)
        layers: list[Layer] = []
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            layers.append(
                Layer(
                    kind=row.kind,
                    depth=row.depth,
                    inputs=tuple(per_sample(shape, batch) for shape in row.inputs),
                    outputs=tuple(per_sample(shape, batch) for shape in row.outputs),
                    parameters=row.count,
                    leaf=following is None or following.depth <= row.depth,
                    recursive=row.recursive,
                    frozen=row.frozen,
                    attributes=(("kernel_elements", row.kernel),) if row.kernel else (),
                )
            )
        total = bounded(sum(row.count for row in rows))
        parameters, notes = _parameters(total, footer, bool(pass_bytes))
        trainable = trainable_of(footer, parameters)
        layers = _own_frozen(layers, trainable)
        hidden = _hidden(layers, pass_bytes, batch)
        # A ModuleList at the depth limit hides its children: only the footer knows of them.
        collapsed = parameters > total or any(
            layer.leaf and layer.parameters and layer.role in (Role.BLOCK, Role.ALIAS)
            for layer in layers
        )
        return Summary(
            format=self.name,
            family=family_of(tuple(layers)),
            parameters=parameters,
            trainable=trainable,
            layers=tuple(layers),
            batch_in_text=batch,
            shapes="output" in columns and any(row.outputs for row in rows),
            collapsed=collapsed,
            hidden_outputs=hidden if collapsed else 0,
            notes=notes,
            input_bytes=input_bytes,
        )


def _own_frozen(layers: list[Layer], trainable: int) -> list[Layer]:
    """Parameters of a block itself are printed without parentheses whether they are trained or not:
    they are not where the footer's trained ones are those of other rows."""
    own = [layer.role is Role.BLOCK and not layer.frozen for layer in layers]
    others = [x for x, block in zip(layers, own, strict=True) if not block and not x.frozen]
    if not any(layer.frozen for layer in layers) or sum(x.parameters for x in others) < trainable:
        return layers
    return [
        replace(layer, frozen=True) if block and layer.parameters else layer
        for layer, block in zip(layers, own, strict=True)
    ]


def _shapes(cell: str) -> tuple[Shape, ...]:
    if cell in ("--", "(recursive)"):
        return ()
    shapes = parse_shapes(cell)
    if shapes is None:
        raise fail("bad_row", f"a shape cannot be read: {cell[:40]!r}")
    refuse_negative(shapes)
    return shapes


def _kernel(cell: str) -> int:
    """Elements of the kernel (9 for [3, 3]), 0 where none is printed."""
    count = parse_count(cell)
    if count is not None:
        return min(count, 10**6)
    shapes = parse_shapes(cell)
    if not shapes or UNKNOWN_DIM in shapes[0]:
        return 0
    # Linear layers print [in, out] or [in] here: two numbers too, told apart by the class.
    total = 1
    for dim in shapes[0]:
        total = min(total * dim, 10**12)
    return total


def _batch(rows: list[Row]) -> int | None:
    """The leading dimension of the model's input or output, else of the first shape printed."""
    for shapes in (rows[0].inputs, rows[0].outputs, *(row.outputs for row in rows)):
        if shapes and shapes[0]:
            head = shapes[0][0]
            return None if head == UNKNOWN_DIM else head
    return None


def _parameters(total: int, footer: Footer, sized: bool) -> tuple[int, tuple[str, ...]]:
    """The larger of rows and footer.

    A footer above the rows means that rows are missing; where it is ``sized`` (it has the pass
    size) the outputs of the missing rows can still be counted.
    """
    if footer.total is None or footer.total == total:
        return total, ()
    if footer.total > total * 1.02 + 1000 and not sized:
        raise fail(
            "disagreement",
            f"the rows hold {total:,} parameters, the footer {footer.total:,}: rows are missing",
        )
    note = f"rows hold {total:,} parameters, the footer {footer.total:,}: the larger is taken"
    return max(total, footer.total), (note,)


def _size(lines: Sequence[str], title: str) -> int:
    """Bytes of "Forward/backward pass size (MB): 4932.50"; 0 where the line is missing."""
    for line in lines:
        head, _, value = line.strip().partition(":")
        if head.startswith(title):
            scale = {"(KB)": 10**3, "(MB)": 10**6, "(GB)": 10**9, "(TB)": 10**12}
            unit = next((size for text, size in scale.items() if text in head), 10**6)
            whole, _, part = value.strip().replace(",", "").partition(".")
            if whole.isdecimal() and whole.isascii() and len(whole) <= 15:
                digits = part[:2] if part[:2].isdecimal() and part.isascii() else "0"
                return bounded(int(whole) * unit + int(digits.ljust(2, "0")) * unit // 100)
    return 0


def _hidden(layers: list[Layer], pass_bytes: int, batch: int | None) -> int:
    """Elements per sample that the footer counts (4 bytes, doubled) beyond the visible leaves."""
    counted = -(-pass_bytes // (8 * max(1, batch or 1)))
    seen = sum(
        max(0, layer.output_elements)
        for layer in layers
        if layer.leaf
        and (layer.parameters or (layer.recursive and layer.role not in (Role.BLOCK, Role.ALIAS)))
        and layer.outputs
        and not layer.closed(layer.outputs[0])
        and not holds_activation(layer.kind)  # it has children: the footer does not count it
    )
    return max(0, counted - seen)


PARSER = TorchInfo()
