# SPDX-License-Identifier: Apache-2.0
"""Second tries: for tests on real Slurm daemons alone, and each one is an entry that has to go.

A busy machine makes a test of real daemons miss its limit now and then. With ``--second-tries``
such a test is tried once more. If it passes then and tests/second-tries.toml does not list it, the
summary shows the entry to add. ``COLOC_SECOND_TRIES=strict`` counts such a test as failed.
"""

import datetime
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
LIST = TESTS / "second-tries.toml"
#: Folders below tests/ whose tests talk to real Slurm daemons.
FOLDERS = ("cluster", "compose")
DELAY_S = 5
#: characters of a lab's logs that are shown of a first try
LOGS = 20_000
#: Environment: "strict" fails a test that needed a second try and is not listed.
STRICT = "COLOC_SECOND_TRIES"
FIELDS = {"test": str, "since": datetime.date, "known": str}


@dataclass(frozen=True)
class Entry:
    """A test that needed a second try. ``test``: its id without parameters; ``since``: when it was
    seen first; ``known``: what is known of the cause."""

    test: str
    since: datetime.date
    known: str


def parse(text: str) -> list[Entry]:
    """The entries of second-tries.toml; raises ValueError where one is not complete."""
    found = []
    for table in tomllib.loads(text).get("test", []):
        wrong = [name for name, kind in FIELDS.items() if not isinstance(table.get(name), kind)]
        if wrong or set(table) != set(FIELDS) or not table["known"].strip():
            raise ValueError(f"an entry has test, since (a date) and known, not {table}")
        found.append(Entry(**table))
    return found


def bare(nodeid: str) -> str:
    """The id of a test without its parameters."""
    return nodeid.partition("[")[0]


def missing(entry: Entry, root: Path = TESTS.parent) -> str | None:
    """Why this entry names no test that may be tried again; None when it does."""
    file, _, name = entry.test.partition("::")
    if not file.startswith(tuple(f"tests/{folder}/" for folder in FOLDERS)):
        return f"{entry.test}: only tests on real daemons have a second try"
    path = root / file
    if not path.is_file() or f"\ndef {name}(" not in path.read_text():
        return f"{entry.test}: there is no such test"
    return None


def to_add(nodeid: str) -> str:
    """The entry for a test that has just needed a second try."""
    today = datetime.date.today()
    return f'[[test]]\ntest = "{bare(nodeid)}"\nsince = {today}\nknown = "..."\n'


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("second_tries"):
        return
    for item in items:
        if any(TESTS / folder in item.path.parents for folder in FOLDERS):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=DELAY_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    again = getattr(item, "execution_count", 1) > 1
    if report.when != "call" or not report.passed or not again:
        return report  # type: ignore[return-value]
    if bare(item.nodeid) in {one.test for one in parse(LIST.read_text())}:
        return report  # type: ignore[return-value]
    if os.environ.get(STRICT) == "strict":
        report.outcome = "failed"
        report.longrepr = (
            "passed, but only at the second try. Mend the test or what it tests; until then it"
            f" needs an entry in {LIST.relative_to(TESTS.parent)}:\n\n{to_add(item.nodeid)}"
        )
    return report  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    again = [report.nodeid for report in terminalreporter.stats.get("rerun", [])]
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"tried again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext[-3000:])
        for name, text in report.sections:  # without them nobody finds the cause
            if name.startswith("lab "):
                terminalreporter.write_line(f"{name}:\n{text[-LOGS:]}")
    if not terminalreporter.config.getoption("second_tries"):
        return
    entries = parse(LIST.read_text())
    terminalreporter.write_line(f"second tries: {len(entries)} tests are listed in {LIST.name}")
    for nodeid in again:
        if bare(nodeid) not in {one.test for one in entries}:
            terminalreporter.write_line(f"not listed, add it:\n{to_add(nodeid)}")
