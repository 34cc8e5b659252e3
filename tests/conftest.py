# SPDX-License-Identifier: Apache-2.0
"""For all tests: why a test was tried again is told, also where the second try passed."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"tried again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext[-3000:])
