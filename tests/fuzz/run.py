# SPDX-License-Identifier: Apache-2.0
"""Runs fuzz targets: ``python -m tests.fuzz.run [--runs N] [--seed N] [--jobs N] TARGET ...``.

The inputs follow from the seed and the target. An input that leads to something new is kept and
changed further. One that gives way is written to build/fuzz and named; the exit status is 1 then.
"""

import argparse
import hashlib
import pickle
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / "build" / "fuzz"
TARGETS = ("parsers", "estimate", "protocol")
KEPT = 2000  # inputs beside the corpus
TOLD = 5  # inputs that gave way, of one kind each


@dataclass
class Result:
    """``outcomes``: how many kinds there were; ``failures``: by their kind, with the input."""

    runs: int = 0
    outcomes: set[str] = field(default_factory=set)
    failures: dict[str, Any] = field(default_factory=dict)


def fuzz(name: str, runs: int, seed: int) -> Result:
    """So many inputs to a target, the corpus itself first."""
    target = import_module(f"tests.fuzz.{name}")
    random, result = Random(f"{name}/{seed}"), Result()
    kept = list(target.CORPUS)
    first = list(kept)
    for number in range(runs):
        data = first[number] if number < len(first) else target.mutated(random, kept)
        try:
            outcome = target.one(data)
        except Exception as err:
            where = traceback.extract_tb(err.__traceback__)[-1]
            kind = f"{type(err).__name__} in {Path(where.filename).name}:{where.lineno}: {err}"
            result.failures.setdefault(kind[:200], data)
        else:
            if outcome not in result.outcomes and len(kept) < KEPT:
                kept.append(data)
            result.outcomes.add(outcome)
    result.runs = runs
    return result


def _keep(name: str, data: Any) -> Path:
    """Write an input where it can be tried again."""
    FOUND.mkdir(parents=True, exist_ok=True)
    raw = pickle.dumps(data)
    path = FOUND / f"{name}-{hashlib.sha256(raw).hexdigest()[:12]}"
    path.write_bytes(raw)
    return path


def again(path: Path) -> str:
    """Try a kept input."""
    name = path.name.partition("-")[0]
    return str(import_module(f"tests.fuzz.{name}").one(pickle.loads(path.read_bytes())))


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", type=Path, help="an input of build/fuzz")
    parser.add_argument("targets", nargs="*", default=TARGETS)
    given = parser.parse_args()
    if given.again:
        print(again(given.again))
        return 0
    failed = False
    for name in given.targets:
        began = time.monotonic()
        each = -(-given.runs // given.jobs)
        with ProcessPoolExecutor(given.jobs) as pool:
            seeds = range(given.seed * 1000, given.seed * 1000 + given.jobs)
            results = list(pool.map(fuzz, [name] * given.jobs, [each] * given.jobs, seeds))
        failures = {kind: data for one in results for kind, data in one.failures.items()}
        outcomes = set[str]().union(*(one.outcomes for one in results))
        print(
            f"fuzz {name}: {each * given.jobs:,} inputs, {len(outcomes)} kinds of outcome,"
            f" {len(failures)} kinds of failure, {time.monotonic() - began:.0f} s"
        )
        for kind, data in list(failures.items())[:TOLD]:
            print(f"  {kind}\n    {_keep(name, data)}")
        failed |= bool(failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
