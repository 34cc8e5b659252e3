# SPDX-License-Identifier: Apache-2.0
"""The parsers: any text is a summary within its bounds or a SummaryError, and no defect is one."""

import re

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.lexing import MAX_NUMBER, MAX_ROWS
from slurm_coloc.estimate.parsers import parse_summary
from tests.fuzz import texts

CORPUS = texts.CORPUS
mutated = texts.mutated


def one(text: str) -> str:
    """What came of it, in a word."""
    try:
        summary = parse_summary(text)
    except SummaryError as err:
        assert err.code != "damaged", f"a defect of a parser: {err.message}"
        assert err.message.isprintable() and len(err.message) < 300
        return f"{err.code} {re.sub(r'[0-9]+', '0', err.message)[:40]}"
    assert 0 <= summary.trainable <= summary.parameters <= MAX_NUMBER
    assert len(summary.layers) <= MAX_ROWS
    assert all(layer.count >= 1 and layer.parameters >= 0 for layer in summary.layers)
    return f"{summary.format} {summary.family} {summary.collapsed} {bool(summary.recording)}"
