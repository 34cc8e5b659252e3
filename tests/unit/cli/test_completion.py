# SPDX-License-Identifier: Apache-2.0
"""The completions are the command line's own, and each shell completes with them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_coloc.cli.app import COMMANDS
from slurm_coloc.cli.texts import completion

FOLDER = Path(__file__).resolve().parents[3] / "etc" / "completions"

# What was typed, and what has to be among the answers; "" for a file name.
TYPED = (
    (("coloc", "hist"), "history"),
    (("coloc", "config", "sh"), "show"),
    (("coloc", "lab", "up", "--mach"), "--machine"),
    (("coloc", "jobs", "--a"), "--all"),
    (("coloc", "estimate", "mod"), ""),
)


@pytest.fixture(autouse=True)
def all_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["coloc"])


def test_the_files_are_up_to_date() -> None:
    made = completion.files()
    assert {path.name for path in FOLDER.iterdir()} == set(made)
    for name, text in made.items():
        assert (FOLDER / name).read_text() == text, f"run: {completion.MADE_BY}"


def test_every_command_is_offered() -> None:
    tree = completion.words()
    assert {word for word, _ in tree[()]} == set(COMMANDS)
    assert all(text for _, text in tree[("doctor",)])


@pytest.mark.parametrize(("typed", "wanted"), TYPED)
def test_bash(typed: tuple[str, ...], wanted: str) -> None:
    words = " ".join(typed)
    script = (
        f". {FOLDER}/coloc.bash; COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _coloc\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert answers(["bash", "-euc", script]) == ([wanted] if wanted else [])


@pytest.mark.parametrize(("typed", "wanted"), TYPED)
def test_zsh(typed: tuple[str, ...], wanted: str) -> None:
    script = (
        "compadd() { print -rl -- $found }; _files() { : }\n"
        'f() { local -a words=("$@"); local CURRENT=$#words; . ' + f"{FOLDER}/coloc.zsh }}\n"
        f"f {' '.join(typed)}"
    )
    found = answers(["zsh", "-fc", script])  # the shell itself picks what fits
    assert wanted in found if wanted else found == []


@pytest.mark.parametrize(("typed", "wanted"), TYPED)
def test_fish(typed: tuple[str, ...], wanted: str) -> None:
    script = f"source {FOLDER}/coloc.fish; complete -C '{' '.join(typed)}'"
    found = [line.split("\t")[0] for line in answers(["fish", "--no-config", "-c", script])]
    assert wanted in found if wanted else all(Path(name).exists() for name in found)


def answers(argv: list[str]) -> list[str]:
    if shutil.which(argv[0]) is None:
        pytest.skip(f"no {argv[0]} on this machine")
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=FOLDER)
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []
