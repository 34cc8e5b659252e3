# SPDX-License-Identifier: Apache-2.0
"""Checks every answer as JSON that a test is given against its schema."""

from collections.abc import Sequence
from typing import Any

from slurm_coloc.cli.texts.schemas import SCHEMAS


def as_documented(words: Sequence[str], answer: dict[str, Any]) -> dict[str, Any]:
    """``answer`` of `coloc WORDS --json`. Raises pydantic's ValidationError where it is not what
    docs/reference/json.md says."""
    name = words[0]
    if name == "report" and not any(word[:1].isdigit() for word in words[1:]):
        name = "report-summary"
    if len(words) > 1 and f"{name}-{words[1]}" in SCHEMAS:  # coloc mig plan
        name = f"{name}-{words[1]}"
    if answer.get("source") is not None:  # explain of a job that colocd did not place or forgot
        name = "explain-other"
    if name in SCHEMAS and "--cluster" not in words:
        SCHEMAS[name].model_validate(answer)
    return answer
