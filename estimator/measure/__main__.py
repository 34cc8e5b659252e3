# SPDX-License-Identifier: Apache-2.0
"""Measures trainings on this machine's GPU and prints how near the estimates were.

    python -m estimator.measure [--out FOLDER] [--minutes N]

FOLDER/measured.csv has a line a run; a later call goes on where this one stopped. Without a GPU,
rows that another machine measured are compared; without those, or without torch, everything but the
measuring is done, and that is said.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from estimator.evaluate.judging import Answer, Case, ask, each, names, table
from estimator.measure import texts
from estimator.measure.measuring import AHEAD, LIMIT_S, Children, go_on, measured
from estimator.measure.plan import CONTEXT, Run, of_key, plan
from estimator.measure.rows import OK, Row, read
from slurm_coloc.adapters.nvml import Gpu, Nvml
from slurm_coloc.errors import GpuError
from slurm_coloc.estimate.api import TrainingOptions
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack

NEEDED = ("torch", "torchinfo", "timm", "transformers")
INSTALL = f"pip install {' '.join(NEEDED)}"
#: where no GPU was asked: the configuration's default
DRY_CONTEXT_MIB = 1900
#: bytes of cuBLAS' workspace on Hopper and later, see Stack.blas
HOPPER_BLAS = 32 * 2**20


def stack_of(rows: Sequence[Row]) -> Stack:
    """What the run for the context shows of this machine: NVML's figure less the allocator's."""
    for row in rows:
        if row.key == CONTEXT.key and row.status == OK:
            hopper = any(word in row.card for word in ("H100", "H200", "GH200", "B100", "B200"))
            context = row.nvml_mib - row.reserved_mib
            return Stack(context, blas=HOPPER_BLAS) if hopper else Stack(context)
    return Stack(DRY_CONTEXT_MIB)


def told(run: Run, folder: Path, stack: Stack) -> dict[str, Answer]:
    """What all estimators say of a run, from its texts; empty where there is none."""
    path = texts.plain_path(folder, run)
    if not path.exists():
        return {}
    summary = parse_summary(path.read_text(encoding="utf-8"))
    recorded = texts.recorded_path(folder, run)
    if recorded.exists():
        written = parse_summary(recorded.read_text(encoding="utf-8"))
        summary = replace(summary, recording=written.recording)
    tokens = int(run.model.rpartition("-")[2]) if run.kind == "words" else None
    options = TrainingOptions(run.batch, tokens, run.optimizer, run.precision)
    return ask(summary, options, stack)


def tables(rows: Sequence[Row], folder: Path) -> str:
    """All measured runs, and those of each kind and precision."""
    stack = stack_of(rows)
    good = [(of_key(row.key), row) for row in rows if row.status == OK and row.key != CONTEXT.key]
    cases = [(run, Case(run.key, row.nvml_mib, told(run, folder, stack))) for run, row in good]
    cases = [(run, case) for run, case in cases if case.told]
    if not cases:
        return "nothing measured has a text to be estimated from"
    last = good[-1][1]
    parts = [
        f"{len(cases)} measured runs on {last.card}, driver {last.driver}, torch {last.torch},"
        f" CUDA {last.cuda}; context {stack.context_mib} MiB",
        table([case for _, case in cases]),
    ]
    for label in ("timm", "mlp", "words", "fp32", "amp", "bf16"):
        some = [case for run, case in cases if label in (run.kind, run.precision)]
        if some:
            parts += [f"{label}, {len(some)} runs", table(some)]
    worst = sorted(
        (case for _, case in cases if "text" in case.told),
        key=lambda case: -abs(case.told["text"].mib / case.measured_mib - 1),
    )
    return "\n\n".join([*parts, "furthest off:\n" + each(worst[:10], ("text", "traced"))])


def estimates(runs: Sequence[Run], folder: Path) -> str:
    """What the estimators say, where nothing was measured."""
    cases = [Case(run.key, 1.0, told(run, folder, stack_of([]))) for run in runs]
    cases = [case for case in cases if case.told]
    lines = ["| estimator | answered | mean estimate | mean bound |\n|---|---|---|---|"]
    for name in names(cases):
        ones = [case.told[name] for case in cases if name in case.told]
        mean = sum(one.mib for one in ones) / len(ones) / 1024
        bound = sum(one.upper_mib for one in ones) / len(ones) / 1024
        lines.append(f"| {name} | {len(ones)} of {len(cases)} | {mean:.1f} GiB | {bound:.1f} GiB |")
    return "\n".join(lines)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("build/gpu-estimates"))
    parser.add_argument("--minutes", type=float, help="stop to measure, or to record, after these")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of one run")
    parser.add_argument("--device", type=int, default=0, help="NVML's index of the GPU")
    parser.add_argument("--ahead", type=int, default=AHEAD, help="processes that import ahead")
    parser.add_argument("--measure-only", action="store_true", help="write the rows and no table")
    parser.add_argument("--list", action="store_true", help="print the plan and do nothing")
    args = parser.parse_args()
    until = time.monotonic() + 60 * args.minutes if args.minutes is not None else None
    runs, path, folder = plan(), args.out / "measured.csv", args.out / "texts"
    kinds = {kind: sum(run.kind == kind for run in runs) for kind in ("timm", "mlp", "words")}
    print(f"{len(runs)} trainings: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items()))
    print(f"Results in {args.out}")
    if args.list:
        print("\n".join(run.key for run in runs))
        return 0
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"Nothing is measured or recorded: {', '.join(missing)} not installed; {INSTALL}")
        return 0
    with Nvml() as nvml:
        try:
            gpu, driver = nvml.all()[args.device], nvml.driver()
        except (GpuError, IndexError) as err:
            why = err.message if isinstance(err, GpuError) else f"no GPU has index {args.device}"
            print(f"Nothing is measured: no GPU here ({why})\n")
            if rows := read(path):  # of another machine
                return compared(rows, path, folder, until)
            print("This is a dry run")
            texts.make(runs, folder, until)
            print(estimates(runs, folder))
            print("\nWithout a GPU there is nothing to compare these with.")
            return 0

        def look() -> Gpu:
            return nvml.by_uuid([gpu.uuid])[0]

        with Children(gpu.uuid, args.ahead) as children:
            rows = go_on(
                [CONTEXT, *runs],
                path,
                lambda run: measured(run, look, driver, children, limit_s=args.limit),
                until=until,
            )
    return 0 if args.measure_only else compared(rows, path, folder, None)


def compared(rows: Sequence[Row], path: Path, folder: Path, until: float | None) -> int:
    """Make the texts of what was measured and print the tables."""
    texts.make([of_key(row.key) for row in rows if row.status == OK], folder, until)
    print(tables(rows, folder))
    print(f"{path} has all {len(rows)} rows, {sum(row.status != OK for row in rows)} not measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
