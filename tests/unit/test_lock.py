# SPDX-License-Identifier: Apache-2.0
"""etc/requirements.lock has every package that the program needs at run time, each with hashes."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = re.compile(r"([a-z0-9._-]+)==([0-9][0-9.]*)")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}")


def locked(text: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package."""
    found: dict[str, tuple[str, int]] = {}
    name = ""
    for line in text.splitlines():
        if match := PACKAGE.match(line):
            name = match[1]
            found.setdefault(name, (match[2], 0))
        elif HASH.match(line):
            version, count = found[name]
            found[name] = (version, count + 1)
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


LOCKED = locked((ROOT / "etc" / "requirements.lock").read_text())
WANTED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


@pytest.mark.parametrize("wanted", WANTED)
def test_what_the_program_needs_is_locked(wanted: str) -> None:
    name, least = wanted.split(">=")
    assert numbers(LOCKED[name][0]) >= numbers(least)


def test_every_package_has_hashes() -> None:
    assert len(LOCKED) > len(WANTED)
    assert [name for name, (_, hashes) in LOCKED.items() if not hashes] == []


def test_a_package_without_a_hash_is_seen() -> None:
    assert locked("typer==0.29.2 \\\n    # via x\n") == {"typer": ("0.29.2", 0)}
