# SPDX-License-Identifier: Apache-2.0
"""python -m estimator.generated CACHE: makes the texts that are missing, and judges.

Goes on where it was stopped. Needs torch, torchinfo, torchsummary, timm and transformers to make
texts, none of them to judge (--only-judge).
"""

import argparse
import gc
import json
import sys
import time
from pathlib import Path

from estimator.generated.judging import judged, table, worst

COUNT, SEED = 500, 1


def make(
    cache: Path, wanted: int, seed: int, part: tuple[int, int], until_s: float, checkpointed: bool
) -> None:
    """NAME.FORMAT and NAME.json in ``cache``, until there are ``wanted``; a model that cannot be
    made is named on stderr and another takes its place. ``part``: this process' share (k, n).
    ``checkpointed``: see cases."""
    from estimator.evaluate.recorded import prepared

    prepared()
    import torch

    from estimator.generated.cases import cases
    from estimator.generated.writing import RECORDED, TooLarge, texts, told

    torch.set_num_threads(1)
    cache.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate(cases(seed, checkpointed)):
        if len(list(cache.glob("*.json"))) >= wanted or time.monotonic() > until_s:
            return
        path = cache / f"{case.name}.json"
        failed = cache / f"{case.name}.failed"
        if number % part[1] != part[0] or path.exists() or failed.exists():
            continue
        try:
            found = dict(texts(case))
            more = told(case)
        except TooLarge as why:
            failed.write_text(str(why), encoding="utf-8")
            continue
        except Exception as why:  # many models; what one of them does must not stop the others
            failed.write_text(f"{type(why).__name__}: {str(why)[:200]}", encoding="utf-8")
            print(f"{case.name}: left out: {failed.read_text()}", file=sys.stderr)
            continue
        for kind, text in found.items():
            (cache / f"{case.name}.{kind}").write_text(text, encoding="utf-8")
        body = {
            "family": case.family,
            "batch": case.batch,
            "precision": case.precision,
            "optimizer": case.optimizer,
            "checkpointed": case.checkpointed,
            "formats": [kind for kind in found if kind != RECORDED],
            **more,
        }
        path.write_text(json.dumps(body), encoding="utf-8")
        gc.collect()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Texts of generated models against recordings.")
    parser.add_argument("cache", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--part", default="0/1", help="K/N: this process' share of the making")
    parser.add_argument("--for-s", type=float, default=1e9, help="seconds to make texts at most")
    parser.add_argument("--only-judge", action="store_true")
    parser.add_argument(
        "--checkpointed", action="store_true", help="models of libraries, with checkpointing on"
    )
    parser.add_argument(
        "--all", action="store_true", help="name every answer that breaks a promise"
    )
    given = parser.parse_args()
    if not given.only_judge:
        first, _, last = given.part.partition("/")
        make(
            given.cache, given.count, given.seed, (int(first), int(last)),
            time.monotonic() + given.for_s, given.checkpointed,
        )  # fmt: skip
    rows = judged(given.cache)
    if not rows:
        sys.exit(f"{given.cache}: no model has been recorded there")
    print(table(rows, "format"), table(rows, "family"), sep="\n\n")
    print("", worst(rows, len(rows) if given.all else 40), sep="\n")


if __name__ == "__main__":
    main()
