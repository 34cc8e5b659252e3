# SPDX-License-Identifier: Apache-2.0
"""The hosts of docker/rollout; skipped where they are not up. A failed test shows the logs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rollout.hosts import HostError, Hosts

HERE = Path(__file__).parent


def find() -> Hosts | str:
    """The running hosts, or why there are none."""
    project = os.environ.get("COLOC_ROLLOUT")
    if not project:
        return "no hosts: docker/rollout test brings them up"
    try:
        return Hosts.find(project)
    except (HostError, OSError) as err:
        return str(err)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    found = find() if here else ""
    for item in here:
        if isinstance(found, str):
            item.add_marker(pytest.mark.skip(reason=found))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed and HERE in item.path.parents:  # type: ignore[attr-defined]
        found = find()
        said = found if isinstance(found, str) else found.logs()
        report.sections.append(("hosts", said))  # type: ignore[attr-defined]
    return report


@pytest.fixture
def hosts() -> Hosts:
    """The hosts with plain Slurm up and nothing of ours."""
    found = find()
    assert isinstance(found, Hosts), found
    found.clean()
    return found
