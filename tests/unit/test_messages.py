# SPDX-License-Identifier: Apache-2.0
"""Every sentence that people are told: short, and without a word that only the code knows."""

import re
from collections.abc import Iterator

import pytest

from slurm_coloc.config import Config
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.place.steering.snapshot import Why
from slurm_coloc.core.recover.next_try import Verdict
from slurm_coloc.core.recover.outcome import Blame, Outcome
from tests import messages
from tests.messages import Message

SBATCH, EXPLAIN, DOCTOR = (
    messages.of_sbatch(),
    messages.of_python(*messages.EXPLAIN),
    messages.of_python(*messages.DOCTOR),
)
#: characters of a sentence before its values are filled in
LONGEST = {"sbatch": 160, "explain": 200, "doctor": 250}
CODES = {
    str(code)
    for kind in (Reason, Why, Verdict, Blame, Outcome)
    for code in kind
    if "-" in str(code)
}
#: words of Slurm's, of Lua's hook and of packages
THEIRS = frozenset(
    {
        "expandable_segments", "job_desc", "kill_invalid_depend", "part_list", "prometheus_client",
        "slurm_job_submit", "submit_uid", "tres_per_task", "whole_type",
    }
)  # fmt: skip


def keys() -> set[str]:
    found = set()
    for table in Config.model_fields:
        section = getattr(Config(), table)
        found |= {table, *getattr(type(section), "model_fields", {})}
    return found


def own_words(text: str) -> Iterator[str]:
    """Words that only the code knows."""
    for word in re.findall(r"(?<![\w./=-])[a-z]+(?:-[a-z]+)+(?![\w./=-])", text):
        if word in CODES:
            yield word
    for word in re.findall(r"(?<![\w./-])[a-z]+(?:_[a-z]+)+(?![\w./(-])", text):
        if word not in THEIRS and word not in keys():
            yield word


def all_of(name: str) -> list[Message]:
    return {"sbatch": SBATCH, "explain": EXPLAIN, "doctor": DOCTOR}[name]


@pytest.mark.parametrize("name", LONGEST)
def test_none_is_too_long(name: str) -> None:
    assert len(all_of(name)) > 40
    assert [one for one in all_of(name) if len(one.text) > LONGEST[name]] == []


@pytest.mark.parametrize("name", LONGEST)
def test_none_has_a_word_that_only_the_code_knows(name: str) -> None:
    found = {one: [*own_words(one.text)] for one in all_of(name)}
    assert {one: words for one, words in found.items() if words} == {}


@pytest.mark.parametrize("name", LONGEST)
def test_none_shows_python(name: str) -> None:
    wrong = re.compile(r"\bNone\b|(?<!:)\bTrue\b|\bFalse\b|  |[^.]\.\.$")
    assert [one for one in all_of(name) if wrong.search(one.text)] == []


def test_the_check_finds_what_it_is_for() -> None:
    assert [*own_words("whole GPU: multi-gpu-site for colocd_slow")] == [
        "multi-gpu-site",
        "colocd_slow",
    ]
    assert [*own_words("set placement.idle_first, idle_first or gres/gpu")] == []
    file = messages.ROOT / "etc" / "coloc.lua"
    texts = [one.text for one in messages.of_others(file)]
    assert any(
        text.startswith("shards are handed out by slurm-coloc: submit with") for text in texts
    )
    assert not any("One line for the user" in text for text in texts), "a comment"
