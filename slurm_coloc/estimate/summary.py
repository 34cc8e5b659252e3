# SPDX-License-Identifier: Apache-2.0
"""One model of a model summary, whatever program printed it.

Shapes are those of one sample: the leading dimension is the text's divided by the text's batch, so
it is 1 for a plain activation, and 64 for a Swin window row of (64 * batch, 49, 96).
"""

import re
from dataclasses import dataclass, field

from slurm_coloc.estimate.block.traced import Traced
from slurm_coloc.estimate.kinds import Role, composed, is_attention, role
from slurm_coloc.estimate.lexing import Shape, bounded, product

NOT_KNOWN = -1

#: what has no weights, or one for each channel
WEIGHTLESS = {Role.ACT_IN, Role.ACT_OUT, Role.POOL, Role.MAXPOOL, Role.DROPOUT}


@dataclass(frozen=True, slots=True)
class Layer:
    """One row. ``parameters`` are those counted by this row and by no other row (integers).

    ``count``: how often the row is in the model (``12 x BertLayer``). ``leaf``: no rows are below
    it. ``recursive``: the module was listed before and runs again. ``frozen``: none of its
    parameters is trained. A container comes before its rows in torchinfo's tables and in
    print(model), after them in those of torchsummary and Keras.
    """

    kind: str
    depth: int = 0
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    parameters: int = 0
    count: int = 1
    leaf: bool = True
    recursive: bool = False
    attributes: tuple[tuple[str, int], ...] = ()
    frozen: bool = False
    #: what the class name says, see kinds; asked for several times a row
    role: Role = field(init=False, repr=False, compare=False)
    #: see output_elements; as often, and most rows of a table are one object
    _outputs: int | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = role(self.kind)
        if found in WEIGHTLESS and self._holds_layers():
            found = Role.BLOCK
        object.__setattr__(self, "role", found)

    def _holds_layers(self) -> bool:
        """Whether a row is named after its last step but has the weights of others: ConvBNReLU."""
        most = max((size for shape in self.outputs for size in shape), default=None)
        return self.leaf and most is not None and self.parameters > 2 * most and composed(self.kind)

    @property
    def output_elements(self) -> int:
        """Elements of the outputs of one sample; NOT_KNOWN if a dimension is not printed. Raises
        SummaryError number_out_of_range."""
        if self._outputs is None:
            object.__setattr__(self, "_outputs", _elements(self.outputs))
        assert self._outputs is not None
        return self._outputs

    @property
    def input_elements(self) -> int:
        """Elements of the inputs of one sample; NOT_KNOWN if a dimension is not printed."""
        return _elements(self.inputs)

    def closed(self, out: Shape) -> bool:
        """Whether its parameters are those of rows below it that are not shown. ``out``: what it
        gives out. Single vectors scale channels, and tables of positions have no rows."""
        if not self.leaf or self.role not in (Role.BLOCK, Role.ALIAS):
            return False
        table = "pos" in self.kind.lower() and not is_attention(self.kind)
        return self.parameters > 2 * max(out) and not table

    def attribute(self, name: str, default: int = 0) -> int:
        """An integer of the constructor (in_features, kernel_size, ...)."""
        for key, value in self.attributes:
            if key == name:
                return value
        return default


def _elements(shapes: tuple[Shape, ...]) -> int:
    total = 0
    for shape in shapes:
        part = product(shape)
        if part is None:
            return NOT_KNOWN
        total = bounded(total + part)
    return total


@dataclass(frozen=True, slots=True)
class Rows:
    """What is asked of all rows several times. ``kinds``: class names, each once, in their order.
    ``parameters``: that they show, ``frozen``: those of rows marked so."""

    kinds: tuple[str, ...]
    roles: frozenset[Role]
    parameters: int
    frozen: int

    @classmethod
    def of(cls, layers: tuple[Layer, ...]) -> "Rows":
        shown = [row for row in layers if row.parameters]
        return cls(
            tuple(dict.fromkeys(row.kind for row in layers)),
            frozenset(row.role for row in layers),
            sum(row.parameters * row.count for row in shown),
            sum(row.parameters * row.count for row in shown if row.frozen),
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """A model, or the sum of the models of one text.

    ``parameters``, ``trainable``: integers, never below what the rows or the footer prove.
    ``batch_in_text``: None where the text does not say. ``hidden_outputs``: elements per sample of
    the layers with parameters that the footer counts and that no row shows (torchinfo cut at a
    depth). ``shapes``: whether activations can be computed. ``notes``: one line each, for people.
    ``input_bytes``: of the whole batch, 0 where the text does not say.
    ``recording``: what `coloc summarize` recorded of all the models, None where it did not.
    """

    format: str
    family: str
    parameters: int
    trainable: int
    layers: tuple[Layer, ...]
    batch_in_text: int | None = None
    shapes: bool = True
    collapsed: bool = False
    hidden_outputs: int = 0
    models: int = 1
    notes: tuple[str, ...] = field(default=())
    recording: Traced | None = None
    input_bytes: int = 0
    _counts: "Rows | None" = field(init=False, default=None, repr=False, compare=False)

    @property
    def rows(self) -> "Rows":
        """Found when it is first asked for."""
        if self._counts is None:
            object.__setattr__(self, "_counts", Rows.of(self.layers))
        assert self._counts is not None
        return self._counts

    @property
    def unopened(self) -> str:
        """What the user is told where blocks of the text hide what is in them."""
        keras = self.format.startswith("keras")
        how = "summary(expand_nested=True)" if keras else "full depth"
        return f"blocks of the summary are not opened: print it {'with' if keras else 'at'} {how}"

    @property
    def activations(self) -> int:
        """Elements per sample of the outputs of all leaf rows; 0 where no shapes are printed.

        As the thesis counts them for its Horus figures: what the footer knows of rows that are not
        shown (``hidden_outputs``) is not in it.
        """
        total = 0
        for layer in self.layers:
            if layer.leaf and (size := layer.output_elements) > 0:
                total = bounded(total + size * layer.count)
        return total


#: classes whose attention a depth limit hides
_TRANSFORMER = re.compile(
    r"transformer|\A(?:vit|deit|beit|dinov|swin|clip|siglip|bert|roberta|gpt|llama|mistral|qwen|t5)",
    re.IGNORECASE,
)


def family_of(layers: tuple[Layer, ...]) -> str:
    """mlp, cnn, transformer, recurrent or other, from the roles of the rows weighted by
    parameters."""
    weight: dict[Role, int] = {}
    for layer in layers:
        key = layer.role
        weight[key] = weight.get(key, 0) + layer.parameters * layer.count + 1
    kinds = {layer.kind for layer in layers}
    attention = any(is_attention(kind) or _TRANSFORMER.search(kind) for kind in kinds)
    linear, conv = weight.get(Role.LINEAR, 0), weight.get(Role.CONV, 0)
    blocks = weight.get(Role.BLOCK, 0)
    if Role.RECURRENT in weight:
        return "recurrent"
    if attention and linear + blocks >= conv:
        return "transformer"
    if conv:
        return "cnn"
    if Role.EMBEDDING in weight:
        return "transformer" if Role.NORM in weight and linear else "other"
    return "mlp" if linear and blocks <= linear else "other"


def merge(models: list[Summary]) -> Summary:
    """Several models of one text train in one job: their sum. Raises number_out_of_range."""
    first = models[0]
    if len(models) == 1:
        return first
    families = {model.family for model in models}
    batches = {model.batch_in_text for model in models if model.batch_in_text is not None}
    return Summary(
        format=first.format if len({m.format for m in models}) == 1 else "mixed",
        family=families.pop() if len(families) == 1 else _worst_family(families),
        parameters=bounded(sum(model.parameters for model in models)),
        trainable=bounded(sum(model.trainable for model in models)),
        layers=tuple(layer for model in models for layer in model.layers),
        batch_in_text=max(batches) if batches else None,
        shapes=all(model.shapes for model in models),
        collapsed=any(model.collapsed for model in models),
        hidden_outputs=bounded(sum(model.hidden_outputs for model in models)),
        models=sum(model.models for model in models),
        notes=(
            f"{len(models)} models in one text: their sum is taken",
            *dict.fromkeys(note for model in models for note in model.notes),
        ),
    )


def _worst_family(families: set[str]) -> str:
    """Families of a mixed text: one that cannot be estimated wins, then the heaviest."""
    for name in ("other", "recurrent", "transformer", "cnn"):
        if name in families:
            return name
    return "mlp"
