# SPDX-License-Identifier: Apache-2.0
"""For all tests: which run, in what order, and what a second try means (tests/harness)."""

import os

import pytest
from hypothesis import settings

from tests.harness import order, second_tries, selection

# No test fails for the time that it takes: these machines are shared.
settings.register_profile("slurm-coloc", deadline=None)
settings.load_profile("slurm-coloc")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("slurm-coloc")
    group.addoption("--long", action="store_true", help="also the tests that take long")
    group.addoption(
        "--all-releases",
        action="store_true",
        default=os.environ.get("COLOC_ALL_TESTS") == "1",
        help="all cluster tests also on a Slurm release that gets a smoke test (COLOC_ALL_TESTS=1)",
    )
    group.addoption(
        "--second-tries",
        action="store_true",
        help="try a failed test on real daemons once more, as .ci/run does",
    )
    group.addoption(
        "--measure", action="store_true", help="write the seconds that files took, for their order"
    )


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (selection, second_tries, order):
        config.pluginmanager.register(plugin)
    if config.getoption("measure") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(order.Clock())
