# SPDX-License-Identifier: Apache-2.0
"""Every command and option is documented, and the manual page is the command line's own."""

from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from slurm_coloc.cli import manual
from slurm_coloc.cli.app import COMMANDS, build

ROOT = Path(__file__).resolve().parents[3]
MADE_BY = ".venv/bin/python -m slurm_coloc.cli.manual > etc/man/coloc.1"


@pytest.fixture
def leaves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], Any]]:
    monkeypatch.setattr("sys.argv", ["coloc"])
    return list(manual.leaves(get_command(build())))


def test_every_command_and_option_has_a_help_text(
    leaves: list[tuple[tuple[str, ...], Any]],
) -> None:
    assert {path[0] for path, _ in leaves} == set(COMMANDS)
    for path, command in leaves:
        assert (command.help or "").strip(), f"coloc {' '.join(path)}"
        for name, text in manual.options_of(command):
            assert text.strip(), f"coloc {' '.join(path)} {name}"


def test_every_command_that_answers_people_has_json(
    leaves: list[tuple[tuple[str, ...], Any]],
) -> None:
    without = {
        " ".join(path)
        for path, command in leaves
        if not any("--json" in name for name, _ in manual.options_of(command))
    }
    assert without == {"serve", "agent"}


def test_manual_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["coloc"])
    assert (ROOT / "etc/man/coloc.1").read_text() == manual.page(), f"run: {MADE_BY}"


def test_roff_is_escaped() -> None:
    assert manual.escape(".TH x") == "\\&.TH x"
    assert manual.escape("a\\b --c") == "a\\eb \\-\\-c"
