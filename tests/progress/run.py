# SPDX-License-Identifier: Apache-2.0
"""How well the time left is forecast on recorded logs: python -m tests.progress.run [record ...].

record KIND SEED SECONDS [--epochs N]: record one more log (with the frameworks installed).
"""

import sys
from collections import defaultdict
from statistics import median

from tests.progress.recording import LOGS, load, record, replayed

TENTHS = tuple(number / 10 for number in range(1, 10))


def table(tail: int) -> str:
    """A row a kind, and one for all: shares of the forecasts at each tenth of the runs."""
    found: dict[str, list[tuple[float, float | None, bool]]] = defaultdict(list)
    for path in sorted(LOGS.glob("*.gz")):
        one = load(path)
        for over, told in replayed(one, tail):
            if not any(abs(over - tenth) < 1e-9 for tenth in TENTHS):
                continue
            left_s = one.lasted_s * (1 - over)
            if told is None or told.left_s is None or told.low_s is None or told.high_s is None:
                found[one.kind].append((over, None, False))
            else:
                inside = told.low_s <= left_s <= told.high_s
                found[one.kind].append((over, (told.left_s - left_s) / one.lasted_s, inside))
    lines = [
        "| log | runs | answered | median error | within 10 % of the run | of the time left |"
        " in its range | after a tenth: within 10 % of the run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    every = [row for rows in found.values() for row in rows]
    for kind, rows in [*sorted(found.items()), ("all", every)]:
        errors = [(abs(off), over) for over, off, _ in rows if off is not None]
        near = sum(error <= 0.1 for error, _ in errors) / len(rows)
        close = sum(error <= 0.1 * (1 - over) for error, over in errors) / len(rows)
        inside = sum(row[2] for row in rows) / max(1, len(errors))
        soon = [error for over, error, _ in rows if over < 0.15]
        early = sum(error is not None and abs(error) <= 0.1 for error in soon) / len(soon)
        middle = median(error for error, _ in errors) if errors else 0.0
        lines.append(
            f"| {kind} | {len(rows) // len(TENTHS)} | {len(errors) / len(rows):.0%} |"
            f" {middle:.1%} | {near:.0%} | {close:.0%} | {inside:.0%} | {early:.0%} |"
        )
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """The table, or a recording."""
    if words[:1] == ["record"]:
        print(record(words[1], int(words[2]), float(words[3]), *words[4:]).write())
        return
    print(table(int(words[0]) if words else 64 * 1024))


if __name__ == "__main__":
    main(sys.argv[1:])
