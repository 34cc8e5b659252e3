# SPDX-License-Identifier: Apache-2.0
"""``print(model)`` of PyTorch, plain or with ", 590,592 params" behind each module.

There are no shapes, no batch and no sequence length. ``(0-11): 12 x BertLayer(`` stands for twelve.
With counts the tree is complete (a container's own nn.Parameters are its count less its children);
the footer below it may add tied decoders and DataParallel copies or be 30 % low, so the tree
decides. Without counts the constructors' sizes give the parameters, and a footer may only raise
them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_coloc.estimate.constructors import attributes_of, parameters_of
from slurm_coloc.estimate.kinds import Role, is_attention, role
from slurm_coloc.estimate.lexing import bound_layers, bounded, fail, parse_count
from slurm_coloc.estimate.summary import Layer, Summary, family_of
from slurm_coloc.estimate.tables import footer_of, trainable_of

_ROOT = re.compile(r"\s*[A-Za-z_][\w.]{0,127}\(\Z")
_CHILD = re.compile(
    r"\s*\((?P<name>[^():]{1,128})\): (?:(?P<times>\d{1,18}) x )?(?P<kind>[A-Za-z_][\w.]{0,127})"
    r"(?P<open>\()"
)
#: names of what carries a block's input around its other rows
_SHORTCUT = re.compile(r"(?:conv_?)?(?:shortcut|downsample|skip|residual|identity)(?:_?conv)?\Z")
#: names under which peft keeps what it trains; all else is frozen
_TRAINED = frozenset(
    {"lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "modules_to_save"}
)
_COUNT = re.compile(r",? *(?P<count>\d[\d,]{0,40}) params\Z")
_PARAMETER = re.compile(
    r"\s*\([^():]{1,128}\): Parameter containing: \[.{1,80}?of size (?P<s>[\dx]{1,200})"
)
_MAX_DEPTH = 100  # as torchinfo's
_MAX_NOTES = 8
_FOOTER_COPIES = 8  # DataParallel files were seen with 4.5 times the model's parameters


@dataclass(slots=True)
class Node:
    """A module while it is open."""

    kind: str
    depth: int
    times: int
    indent: int = 0
    arguments: str = ""
    stated: int | None = None
    own: int = 0
    below: int = 0  # parameters of its children, copies included
    children: int = 0
    linears: int = 0
    width: int = 0  # last normalised size seen inside
    attentions: int = 0
    place: int = -1
    shortcut: bool = False
    trained: bool = False  # an adapter's, or saved beside one


class ReprTree:
    """The parser of print(model)."""

    name = "reprtree"
    mark = "("

    def starts(self, lines: Sequence[str], index: int) -> bool:
        """``Name(`` alone on a line, followed by ``(child): Class(``."""
        if not _ROOT.match(lines[index]):
            return False
        for line in lines[index + 1 : index + 8]:
            body = line.strip()
            if body.startswith("(") and "): " in body:
                return True
            if body.startswith(")"):
                return False
        return False

    def parse(self, lines: Sequence[str]) -> Summary:
        """See Parser.parse."""
        walk = _Walk()
        end = walk.run(lines)
        footer = footer_of(lines[end:])
        total = bounded(walk.total)
        parameters, notes = total, list(walk.notes)
        if footer.total is not None and footer.total != total:
            if footer.total > total * _FOOTER_COPIES:
                raise fail(
                    "disagreement",
                    f"the tree holds {total:,} parameters, the footer says {footer.total:,}",
                )
            notes.append(f"the tree holds {total:,} parameters, the footer {footer.total:,}")
            if not walk.counted:
                parameters = max(total, footer.total)
        layers = tuple(walk.layers)
        trainable = trainable_of(footer, parameters)
        if walk.adapted:
            layers = tuple(
                replace(row, frozen=row.parameters > 0 and not trained)
                for row, trained in zip(layers, walk.trained, strict=True)
            )
            trainable = sum(row.parameters * row.count for row in layers if not row.frozen)
        family = family_of(layers)
        if parameters == 0:
            raise fail("unknown_sizes", "the tree shows no parameters")
        return Summary(
            format=self.name,
            family=family,
            parameters=parameters,
            trainable=trainable,
            layers=layers,
            shapes=False,
            notes=tuple(notes),
        )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class _Walk:
    """One pass over the tree with a stack of open modules."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.notes: list[str] = []
        self.total = 0
        self.counted = False
        self.adapted = False
        self.trained: list[bool] = []  # of each row, whether an adapter is around it
        self._stack: list[Node] = []
        self._times = 1
        self._count = 0  # modules, each as often as it stands in the model
        self._step = 0  # indentation of a child in its parent; 2 in PyTorch

    def run(self, lines: Sequence[str]) -> int:
        """Read the tree that begins on the first line; the number of lines read."""
        kind = lines[0].strip()[:-1].rpartition(".")[2]
        self._open(Node(kind, 0, 1, _indent(lines[0])))
        for index, line in enumerate(lines[1:], 1):
            self._line(line)
            if not self._stack:
                return index + 1
        raise fail("truncated", "the tree of modules is not closed: its end is missing")

    def _line(self, line: str) -> None:
        body = line.strip()
        parent = self._stack[-1]
        if body.startswith(")"):
            self._straight(line, parent.indent)
            self._close(body[1:])
            return
        match = _CHILD.match(line)
        if match is None:
            self._extra(line)
            return
        self._step = self._step or _indent(line) - parent.indent
        self._straight(line, parent.indent + self._step)
        times = int(match["times"]) if match["times"] else 1
        if times == 0:
            raise fail("bad_row", "a module stands zero times in the tree")
        kind = match["kind"].rpartition(".")[2]
        around = _SHORTCUT.match(match["name"]) is not None
        node = Node(kind, len(self._stack), times, _indent(line), shortcut=around)
        node.trained = parent.trained or match["name"] in _TRAINED
        self.adapted = self.adapted or match["kind"].startswith("lora.")
        self._open(node)
        rest = line[match.end() :]
        if not rest:
            return
        close = rest.rfind(")")
        if close < 0:
            raise fail("truncated", f"a module of the tree is not closed: {body[:60]!r}")
        node.arguments = rest[:close]
        self._close(rest[close + 1 :])

    def _extra(self, line: str) -> None:
        """A line that is no module: a bare parameter of a ParameterList, or extra_repr."""
        match = _PARAMETER.match(line)
        if match:
            size = 1
            for part in match["s"].split("x"):
                size = bounded(size * int(part)) if part and len(part) < 19 else size
            self._stack[-1].own = bounded(self._stack[-1].own + size)
        elif line.lstrip().startswith("(") and "): " in line:
            raise fail("bad_row", f"a line of the tree cannot be read: {line.strip()[:60]!r}")
        elif not self._stack[-1].arguments:
            self._stack[-1].arguments = line.strip()  # of a module with rows below it

    def _straight(self, line: str, indent: int) -> None:
        """A tree whose lines were lost shows it in its indentation."""
        if self._step < 0 or _indent(line) != indent:
            raise fail("bad_row", "the indentation of the tree is broken: lines are missing")

    def _open(self, node: Node) -> None:
        if len(self._stack) >= _MAX_DEPTH:
            raise fail("bad_row", "the tree of modules is too deep")
        self._times = bounded(self._times * node.times)
        self._count += self._times
        bound_layers(self._count)
        node.place = len(self.layers)
        self.layers.append(Layer(node.kind, node.depth))  # replaced when it closes
        self.trained.append(node.trained)
        self._stack.append(node)

    def _close(self, tail: str) -> None:
        node = self._stack.pop()
        times = self._times
        self._times //= node.times
        if tail:
            match = _COUNT.match(tail)
            if match:
                node.stated = parse_count(match["count"])
                self.counted = True
            elif tail.strip(" ,"):
                raise fail("bad_row", f"a line of the tree cannot be read: {tail[:60]!r}")
        attributes = attributes_of(node.kind, node.arguments)
        own = self._own(node, attributes)
        attends = is_attention(node.kind) and not node.attentions
        marks = {"attention": attends, "shortcut": node.shortcut}
        self.layers[node.place] = Layer(
            kind=node.kind,
            depth=node.depth,
            parameters=own,
            count=times,
            leaf=node.children == 0,
            attributes=(*attributes, *((name, 1) for name, holds in marks.items() if holds)),
        )
        self.total = bounded(self.total + own * times)
        if self._stack:
            parent = self._stack[-1]
            parent.children += 1
            parent.below = bounded(parent.below + (own + node.below) * node.times)
            parent.linears += node.linears + (role(node.kind) in (Role.LINEAR, Role.CONV))
            parent.attentions += node.attentions + is_attention(node.kind)
            parent.width = dict(attributes).get("width", 0) or node.width or parent.width

    def _note(self, text: str) -> None:
        """For people: a few are enough."""
        if len(self.notes) < _MAX_NOTES and text not in self.notes:
            self.notes.append(text)

    def _own(self, node: Node, attributes: tuple[tuple[str, int], ...]) -> int:
        """Parameters that this module has and its children have not."""
        known = parameters_of(node.kind, dict(attributes))
        if node.kind == "MultiheadAttention":
            known = 3 * node.below  # in_proj beside the out_proj that is printed
        if node.stated is not None:
            if node.stated < node.below:
                self._note(f"{node.kind} states fewer parameters than its parts: tied ones add")
            least = known if known and not node.children else 0
            return max(node.stated - node.below, least, node.own)
        if known is None and node.children == 0 and role(node.kind) is Role.LINEAR:
            raise fail("unknown_sizes", f"{node.kind}() prints neither sizes nor a parameter count")
        bare = 0
        if is_attention(node.kind) and not node.linears and node.width and not node.attentions:
            bare = 5 * node.width**2  # XLNet's q, k, v, o, r stand in no row
            self._note(f"{node.kind} shows no projections: five of {node.width} assumed")
        return bounded(max(node.own, known or 0, bare))


PARSER = ReprTree()
