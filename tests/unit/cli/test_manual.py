# SPDX-License-Identifier: Apache-2.0
"""Every command and option is documented, and the manual pages are the program's own."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.main import get_command

from slurm_coloc.cli.app import COMMANDS, build
from slurm_coloc.cli.texts import manual, manual_conf

ROOT = Path(__file__).resolve().parents[3]
MADE_BY = ".venv/bin/python -m slurm_coloc.cli.texts.manual > etc/man/coloc.1"


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


def test_a_terminal_wraps_help_texts_and_nothing_else_does(
    leaves: list[tuple[tuple[str, ...], Any]],
) -> None:
    """typer breaks a line at each end of a line in the text as well: half of them were short."""
    for path, command in leaves:
        for paragraph in command.help.split("\n\n"):
            assert "\n" not in paragraph, f"coloc {' '.join(path)}"


def test_a_terminal_shows_all_of_a_help_text(leaves: list[tuple[tuple[str, ...], Any]]) -> None:
    """typer reads it as rich's markup: words in brackets were left out."""
    for path, command in leaves:
        for text in (command.help, *(getattr(one, "help", None) for one in command.params)):
            assert Text.from_markup(text or "").plain == (text or ""), f"coloc {' '.join(path)}"


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


def test_the_page_of_the_configuration_is_up_to_date() -> None:
    made_by = ".venv/bin/python -m slurm_coloc.cli.texts.manual_conf > etc/man/coloc.toml.5"
    assert (ROOT / "etc/man/coloc.toml.5").read_text() == manual_conf.page(), f"run: {made_by}"


@pytest.mark.parametrize("page", sorted((ROOT / "etc/man").iterdir()), ids=lambda path: path.name)
def test_man_shows_each_page_without_a_warning(page: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff on this machine")
    text = page.read_text()
    if text.startswith(".so "):
        assert (page.parent / Path(text.split()[1]).name).is_file()
        return
    words = ["groff", "-man", "-ww", "-Tascii", "-z", str(page)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_roff_is_escaped() -> None:
    assert manual.escape(".TH x") == "\\&.TH x"
    assert manual.escape("a\\b --c") == "a\\eb \\-\\-c"
