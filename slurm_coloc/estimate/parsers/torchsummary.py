# SPDX-License-Identifier: Apache-2.0
"""torchsummary 1.5.1: ``Conv2d-1   [-1, 64, 112, 112]   9,408``.

The batch is -1 or the number given to summary(). Containers stand as rows after their children.
Its size lines are wrong (MiB called MB, both directions doubled, overflow) and are not read. Rows
are numbered without gaps and the footer is their sum: anything else is a damaged text.
"""

from collections.abc import Sequence

from slurm_coloc.estimate.kinds import Role, role
from slurm_coloc.estimate.lexing import (
    UNKNOWN_DIM,
    Shape,
    bound_rows,
    bounded,
    fail,
    parse_count,
    parse_shapes,
)
from slurm_coloc.estimate.summary import Layer, Summary, family_of
from slurm_coloc.estimate.tables import (
    footer_of,
    is_rule,
    per_sample,
    refuse_negative,
    trainable_of,
)

#: scales channels by a vector of its own, which is none of the weights that the table counts
SCALE = "LayerScale"


def _split(line: str) -> tuple[str, int, str, str] | None:
    """Class name, row number, shape, count of a row; None if the line is no row."""
    name, bracket, rest = line.partition("[")
    shape, _, count = rest.rpartition("]")
    kind, dash, number = name.strip().rpartition("-")
    if not (bracket and dash and kind and number.isdecimal() and number.isascii()):
        return None
    if len(number) > 9 or not kind.strip():
        return None
    return kind, int(number), f"[{shape}]", count


class TorchSummary:
    """The parser of torchsummary's table."""

    name = "torchsummary"
    mark = "(type)"

    def starts(self, lines: Sequence[str], index: int) -> bool:
        """A header, a rule of = and a row ``Name-1 [``."""
        words = lines[index].split()
        if words[:2] != ["Layer", "(type)"] or "Param" not in words:
            return False
        below = [line for line in lines[index + 1 : index + 4] if line]
        if not below or not is_rule(below[0], "="):
            return False
        if index and is_rule(lines[index - 1], "-"):
            return True
        return len(below) > 1 and _split(below[1]) is not None

    def parse(self, lines: Sequence[str]) -> Summary:
        """See Parser.parse."""
        rows, end = self._rows(lines)
        footer = footer_of(lines[end:])
        if footer.total is None:
            raise fail("truncated", "the torchsummary table has no footer: its end is missing")
        total = bounded(sum(count for _, _, count in rows))
        if footer.total > total:
            raise fail(
                "disagreement",
                f"the rows hold {total:,} parameters, the footer says {footer.total:,}: rows are"
                " missing",
            )
        batch = self._batch(rows)
        layers = tuple(
            Layer(
                kind=kind,
                outputs=tuple(per_sample(shape, batch) for shape in shapes),
                parameters=count,
                leaf=count > 0 or role(kind) is not Role.BLOCK or kind == SCALE,
            )
            for kind, shapes, count in rows
        )
        notes = () if footer.total == total else ("the footer states fewer parameters than rows",)
        return Summary(
            format=self.name,
            family=family_of(layers),
            parameters=total,
            trainable=trainable_of(footer, total),
            layers=layers,
            batch_in_text=batch,
            notes=notes,
        )

    def _rows(self, lines: Sequence[str]) -> tuple[list[tuple[str, tuple[Shape, ...], int]], int]:
        rows: list[tuple[str, tuple[Shape, ...], int]] = []
        for index, line in enumerate(lines[1:], 1):
            if not line or (not rows and is_rule(line, "=")):
                continue
            if is_rule(line, "="):
                if not rows:
                    break
                return rows, index
            row = _split(line)
            if row is None:
                raise fail("bad_row", f"row {len(rows) + 1} of the table cannot be read")
            kind, number, cell, count_cell = row
            shapes, count = parse_shapes(cell), parse_count(count_cell)
            if number != len(rows) + 1:
                raise fail("truncated", f"row {len(rows) + 1} of the table is missing")
            if shapes is None or count is None:
                raise fail("bad_row", f"row {number} of the table cannot be read")
            refuse_negative(shapes)
            rows.append((kind, shapes, count))
            bound_rows(rows)
        raise fail("truncated", "the torchsummary table has no end")

    def _batch(self, rows: list[tuple[str, tuple[Shape, ...], int]]) -> int | None:
        heads = {shape[0] for _, shapes, _ in rows for shape in shapes if shape}
        if len(heads) != 1:
            raise fail("bad_shape", "the rows do not agree on the batch size")
        head = heads.pop()
        return None if head == UNKNOWN_DIM else head


PARSER = TorchSummary()
