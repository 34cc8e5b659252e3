# SPDX-License-Identifier: Apache-2.0
"""Log patterns against what slurmstepd did on real clusters (logpaths-*.json)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.slurm.log_path import LogFacts, LogPath, expand

HERE = Path(__file__).parent


def recorded() -> list[Any]:
    rows = []
    for file in sorted(HERE.glob("logpaths-*.json")):
        record = json.loads(file.read_text())
        for row in record["rows"]:
            rows.append(pytest.param(record, *row, id=f"{record['slurm']}:{row[2]!r}"))
    return rows


def facts(record: dict[str, Any], job_id: int, array: Any, known: bool) -> LogFacts:
    return LogFacts(
        job_id=job_id,
        user=record["user"],
        work_dir=record["work_dir"],
        hosts=(record["host"], record["node_name"]),
        array=tuple(array) if array and known else None,
        array_known=known,
        job_name=record["job_name"] if known else None,
    )


@pytest.mark.parametrize(("record", "job_id", "array", "pattern", "real"), recorded())
def test_known_facts_give_the_real_path(
    record: dict[str, Any], job_id: int, array: Any, pattern: str | None, real: str
) -> None:
    path = expand(pattern, facts(record, job_id, array, known=True))
    assert real in path.exact
    assert path.search is None
    if pattern is None or not re.search(r"[bN]", pattern):
        assert path.exact == (real,)


@pytest.mark.parametrize(("record", "job_id", "array", "pattern", "real"), recorded())
def test_what_a_hook_knows_reaches_the_real_path(
    record: dict[str, Any], job_id: int, array: Any, pattern: str | None, real: str
) -> None:
    path = expand(pattern, facts(record, job_id, array, known=False))
    assert real in path.exact or found_by(path, real)


def found_by(path: LogPath, real: str) -> bool:
    folder, _, name = real.rpartition("/")
    return (
        path.search is not None
        and path.search.folder.rstrip("/") == folder
        and re.fullmatch(path.search.name, name, re.DOTALL) is not None
    )


FACTS = LogFacts(7, "ann", "/home/ann/w", ("n1",))


def test_relative_absolute_and_nested() -> None:
    assert expand("log/%j.out", FACTS).exact == ("/home/ann/w/log/7.out",)
    assert expand("/x/%u/%j.out", FACTS).exact == ("/x/ann/7.out",)


def test_unknown_part_in_a_folder_is_given_up() -> None:
    path = expand("/x/%x/%j.out", FACTS)
    assert path.exact == ()
    assert path.search is None


def test_unknown_part_in_the_root_folder() -> None:
    search = expand("/%x.out", FACTS).search
    assert search is not None
    assert search.folder == "/"


def test_pattern_text_is_not_a_regular_expression() -> None:
    search = expand("a+(b)[c].*%x", FACTS).search
    assert search is not None
    assert re.fullmatch(search.name, "a+(b)[c].*run")
    assert not re.fullmatch(search.name, "aab c run")


def test_a_long_row_of_unknown_parts_stays_bounded() -> None:
    path = expand("%x" * 500, FACTS)
    assert path.search is None or len(path.search.name) < 20000


@given(st.text(alphabet="%aAbjJnNstux0123456789/\\\n é", max_size=60), st.booleans())
def test_any_pattern_has_an_answer(pattern: str, known: bool) -> None:
    facts = LogFacts(7, "ann", "/w", ("h", "n"), array_known=known, job_name="x" if known else None)
    path = expand(pattern, facts)
    assert all(each.startswith("/") for each in path.exact)
    assert len(path.exact) <= 4
    if path.search is not None:
        re.compile(path.search.name)
