# SPDX-License-Identifier: Apache-2.0
"""A run that has ended, as the report of many reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class PastRun:
    """``shared``: it held a share; ``smact``: its SM activity alone, measured or expected (ratio);
    ``idle``: it held its GPU without activity; ``gpus``: UUIDs. Memory in MiB, times in Unix
    seconds; None: not known."""

    job_id: int
    uid: int
    account: str | None
    partition: str | None
    shared: bool
    outcome: str
    blame: str | None
    verdict: str | None
    submit_s: float | None
    start_s: float | None
    end_s: float
    gpus: tuple[str, ...]
    peak_mib: int | None
    memory_mib: int | None
    upper_mib: int | None
    share_mib: int | None
    smact: float | None
    method: str | None
    idle: bool

    @property
    def began_s(self) -> float:
        """Its start; its end where it is not known that it began."""
        return self.end_s if self.start_s is None else self.start_s

    @property
    def hours(self) -> float:
        """GPU hours from its start to its end, of each of its GPUs; one where it is not known which
        it had."""
        return max(0.0, self.end_s - self.began_s) / 3600 * max(1, len(self.gpus))


NAMES = tuple(one.name for one in fields(PastRun))


def packed(runs: Sequence[PastRun]) -> dict[str, Any]:
    """As JSON that is short: names once, GPUs by their place in a list."""
    uuids: dict[str, int] = {}
    rows = []
    for run in runs:
        row = [getattr(run, name) for name in NAMES]
        row[NAMES.index("gpus")] = [uuids.setdefault(one, len(uuids)) for one in run.gpus]
        rows.append(row)
    return {"names": list(NAMES), "gpus": list(uuids), "rows": rows}


def unpacked(body: Mapping[str, Any]) -> list[PastRun]:
    """From ``packed``, also of another release with more or fewer names; raises KeyError, TypeError
    or IndexError where it is no such thing."""
    names, gpus = list(body["names"]), list(body["gpus"])
    found = []
    for row in body["rows"]:
        values: dict[str, Any] = dict.fromkeys(NAMES)
        values |= zip(names, row, strict=True)
        values["gpus"] = tuple(gpus[place] for place in values["gpus"] or ())
        found.append(PastRun(**{name: values[name] for name in NAMES}))
    return found
