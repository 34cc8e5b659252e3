# SPDX-License-Identifier: Apache-2.0
"""Tests on the Docker cluster that `make cluster-up` brought up; skipped where none is up.

``cluster`` is that cluster, emptied after each test. A failed test shows the daemons' logs. Tests
that a release cannot pass carry ``@pytest.mark.needs_slurm("24.11", "why")``.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.cluster import Cluster, ClusterError

HERE = Path(__file__).parent


def find() -> Cluster | str:
    """The running cluster, or why there is none."""
    try:
        return Cluster.find()
    except ClusterError as err:
        return str(err)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs_slurm(release, why): skipped where the cluster's Slurm is older"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    found = find() if here else ""
    for item in here:
        if isinstance(found, str):
            item.add_marker(pytest.mark.skip(reason=found))
            continue
        for mark in item.iter_markers("needs_slurm"):
            if found.release < tuple(int(part) for part in mark.args[0].split(".")):
                why = f"Slurm {found.version} is older than {mark.args[0]}: {mark.args[1]}"
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed and HERE in item.path.parents:  # type: ignore[attr-defined]
        found = find()
        said = found if isinstance(found, str) else found.logs()
        report.sections.append(("cluster", said))  # type: ignore[attr-defined]
    return report


def pytest_report_header(config: pytest.Config) -> str | None:
    found = find()
    if isinstance(found, str):
        return f"cluster: {found}"
    return f"cluster: {found.project}, Slurm {found.version}"


@pytest.fixture(scope="session")
def shared_cluster() -> Cluster:
    """The cluster behind ``cluster``."""
    found = find()
    assert isinstance(found, Cluster), found
    return found


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, colocd answering; its jobs are ended after each test."""
    # A test that restarted it can end before it listens. The next job would get a whole GPU for
    # that, the breaker the same for some more: enough to fill six GPUs and to hold up a thousand.
    shared_cluster.until(shared_cluster.status, 60, "colocd answers")
    yield shared_cluster
    shared_cluster.clear()


@pytest.fixture(scope="session", autouse=True)
def began_s() -> float:
    """When the first test of this run began (Unix seconds), for sacct."""
    return time.time()
