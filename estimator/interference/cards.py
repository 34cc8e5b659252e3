# SPDX-License-Identifier: Apache-2.0
"""How far the speed of a pair of trainings on one card tells that on another.

    python -m estimator.interference.cards RATES.json P100 V100 [--without TRAINING]

RATES.json: card -> training -> neighbour ("null": alone) -> steps a second, of both with a
neighbour; as Gavel publishes them (README.md). Prints the speeds and what they differ by.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: of a training beside another one: 1 = as alone
Speeds = dict[tuple[str, str], float]
ALONE = "null"


def speeds(rates: Mapping[str, Any], without: frozenset[str] = frozenset()) -> Speeds:
    """The speeds on one card; of a training beside itself the mean of both. Pairs that did not fit
    have rates of 0 and are left out."""
    found: Speeds = {}
    for training, row in rates.items():
        for other, both in row.items():
            alone = row[ALONE]
            if other == ALONE or {training, other} & without or not alone or not all(both):
                continue
            rate = sum(both) / 2 if training == other else both[0]
            found[training, other] = rate / alone
    return found


def spread(one: Speeds, other: Speeds) -> tuple[int, float, float, float]:
    """Of the pairs that both cards have: their number, the root mean square of the difference of
    their speeds, that of their logarithms, and what a constant would miss."""
    pairs = one.keys() & other.keys()
    if not pairs:
        raise SystemExit("cards: no pair was measured on both cards")
    mean = sum(other[pair] for pair in pairs) / len(pairs)
    return (
        len(pairs),
        _rms(other[pair] - one[pair] for pair in pairs),
        _rms(math.log(other[pair] / one[pair]) for pair in pairs),
        _rms(other[pair] - mean for pair in pairs),
    )


def _rms(values: Iterator[float]) -> float:
    squares = [value * value for value in values]
    return math.sqrt(sum(squares) / len(squares))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rates", type=Path)
    parser.add_argument("cards", nargs=2)
    parser.add_argument("--without", action="append", default=[])
    asked = parser.parse_args()
    rates = {name.lower(): rows for name, rows in json.loads(asked.rates.read_text()).items()}
    without = frozenset(asked.without)
    one, other = (speeds(rates[card.lower()], without) for card in asked.cards)
    for training, beside in sorted(one.keys() & other.keys()):
        pair = training, beside
        print(f"{training} beside {beside}: {one[pair]:.3f} {other[pair]:.3f}")
    number, plain, logs, constant = spread(one, other)
    print(
        f"{number} speeds differ by {plain:.3f} (logarithms {logs:.3f}); a constant: {constant:.3f}"
    )


if __name__ == "__main__":
    main()
