# SPDX-License-Identifier: Apache-2.0
"""A folder of numbered records of which the newest few are kept."""

import re
from pathlib import Path
from threading import Lock

_NAME = re.compile(r"(\d{8})\.json")


class Ring:
    """The folder is made when the first record comes. One process writes, in several threads."""

    def __init__(self, folder: Path, kept: int = 64) -> None:
        self._folder, self._kept = folder, kept
        self._adding = Lock()

    def paths(self) -> list[Path]:
        """The records, oldest first."""
        try:
            return sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))
        except FileNotFoundError:
            return []

    def add(self, text: str) -> Path:
        """Keep one more, whole or not at all. Raises OSError."""
        with self._adding:
            return self._add(text)

    def _add(self, text: str) -> Path:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        present = self.paths()
        number = int(present[-1].stem) + 1 if present else 1
        path = self._folder / f"{number:08}.json"
        new = path.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
        for old in present[: max(0, len(present) + 1 - self._kept)]:
            old.unlink(missing_ok=True)
        return path
