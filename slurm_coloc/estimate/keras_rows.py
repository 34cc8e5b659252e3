# SPDX-License-Identifier: Apache-2.0
"""What Keras 2 and 3 share: rows of ``name (Class)``, ``(None, 224, 224, 64)`` and a count."""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.estimate.kinds import Role, role
from slurm_coloc.estimate.lexing import (
    MAX_LINE,
    UNKNOWN_DIM,
    Shape,
    bounded,
    fail,
    parse_count,
    parse_shapes,
)
from slurm_coloc.estimate.summary import Layer, Summary, family_of
from slurm_coloc.estimate.tables import footer_of, per_sample, trainable_of

WHOLE_CARD = "TensorFlow takes the whole card unless memory growth is on"


@dataclass(frozen=True, slots=True)
class Cells:
    """One row as text."""

    name: str
    shape: str
    count: str


def bound_cells(*cells: str) -> None:
    """Raises bad_row where a row's cells, put together from several lines, grow beyond a line's
    length: each line would copy all that came before it."""
    if sum(map(len, cells)) > MAX_LINE:
        raise fail("bad_row", f"a row of the table has more than {MAX_LINE} characters")


def _kind(name: str) -> tuple[str, int]:
    """Class name and nesting depth of ``   └ conv2d (Conv2D)`` or ``|  conv2d (Conv2D)``."""
    body = name.rstrip()
    depth = body.count("└") + (len(body) - len(body.lstrip("|"))) + body.count("│")
    before, bracket, inside = body.rpartition("(")
    kind = inside.rstrip("… )").strip() if bracket else ""
    if not kind or len(kind) > 128:
        raise fail("bad_row", f"a row shows no class: {body[:60]!r}")
    if not before and not depth:
        raise fail("bad_row", f"a row shows no name: {body[:60]!r}")
    # Keras' Conv1D is a convolution, the Conv1D of GPT-2 in PyTorch texts a linear layer.
    return ("Conv1DKeras" if kind == "Conv1D" else kind.replace(" ", "")), depth


def _count(cell: str) -> int:
    if "unbuilt" in cell:
        raise fail("unknown_sizes", "the Keras model is not built: its sizes are not known")
    count = parse_count(cell.partition("(")[0])
    if count is None:
        raise fail("bad_row", f"a parameter count cannot be read: {cell[:40]!r}")
    return count


def _outputs(cell: str) -> tuple[Shape, ...]:
    if cell in ("", "-", "?", "multiple", "unknown"):
        return ()
    shapes = parse_shapes(cell)
    if shapes is None:
        raise fail("bad_row", f"a shape cannot be read: {cell[:40]!r}")
    return shapes


def keras_summary(name: str, rows: Sequence[Cells], below: Sequence[str]) -> Summary:
    """The model of a Keras table with the lines below it. Raises SummaryError."""
    if not rows:
        raise fail("truncated", "the Keras table has no rows")
    footer = footer_of(below)
    if footer.total is None:
        raise fail("truncated", "the Keras table has no footer: its end is missing")
    read = [(*_kind(row.name), _outputs(row.shape), _count(row.count)) for row in rows]
    heads = {shape[0] for _, _, shapes, _ in read for shape in shapes if shape}
    heads.discard(UNKNOWN_DIM)
    batch = heads.pop() if len(heads) == 1 and _fixed(read) else None
    layers = _layers(read, batch)
    total = bounded(sum(layer.parameters for layer in layers))
    stated = max(0, footer.total - (footer.optimizer or 0))
    if stated > total * 1.02 + 16:
        raise fail(
            "disagreement",
            f"the rows hold {total:,} parameters, the footer says {stated:,}: rows are missing",
        )
    parameters = max(total, stated)
    hidden = any(layer.leaf and layer.parameters and layer.role is Role.BLOCK for layer in layers)
    return Summary(
        format=name,
        family=family_of(layers),
        parameters=parameters,
        trainable=trainable_of(footer, parameters) if not footer.optimizer else parameters,
        layers=layers,
        batch_in_text=batch,
        shapes=any(layer.outputs for layer in layers),
        collapsed=hidden,
        notes=(WHOLE_CARD,),
    )


def _fixed(read: Sequence[tuple[str, int, tuple[Shape, ...], int]]) -> bool:
    """Every shape prints the same leading number: the model was built with a batch."""
    return all(shape[0] != UNKNOWN_DIM for _, _, shapes, _ in read for shape in shapes if shape)


def _layers(
    read: Sequence[tuple[str, int, tuple[Shape, ...], int]], batch: int | None
) -> tuple[Layer, ...]:
    layers: list[Layer] = []
    below: list[int] = [0] * len(read)  # parameters of the rows nested in each row
    parents: list[int] = []
    for index, (_, depth, _, count) in enumerate(read):
        while parents and read[parents[-1]][1] >= depth:
            parents.pop()
        if parents:
            below[parents[-1]] += count
        parents.append(index)
    for index, (kind, depth, shapes, count) in enumerate(read):
        nested = index + 1 < len(read) and read[index + 1][1] > depth
        layers.append(
            Layer(
                kind=kind,
                depth=depth,
                outputs=tuple(per_sample(shape, batch) for shape in shapes),
                parameters=max(0, count - below[index]),
                leaf=not nested and role(kind) is not Role.INPUT,
            )
        )
    return tuple(layers)
