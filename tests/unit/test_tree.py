# SPDX-License-Identifier: Apache-2.0
"""What holds for the files of the tree, whatever is in them."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = {".py", ".c", ".h", ".lua"}
COMMENTED = CODE | {".sh", ".toml", ".yaml", ".yml", ".service", ".map"}
# Recorded answers and real texts are kept as they came.
DATA = ("tests/contract/", "etc/examples/")
BUILT = {".git", ".venv", ".venv-torch", "build", "__pycache__"}
# Near 100 to 300 is the aim. A longer file says at its top why: "Longer than ... because".
MAX_LINES = 400


@cache
def files() -> tuple[Path, ...]:
    """The files of the checkout; without git, all files below it that no build made."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        found = [p for p in ROOT.rglob("*") if not BUILT & set(p.relative_to(ROOT).parts)]
    return tuple(sorted(p for p in found if p.is_file()))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def head(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(2000).decode("utf-8", "replace")


def is_script(path: Path) -> bool:
    return head(path).startswith("#!")


def own_files() -> list[Path]:
    return [p for p in files() if not name(p).startswith(DATA)]


def test_no_file_is_too_long() -> None:
    lengths = {
        name(p): len(p.read_text(encoding="utf-8").splitlines())
        for p in own_files()
        if p.suffix in CODE and "Longer than" not in head(p)
    }
    assert lengths
    assert {n: lines for n, lines in lengths.items() if lines > MAX_LINES} == {}


def test_licence_line_at_the_top() -> None:
    missing = [
        name(p)
        for p in own_files()
        if (p.suffix in COMMENTED or p.name == "Makefile" or is_script(p))
        and head(p).strip()  # an empty __init__.py has nothing to license
        and "SPDX-License-Identifier: Apache-2.0" not in "\n".join(head(p).splitlines()[:5])
    ]
    assert missing == []


def test_scripts_can_be_run() -> None:
    """A hook without its x bit drains a node."""
    wrong = [name(p) for p in own_files() if is_script(p) and not os.access(p, os.X_OK)]
    assert wrong == []


def test_no_home_directory_of_a_developer() -> None:
    personal = re.compile(r"/(?:home|Users)/[a-z][\w.-]*/|/root/[\w.]")
    wrong = {}
    for path in own_files():
        if path.suffix not in COMMENTED or name(path).startswith("tests/"):
            continue
        if hits := personal.findall(path.read_text(encoding="utf-8")):
            wrong[name(path)] = hits
    assert wrong == {}
