# SPDX-License-Identifier: Apache-2.0
"""A text's answer beside its recording's. No torch."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.api import Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import OPTIMIZERS

MIB = 2**20
#: apart by more than this an answer must have said that it is unsure
APART = 0.15
BARE = Stack(0)  #: without a context: it would make all errors smaller


@dataclass(frozen=True)
class Judged:
    """One answer. MiB; ``memory``, ``upper`` None where there was none, for ``reason``. ``floor``:
    parameters, gradients and states. ``unsure``: the answer said so."""

    name: str
    family: str
    format: str
    recorded: int
    floor: int
    memory: int | None
    upper: int | None
    unsure: bool
    reason: str

    @property
    def off(self) -> float:
        """Estimate over recording, less one."""
        return (self.memory or 0) / self.recorded - 1

    @property
    def misleads(self) -> bool:
        """Whether an answer is far off and did not say that it is unsure."""
        return self.memory is not None and abs(self.off) > APART and not self.unsure

    @property
    def above(self) -> bool:
        """Whether the recording is above the answer's bound."""
        return self.upper is not None and self.recorded > self.upper

    @property
    def below_floor(self) -> bool:
        return self.memory is not None and self.memory < self.floor


def is_unsure(answer: Estimate) -> bool:
    """Whether the answer says that its bound is wider than that of a model that is understood."""
    return any(note.startswith("wider margin") for note in answer.notes)


def judged(cache: Path) -> list[Judged]:
    """All answers to the texts of ``cache``."""
    found = []
    for path in sorted(cache.glob("*.json")):
        found += _of_case(json.loads(path.read_text(encoding="utf-8")), path.stem, cache)
    return found


def _of_case(case: dict[str, Any], name: str, cache: Path) -> Iterable[Judged]:
    options = TrainingOptions(
        case["batch"],
        optimizer=case["optimizer"],
        precision=case["precision"],
        checkpointed=case.get("checkpointed", False),
    )
    known = parse_summary((cache / f"{name}.recorded").read_text(encoding="utf-8"))
    answer = estimate(known, options, stack=BARE, estimator="traced")
    if answer.memory_mib is None or known.recording is None:
        return
    step = known.recording.at(case["batch"])
    states = sum(OPTIMIZERS[case["optimizer"]].state)
    floor = int(sum(step.parameters) * (2 + states)) // MIB
    told = TrainingOptions(
        case["batch"],
        case.get("seq_len"),
        case["optimizer"],
        case["precision"],
        shape=tuple(case["shape"]) if "shape" in case else None,
        checkpointed=options.checkpointed,
    )
    for kind in case["formats"]:
        # A user gives the input only where the text does not show it.
        given = told if kind == "print" else options
        text = (cache / f"{name}.{kind}").read_text(encoding="utf-8")
        try:
            one = estimate(parse_summary(text), given, stack=BARE, estimator="text")
        except SummaryError as err:
            one = Estimate(reason=str(err))
        yield Judged(
            name,
            case["family"],
            kind,
            answer.memory_mib,
            floor,
            one.memory_mib,
            one.upper_mib,
            is_unsure(one),
            one.reason,
        )


def table(rows: Sequence[Judged], by: str) -> str:
    """A line for each format, or family (``by``)."""
    lines = [
        f"| {by} | answered | median | within 15 % | recording above the bound | of these unsure |"
        " apart by 15 % and sure | below the floor | reserved too much |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[Judged]] = {}
    for row in rows:
        groups.setdefault(getattr(row, by), []).append(row)
    for name, of in sorted(groups.items()):
        lines.append(f"| {name} | {_line(of)} |")
    return "\n".join([*lines, f"| all | {_line(rows)} |"])


def _line(rows: Sequence[Judged]) -> str:
    told = [row for row in rows if row.memory is not None]
    if not told:
        return f"0 of {len(rows)}" + " | -" * 7
    above = [row for row in told if row.above]
    near = sum(abs(row.off) <= APART for row in told)
    sure = sum(row.misleads for row in told)
    spare = [(row.upper or 0) - row.recorded for row in told]
    return " | ".join(
        [
            f"{len(told)} of {len(rows)}",
            f"{100 * median(abs(row.off) for row in told):.1f} %",
            f"{100 * near / len(told):.0f} %",
            f"{len(above)} ({100 * len(above) / len(told):.1f} %)",
            f"{sum(row.unsure for row in above)}",
            f"{sure}",
            f"{sum(row.below_floor for row in told)}",
            f"{median(spare) / 1024:.1f} GiB",
        ]
    )


def worst(rows: Sequence[Judged], many: int = 40) -> str:
    """The answers that break a promise, the worst first."""
    bad = [row for row in rows if row.above or row.below_floor or row.misleads]
    bad.sort(key=lambda row: (not row.below_floor, not row.above, row.off))
    lines = []
    for row in bad[:many]:
        words = [
            word
            for word, true in (
                ("BELOW THE FLOOR", row.below_floor),
                ("above the bound", row.above),
                ("sure", not row.unsure),
            )
            if true
        ]
        lines.append(
            f"{row.name:44} {row.format:12} {row.recorded:6} MiB {100 * row.off:+6.1f} %"
            f"  {', '.join(words)}"
        )
    return "\n".join(lines)
