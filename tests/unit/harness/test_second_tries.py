# SPDX-License-Identifier: Apache-2.0
"""The list of second tries: each entry names a test that there is, and one of real daemons."""

import datetime

import pytest

from tests.harness import second_tries
from tests.harness.second_tries import LIST, Entry, bare, missing, parse, to_add

TODAY = datetime.date(2026, 1, 31)


def entry(test: str) -> Entry:
    return Entry(test, TODAY, "nothing yet")


def test_each_entry_of_the_list_names_a_test() -> None:
    assert [why for one in parse(LIST.read_text()) if (why := missing(one))] == []


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("tests/cluster/test_lab.py::test_no_such_thing", "no such test"),
        ("tests/cluster/test_gone.py::test_a", "no such test"),
        ("tests/cluster/test_requests.py::resrv", "no such test"),
        ("tests/unit/test_tree.py::test_a", "only tests on real daemons"),
    ],
)
def test_an_entry_without_its_test_is_found(test: str, words: str) -> None:
    assert words in str(missing(entry(test)))


def test_an_entry_with_its_test() -> None:
    found = entry("tests/cluster/test_requests.py::test_a_heterogeneous_job_goes_as_submitted")
    assert missing(found) is None


@pytest.mark.parametrize("field", ["test", "since", "known"])
def test_an_incomplete_entry_is_refused(field: str) -> None:
    text = to_add("tests/cluster/test_requests.py::test_a[b]")
    assert [one.test for one in parse(text)] == ["tests/cluster/test_requests.py::test_a"]
    short = "\n".join(line for line in text.splitlines() if not line.startswith(field))
    with pytest.raises(ValueError, match="an entry has"):
        parse(short if field != "test" else short.replace("[]", "[[test]]"))


def test_parameters_do_not_count() -> None:
    assert bare("tests/cluster/test_a.py::test_b[c[d]]") == "tests/cluster/test_a.py::test_b"


class Node:
    """What the plugin reads of a test."""

    def __init__(self, nodeid: str, tries: int) -> None:
        self.nodeid, self.execution_count = nodeid, tries


def judged(tries: int, outcome: str, listed: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The outcome of a test as reported, ``listed`` being the one entry of the list."""
    monkeypatch.setattr(second_tries, "parse", lambda text: [entry(listed)])
    monkeypatch.setenv(second_tries.STRICT, "strict")
    report = pytest.TestReport("a::b[1]", ("a", 0, "b"), {}, outcome, None, "call")  # type: ignore[arg-type]
    hook = second_tries.pytest_runtest_makereport(Node("a::b[1]", tries))  # type: ignore[arg-type]
    next(hook)
    with pytest.raises(StopIteration) as end:
        hook.send(report)  # type: ignore[attr-defined]
    assert end.value.value is report
    return str(report.outcome)


@pytest.mark.parametrize(
    ("tries", "outcome", "listed", "becomes"),
    [
        (1, "passed", "a::c", "passed"),
        (2, "passed", "a::c", "failed"),
        (2, "passed", "a::b", "passed"),
        (2, "failed", "a::b", "failed"),
    ],
)
def test_what_passes_at_the_second_try_alone(
    tries: int, outcome: str, listed: str, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(tries, outcome, listed, monkeypatch) == becomes
