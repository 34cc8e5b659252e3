# SPDX-License-Identifier: Apache-2.0
"""One format a file. A module of this package that has PARSER is a parser; no list to edit."""

import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import Protocol

from slurm_coloc.estimate.block.text import split
from slurm_coloc.estimate.block.traced import Traced, joined
from slurm_coloc.estimate.lexing import bound_rows, bounded, clean_lines, fail
from slurm_coloc.estimate.summary import Summary, merge

MAX_MODELS = 32


class Parser(Protocol):
    """Reads one format. ``mark``: what stands in every line on which one of its models begins."""

    name: str
    mark: str

    def starts(self, lines: Sequence[str], index: int) -> bool:
        """Whether a summary of this format begins on this line. It may look a few lines around."""

    def parse(self, lines: Sequence[str]) -> Summary:
        """The model that begins on ``lines[0]``; the rest is footer or other text.

        Raises SummaryError, and nothing else, whatever the lines hold.
        """


@lru_cache(maxsize=1)
def parsers() -> tuple[Parser, ...]:
    """Every parser of the package, by name."""
    found: list[Parser] = []
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda item: item.name):
        parser = getattr(import_module(f"{__name__}.{info.name}"), "PARSER", None)
        if parser is not None:
            found.append(parser)
    return tuple(found)


def parse_summary(text: str) -> Summary:
    """The model or models that a text describes; their sum where there are several.

    Raises SummaryError with one of the codes empty, binary, too_large, line_too_long,
    too_many_lines, too_many_layers, too_many_models, unknown_format, truncated, bad_row, bad_shape,
    disagreement, number_out_of_range, unknown_sizes, damaged. Time and memory are linear.
    """
    lines, recorded, lost = split(clean_lines(text))
    begins = list(islice(_begins(lines), MAX_MODELS + 1))
    if not begins and recorded:
        return _with_recording(_of_recording(recorded), recorded, lost)
    if not begins and lost:
        raise fail("unknown_format", f"no model summary was found in the text: {lost[0]}")
    if not begins:
        raise fail(
            "unknown_format",
            "no model summary was found in the text: torchinfo, torchsummary, print(model) and"
            " Keras' summary() are understood",
        )
    if len(begins) > MAX_MODELS:
        raise fail("too_many_models", f"the text holds more than {MAX_MODELS} models")
    ends = [index for index, _ in begins[1:]] + [len(lines)]
    try:
        found = merge(
            [
                parser.parse(lines[start:end])
                for (start, parser), end in zip(begins, ends, strict=True)
            ]
        )
    except (LookupError, ValueError, ArithmeticError) as err:
        # A defect of a parser must not become a traceback in a submission. The tests refuse it.
        raise fail("damaged", f"the summary cannot be read ({type(err).__name__})") from err
    bound_rows(found.layers)  # of all models together
    return _with_recording(found, recorded, lost)


def _of_recording(recorded: Sequence[Traced]) -> Summary:
    """What the blocks alone say of the model, where no table stands beside them."""
    parameters = bounded(sum(one.elements for one in recorded))
    return Summary(
        format="recording",
        family=recorded[0].family,
        parameters=parameters,
        trainable=min(parameters, sum(one.trainable for one in recorded)),
        layers=(),
        batch_in_text=recorded[0].batch,
        shapes=False,
        models=min(sum(one.models for one in recorded), MAX_MODELS),
    )


def _with_recording(summary: Summary, recorded: Sequence[Traced], lost: Sequence[str]) -> Summary:
    """The summary with its recording, if that stands for all of its models."""
    notes = list(lost)
    whole = joined(tuple(recorded))
    if recorded and whole is None:
        notes.append("the recordings differ in batch size or optimizer: the tables are used")
    elif whole is not None and (whole.models < summary.models or lost):
        whole = None
        notes.append("the recording does not stand for all models: the tables are used")
    if whole is None:
        return replace(summary, notes=(*summary.notes, *notes))
    return replace(summary, recording=whole, batch_in_text=whole.batch)


def _begins(lines: Sequence[str]) -> Iterator[tuple[int, Parser]]:
    """Lines on which a model begins, and the first parser that says so."""
    text = "\n".join(lines)
    marks = [mark for mark in {parser.mark for parser in parsers()} if mark in text]
    places = {index for mark in marks for index, line in enumerate(lines) if mark in line}
    for index in sorted(places):
        line = lines[index]
        known = (one for one in parsers() if one.mark in line)
        found = next((one for one in known if one.starts(lines, index)), None)
        if found is not None:
            yield index, found
