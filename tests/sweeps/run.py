# SPDX-License-Identifier: Apache-2.0
"""All sweeps, or those that are named: tables on stdout, pictures and figures in a folder.

make sweeps ARGS='budget gate --seeds 3'
"""

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.core.place.interference import model  # noqa: E402
from tests.sweeps.sweep import Figures, Sweep, mean, run  # noqa: E402
from tests.sweeps.sweeps import SWEEPS  # noqa: E402


def table(sweep: Sweep, found: dict[str, dict[str, Figures]]) -> list[str]:
    """One line a way: means over the mixes, and the saving of each mix."""
    names = list(next(iter(next(iter(found.values())).values())))
    mixes = [mix.name for mix in sweep.mixes]
    heads = [*names, *(f"{mix}" for mix in mixes)]
    lines = [f"{sweep.name}: {sweep.knob}", f"{'':36} " + " ".join(f"{h:>10}" for h in heads)]
    for label, by_mix in found.items():
        whole = mean(list(by_mix.values()))
        cells = [whole[name] for name in names] + [by_mix[mix]["saving"] for mix in mixes]
        shown = ["-" if cell is None else f"{cell:.3f}" for cell in cells]
        lines.append(f"{label:36} " + " ".join(f"{text:>10}" for text in shown))
    return lines


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="sweeps; none: all")
    parser.add_argument("--seeds", type=int, default=4, help="traces of each mix")
    parser.add_argument("--interference", default="reference", help="reference or fitted")
    parser.add_argument("--out", type=Path, help="folder for figures (JSON)")
    args = parser.parse_args()
    for sweep in SWEEPS:
        if args.names and sweep.name not in args.names:
            continue
        began = time.monotonic()
        found = run(sweep, args.seeds, model(args.interference))
        print("\n".join(table(sweep, found)))
        spent = f"{time.monotonic() - began:.0f} s"
        print(
            f"({args.seeds} traces a mix, {args.interference} interference, {spent})\n", flush=True
        )
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / f"{sweep.name}-{args.interference}.json").write_text(
                json.dumps(found, indent=1)
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
