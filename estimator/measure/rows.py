# SPDX-License-Identifier: Apache-2.0
"""The table of results: a line a run, written when the run has ended, read when a later call goes
on. A line that was cut off in the middle is not there."""

import csv
import io
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from slurm_coloc.errors import UsageFault

OK = "ok"


@dataclass(frozen=True)
class Row:
    """A run that was tried. Memory in MiB: ``nvml_mib`` of the process as nvidia-smi shows it (or,
    where ``how`` is "card", what the card had more than before), ``reserved_mib`` and
    ``allocated_mib`` as torch's allocator counts its highest. 0 where ``status`` is not "ok" but
    "oom", "timeout" or "failed: REASON"."""

    key: str
    status: str
    nvml_mib: int = 0
    how: str = ""
    reserved_mib: int = 0
    allocated_mib: int = 0
    seconds: float = 0.0
    card: str = ""
    driver: str = ""
    torch: str = ""
    cuda: str = ""


HEAD = [one.name for one in fields(Row)]
_NUMBERS = {"nvml_mib": int, "reserved_mib": int, "allocated_mib": int, "seconds": float}


def read(path: Path) -> list[Row]:
    """What is there. Raises UsageFault for another kind of file."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    found = []
    for values in csv.DictReader(io.StringIO(whole)):
        try:
            found.append(Row(**{name: _NUMBERS.get(name, str)(values[name]) for name in HEAD}))
        except (KeyError, TypeError, ValueError) as err:
            raise UsageFault(f"{path}: not a table of measured runs: {err}", "bad_file") from err
    return found


def append(path: Path, row: Row) -> None:
    """One more line, on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
    line = io.StringIO()
    writer = csv.DictWriter(line, HEAD, lineterminator="\n")
    if not text.rpartition("\n")[0]:
        writer.writeheader()
    writer.writerow({name: _plain(value) for name, value in asdict(row).items()})
    with path.open("a", encoding="utf-8") as out:
        out.write(line.getvalue())
        out.flush()
        os.fsync(out.fileno())


def _plain(value: object) -> object:
    """A line stays a line."""
    return " ".join(value.split()) if isinstance(value, str) else value
