# SPDX-License-Identifier: Apache-2.0
"""torchinfo 1.5 to 1.8: a tree with any columns in any order.

Rows at the depth limit carry what lies below them, so a row may be a collapsed block. The footer's
"Forward/backward pass size" counts the outputs of all leaf modules with parameters, twice, also of
those that the limit hides: the difference to the rows is what is hidden. MB is 10^6 bytes.
"(recursive)" rows run again and have outputs of their own; their parameters count once. A count in
parentheses is of parameters that are not trained.
"""

from collections.abc import Sequence

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.lexing import (
    UNKNOWN_DIM,
    Shape,
    bound_rows,
    bounded,
    fail,
)
from slurm_coloc.estimate.parsers.torchinfo_footer import (
    hidden_of,
    own_frozen,
    parameters_of,
    size_of,
)
from slurm_coloc.estimate.parsers.torchinfo_row import Row, row_of
from slurm_coloc.estimate.summary import Layer, Summary, family_of
from slurm_coloc.estimate.tables import (
    Footer,
    footer_of,
    is_rule,
    per_sample,
    ruled_below,
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


def _columns(header: str) -> tuple[str, ...]:
    found = sorted(
        (header.find(title), name) for title, name in _COLUMNS if header.find(title) >= 0
    )
    return tuple(name for _, name in found)


class TorchInfo:
    """The parser of torchinfo's tree."""

    name = "torchinfo"
    mark = "Layer (type"

    def starts(self, lines: Sequence[str], index: int) -> bool:
        """The header line, told from torchsummary's by ``:depth-idx`` or the rule above it."""
        line = lines[index].lstrip()
        if not line.startswith("Layer (type"):
            return False
        if not ruled_below(lines, index, "="):
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
            size_of(lines[end:], "Forward/backward pass size"),
            size_of(lines[end:], "Input size"),
        )

    def _rows(self, lines: Sequence[str], columns: tuple[str, ...]) -> tuple[list[Row], int]:
        rows: list[Row] = []
        indent = len(lines[0]) - len(lines[0].lstrip())
        for index, line in enumerate(lines[1:], 1):
            if not line:
                continue
            if line[-1] == "=" and is_rule(line, "="):
                if rows:
                    return rows, index
                continue
            if indent:
                line = line[min(indent, len(line) - len(line.lstrip())) :]
            rows.append(row_of(line, columns))
            bound_rows(rows)
        raise fail("truncated", "the torchinfo table has no end")

    def _summary(
        self,
        rows: list[Row],
        columns: tuple[str, ...],
        footer: Footer,
        pass_bytes: int,
        input_bytes: int,
    ) -> Summary:
        batch = _batch(rows)
        layers = _layers(rows, batch)
        total = bounded(sum(row.tail.parameters for row in rows))
        parameters, notes = parameters_of(total, footer, bool(pass_bytes))
        trainable = trainable_of(footer, parameters)
        layers = own_frozen(layers, trainable)
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
            shapes="output" in columns and any(row.tail.outputs for row in rows),
            collapsed=collapsed,
            hidden_outputs=hidden_of(layers, pass_bytes, batch) if collapsed else 0,
            notes=notes,
            input_bytes=input_bytes,
        )


def _layers(rows: list[Row], batch: int | None) -> list[Layer]:
    """Rows as layers, their shapes those of one sample."""
    known: dict[tuple[Shape, ...], tuple[Shape, ...]] = {}

    def one(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
        found = known.get(shapes)
        if found is None:
            found = known[shapes] = tuple(per_sample(shape, batch) for shape in shapes)
        return found

    made: dict[tuple[str, int, int, bool], Layer] = {}
    layers: list[Layer] = []
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        kind, depth, tail = row
        leaf = following is None or following.depth <= depth
        key = (kind, depth, id(tail), leaf)  # ``rows`` holds the tails
        layer = made.get(key)
        if layer is None:
            layer = made[key] = Layer(
                kind=kind,
                depth=depth,
                inputs=one(tail.inputs),
                outputs=one(tail.outputs),
                parameters=tail.parameters,
                leaf=leaf,
                recursive=tail.recursive,
                attributes=(("kernel_elements", tail.kernel),) if tail.kernel else (),
                frozen=tail.frozen,
            )
        layers.append(layer)
    return layers


def _batch(rows: list[Row]) -> int | None:
    """The leading dimension of the model's input or output, else of the first shape printed."""
    first = rows[0].tail
    for shapes in (first.inputs, first.outputs, *(row.tail.outputs for row in rows)):
        if shapes and shapes[0]:
            head = shapes[0][0]
            return None if head == UNKNOWN_DIM else head
    return None


PARSER = TorchInfo()
