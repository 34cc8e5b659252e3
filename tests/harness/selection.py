# SPDX-License-Identifier: Apache-2.0
"""Which tests run. What is left out is deselected, and the summary says how much and why.

Two kinds are left out: tests marked ``long`` (make test-long) and, on a Slurm release that gets a
smoke test, the cluster tests that are not marked ``smoke`` (tests/cluster/conftest.py). A file or
a test that the command line names runs in any case.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LEFT_OUT = pytest.StashKey[Counter[str]]()
#: The key under which a worker of xdist hands its counts to the process that prints.
OUTPUT = "left_out"
WHY_LONG = "take long (make test-long, or --long)"


def named(config: pytest.Config) -> list[str]:
    """The files and tests that the command line names, without folders."""
    return [arg for arg in config.args if ".py" in arg]


def is_named(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether the command line names this test or its file."""
    for arg in named(config):
        file, _, rest = arg.partition("::")
        if Path(file).resolve() == item.path:
            inner = item.nodeid.partition("::")[2]
            if not rest or inner == rest or inner.startswith((f"{rest}[", f"{rest}::")):
                return True
    return False


def leave_out(
    config: pytest.Config, items: list[pytest.Item], which: Callable[[pytest.Item], bool], why: str
) -> None:
    """Deselect the items that ``which`` holds for; ``why`` ends "not run: N tests that ...".

    Those that the command line names stay.
    """
    gone = [item for item in items if which(item) and not is_named(config, item)]
    if not gone:
        return
    config.stash.setdefault(LEFT_OUT, Counter())[why] += len(gone)
    config.hook.pytest_deselected(items=gone)
    lost = set(gone)
    items[:] = [item for item in items if item not in lost]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("long"):
        leave_out(config, items, lambda item: item.get_closest_marker("long") is not None, WHY_LONG)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Every worker collects everything: their counts are the same.
    told = getattr(node, "workeroutput", {}).get(OUTPUT)
    if told:
        counts: Counter[str] = Counter(told)
        node.config.stash[LEFT_OUT] = counts


def said(counts: Counter[str]) -> Iterator[str]:
    """The lines of the summary."""
    for why, count in counts.items():
        yield f"not run: {count} {'test' if count == 1 else 'tests'} that {why}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in said(terminalreporter.config.stash[LEFT_OUT]):
        terminalreporter.write_line(line)
