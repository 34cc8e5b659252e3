# SPDX-License-Identifier: Apache-2.0
"""In what order and by which worker tests run: the longest first, a file by one worker.

Tests on real daemons mostly wait, all others compute: both are begun at such a pace that they are
over together, so that the cores are busy all the time. tests/durations.toml has the measured
seconds of files that take longer than a few. A file listed under [apart] shares nothing between
its tests: each of them goes to whichever worker is free.
``--measure`` writes the seconds of the files that it ran.
"""

import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
LIST = TESTS / "durations.toml"
#: Seconds of a test whose file is not listed: most of tests/unit (4,888 took 260 s by two workers).
USUAL_S = 0.05
#: The same of a test on real daemons: a new file of them is begun before most others, since one
#: that is begun last makes the whole run longer.
USUAL_CLUSTER_S = 30.0
CLUSTER = "tests/cluster/"
#: Seconds from which on a file is listed; one of tests/cluster always is.
LISTED_S = 4.0
#: A run that is over sooner needs no announcement.
WORTH_TELLING_S = 90.0


@dataclass(frozen=True)
class Measured:
    """Seconds by file, the file's path from the checkout."""

    together: dict[str, float]
    apart: dict[str, float]

    def scope(self, nodeid: str) -> str:
        """What goes to one worker as a whole: a file, or one test of a file that is apart."""
        return nodeid if _file(nodeid) in self.apart else _file(nodeid)

    def seconds(self, nodeids: Iterable[str]) -> dict[str, float]:
        """Expected seconds of each scope, all of whose tests are among ``nodeids``."""
        tests = Counter(map(_file, nodeids))
        found: dict[str, float] = {}
        for nodeid in nodeids:
            file, scope = _file(nodeid), self.scope(nodeid)
            whole = self.apart.get(file, self.together.get(file))
            usual = USUAL_CLUSTER_S if file.startswith(CLUSTER) else USUAL_S
            each = usual if whole is None else whole / tests[file]
            found[scope] = found.get(scope, 0.0) + each
        return found

    def ordered(self, nodeids: Sequence[str]) -> list[int]:
        """The places of ``nodeids``: of those that wait and of those that compute the longest scope
        first, each begun when as large a part of its kind's seconds is behind it; within a scope as
        they stood."""
        seconds = self.seconds(nodeids)
        longest = sorted(seconds, key=lambda scope: (-seconds[scope], scope))
        waiting = [scope for scope in longest if scope.startswith(CLUSTER)]
        computing = [scope for scope in longest if not scope.startswith(CLUSTER)]
        begin: dict[str, tuple[float, int]] = {}  # at which part of its kind; its place there
        for kind in (waiting, computing):
            behind, whole = 0.0, sum(seconds[scope] for scope in kind)
            for place, scope in enumerate(kind):
                begin[scope] = behind / whole, place
                behind += seconds[scope]
        places = range(len(nodeids))
        return sorted(places, key=lambda at: (*begin[self.scope(nodeids[at])], _file(nodeids[at])))


def written(measured: Measured, seconds: Mapping[str, float]) -> str:
    """The text of durations.toml after a run that took ``seconds`` by file."""
    lines = ["# SPDX-License-Identifier: Apache-2.0"]
    lines += [
        "# Seconds of test files, written by --measure; what [apart] means: tests/harness/order.py"
    ]
    new = {file: took for file, took in seconds.items() if file not in measured.apart}
    for name, old in (("together", measured.together | new), ("apart", measured.apart)):
        rows = {file: seconds.get(file, took) for file, took in old.items()}
        lines += ["", f"[{name}]"]
        for file, took in sorted(rows.items()):
            if took >= LISTED_S or name == "apart" or file.startswith(CLUSTER):
                lines.append(f'"{file}" = {max(1, round(took))}')
    return "\n".join(lines) + "\n"


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def load(path: Path = LIST) -> Measured:
    """tests/durations.toml; raises ValueError where it is not as expected."""
    tables = tomllib.loads(path.read_text())
    if set(tables) != {"together", "apart"}:
        raise ValueError(f"{path}: tables together and apart, not {', '.join(tables)}")
    return Measured(tables["together"], tables["apart"])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return  # one after another they run as they stand: tests/compose relies on it
    order = load().ordered([item.nodeid for item in items])
    items[:] = [items[at] for at in order]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    measured = load()

    class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return measured.scope(nodeid)

    config.option.loadscopereorder = False  # not by the number of tests: as they were collected
    return LongestFirst(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    config = node.config
    if node.gateway.id != "gw0":
        return
    workers = len(config.getoption("tx"))
    seconds = load().seconds(ids)
    expected_s = max(sum(seconds.values()) / workers, max(seconds.values(), default=0.0))
    if expected_s >= WORTH_TELLING_S:
        terminal = config.pluginmanager.getplugin("terminalreporter")
        terminal.write_line("")
        terminal.write_line(told(len(ids), expected_s))


def told(tests: int, expected_s: float) -> str:
    """How long the run will take, before it begins."""
    minutes = max(1, round(expected_s / 60))
    return f"test: {tests:,} tests, about {minutes} minutes (on 2 cores; here are {os.cpu_count()})"


class Clock:
    """Adds up what each file's tests took, for ``--measure``."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[_file(report.nodeid)] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        LIST.write_text(written(load(), self.seconds))
