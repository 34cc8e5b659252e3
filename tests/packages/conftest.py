# SPDX-License-Identifier: Apache-2.0
"""The hosts of docker/install; skipped where they are not up. A failed test shows the logs."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages.hosts import Hosts

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "COLOC_INSTALL" in os.environ:
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="no hosts: docker/install test starts them"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed and HERE in item.path.parents:  # type: ignore[attr-defined]
        report.sections.append(("hosts", Hosts(os.environ["COLOC_INSTALL"]).logs()))  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="module")
def hosts() -> Hosts:
    """New hosts with plain Slurm up and nothing of ours."""
    subprocess.run([ROOT / "docker" / "install", "up"], check=True)
    found = Hosts(os.environ["COLOC_INSTALL"])
    found.site()
    return found
