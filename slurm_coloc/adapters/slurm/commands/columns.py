# SPDX-License-Identifier: Apache-2.0
"""Columns of squeue's text that no user can forge."""

import secrets
from dataclasses import dataclass

from slurm_coloc.errors import SlurmError

UNSET = frozenset({"N/A", "n/a", "(null)", "NONE"})

#: behind a value of a column without a width
SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class Marks:
    """What squeue writes behind such a value, and behind each line. A user may have any character
    in an account's name or a GPU's type, a line's end as well, and so could write lines of other
    people's jobs: so both are drawn anew for each call, and go to squeue in its environment, which
    nobody else can read."""

    between: str
    end: str

    @classmethod
    def drawn(cls) -> "Marks":
        """Two that nobody knows."""
        return cls("\x1e" + secrets.token_urlsafe(6), "\x1d" + secrets.token_urlsafe(6))

    def lines(self, text: str) -> str:
        """What squeue wrote, with SEPARATOR and the line's end for the marks, and nowhere else."""
        text = text.replace(SEPARATOR, " ").replace("\n", " ")
        return text.replace(f"{self.end} ", "\n").replace(self.between, SEPARATOR)


class Columns:
    """Columns of ``squeue --Format``, each with its width: ``JobID:14,State:20``. A value that
    fills its column may be cut, so widths are generous. Width 0: as wide as each value is. Such
    columns come first, and what a user can make as long as he likes is none of them.

    squeue pads in bytes, so a line has one character a byte (latin-1); values are UTF-8."""

    def __init__(self, form: str) -> None:
        self.form = form
        pairs = (item.split(":") for item in form.split(","))
        self.widths = {name: int(width) for name, width in pairs}
        self._free = list(self.widths.values()).count(0)
        self._wide = list(self.widths.values())[self._free :]
        self._least = sum(self._wide[:-1])

    def marked(self, marks: Marks) -> str:
        """The columns for squeue, with these marks."""
        free, wide = list(self.widths)[: self._free], list(self.widths)[self._free :]
        items = [f"{name}:0{marks.between}" for name in free]
        items += [f"{name}:{self.widths[name]}" for name in wide]
        return ",".join(items) + marks.end

    def parse(self, line: str) -> dict[str, str]:
        """The values of one line of Marks.lines; raises SlurmError on another layout."""
        *texts, wide = line.split(SEPARATOR, self._free)
        if len(texts) < self._free or len(wide) < self._least:
            text = f"squeue: a line of {len(line)} characters is too short for its columns"
            raise SlurmError(text)
        start = 0
        for width in self._wide:
            texts.append(wide[start : start + width])
            start += width
        if not line.isascii():
            texts = [_utf8(text) for text in texts]
        return {
            name: "" if text in UNSET else text
            for name, text in zip(self.widths, map(str.strip, texts), strict=True)
        }

    def rows(self, text: str) -> list[dict[str, str]]:
        """The values of each line."""
        return [self.parse(line) for line in text.split("\n") if line.strip()]


def _utf8(text: str) -> str:
    return text.encode("latin-1").decode(errors="replace")


def given(text: str) -> str:
    """A value as Slurm shows it; "" for one that is not set."""
    return "" if text in UNSET else text
