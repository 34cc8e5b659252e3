# SPDX-License-Identifier: Apache-2.0
"""A trace through a real Slurm with emulated GPUs, beside the simulator's prediction.

    make trace-lab TRACE=60 POLICIES='exclusive native steered' COMPRESS=30

Needs root. Slurm, sbatch, plugin, hook, colocd, Prolog and Epilog are real; the GPUs are emulated,
and slow their trainings down by the `reference` model, which the simulator uses too. So the table
says whether Slurm with slurm-coloc does what the simulator says that the policy does; it says
nothing of the model of interference.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.errors import ColocError, UsageFault  # noqa: E402
from slurm_coloc.lab import parts  # noqa: E402
from slurm_coloc.lab.lab import Lab  # noqa: E402
from slurm_coloc.lab.spec import MACHINES  # noqa: E402
from slurm_coloc.sim.trace import TraceJob  # noqa: E402
from tests.tracelab import own, report  # noqa: E402
from tests.tracelab.play import play  # noqa: E402
from tests.tracelab.predict import predict, spread  # noqa: E402
from tests.tracelab.probe import start_cost_s  # noqa: E402
from tests.tracelab.report import Row  # noqa: E402
from tests.tracelab.scale import Scale  # noqa: E402
from tests.tracelab.stage import Stage, spec  # noqa: E402
from tests.tracelab.ways import WAYS, Way  # noqa: E402
from tests.tracelab.workload import SHARD_MIB, Submission, asked, trace  # noqa: E402

RESULTS = ROOT / "tests" / "tracelab" / "RESULTS.md"
#: a lab may take so many times what is predicted, and so many seconds more
PATIENCE, PATIENCE_S = 2.0, 300.0
#: what `make trace-lab` runs; the text of other choices is marked with their names
USUAL = ["exclusive", "native", "steered"]
#: --estimator for what colocd makes of the models' texts
OWN = "own"
#: each lab builds plugin and emulator: one at a time
BUILDS = Lock()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run."""

    jobs: Sequence[TraceJob]
    machine: str
    estimator: str
    scale: Scale
    texts: Path
    several: bool = False

    def asked(self, way: Way, shards: int) -> list[Submission]:
        """What the jobs reserve."""
        if self.estimator == OWN and way.shares:
            return own.asked(self.jobs, self.texts, shards, several=self.several)
        known = "oracle" if self.estimator == OWN else self.estimator
        return asked(self.jobs, known, shards, shares=way.shares, several=self.several)

    def row(self, way: Way, name: str, said: list[str]) -> Row:
        """Bring the lab of a policy up, run the trace there, and simulate the same."""
        shards = MACHINES[self.machine].shards_per_gpu(SHARD_MIB)
        jobs = self.asked(way, shards)
        with BUILDS:
            lab = Lab.up(spec(name, way, self.machine, self.scale, several=self.several))
        try:
            stage = Stage(lab, way, self.scale)
            stage.ready()
            stage.rehearse(jobs)
            before_s = start_cost_s(stage)
            scale = replace(self.scale, start_s=before_s)
            expected_s = scale.of_lab(predict(jobs, way, self.machine, scale).makespan_s)
            say(f"{way.name}: a start costs {before_s:.2f} s; about {expected_s:.0f} s to go")
            played, given = play(stage, jobs, PATIENCE * expected_s + PATIENCE_S)
            after_s = start_cost_s(stage)
            scale = replace(scale, start_s=(before_s + after_s) / 2)
            stage.said.append(
                f"a start cost {before_s:.2f} s before the trace, {after_s:.2f} after"
            )
            said += [f"{way.name}: {line}" for line in stage.said]
            simulated = predict(given, way, self.machine, scale)
            plain = predict(given, way, self.machine, self.scale)
            around = spread(given, way, self.machine, scale)
            lab_says = played.outcome(jobs, scale)
            return Row(way, scale, lab_says, simulated, plain, spread=around)
        except ColocError:
            print(lab.logs(20), file=sys.stderr)
            raise
        finally:
            lab.down()


def say(text: str) -> None:
    """Talk, at once."""
    print(f"trace-lab: {text}", file=sys.stderr, flush=True)


def rows(plan: Plan, ways: Sequence[Way], at_once: int, said: list[str]) -> list[Row]:
    """All policies, so many labs beside each other; a policy that this Slurm cannot is told."""
    release = parts.find_programs().release

    def one(number: int, way: Way) -> Row:
        if release < way.release:
            why = f"it needs Slurm {way.release[0]}.{way.release[1]:02}"
            return Row(way, plan.scale, why=why)
        return plan.row(way, f"tl{os.getpid()}x{number}", said)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, range(len(ways)), ways))


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    uncut = [name for name, cards in MACHINES.items() if not cards.slices]
    parser.add_argument("--trace", default="60", help="60, 90, example or a CSV file")
    parser.add_argument("--policies", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--compress", type=float, default=30.0, help="at most 30 is sensible")
    parser.add_argument("--machine", default="dgx-station-a100", choices=uncut)
    parser.add_argument(
        "--estimator", default="oracle", help=f"oracle, X of a column X_mib, or {OWN}: --texts"
    )
    parser.add_argument(
        "--texts", type=Path, default=Path(), help="folder of estimator.evaluate's workloads"
    )
    parser.add_argument(
        "--several", action="store_true", help="jobs of several GPUs share them (24.11)"
    )
    parser.add_argument("--first", type=int, help="the first jobs of the trace alone")
    parser.add_argument("--at-once", type=int, default=4, help="labs beside each other")
    parser.add_argument("--write", action="store_true", help=f"into {RESULTS.name}")
    parser.add_argument(
        "--insert",
        type=Path,
        help=f"put what was printed elsewhere into {RESULTS.name}; run nothing",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; 0 where every policy that was run agrees and no job was lost."""
    args = options(argv)
    if args.insert:
        traces = report.write(RESULTS, args.insert.read_text(encoding="utf-8"))
        say(f"{RESULTS.name}: {', '.join(traces) or 'nothing found'}")
        return 0 if traces else 1
    if os.geteuid() != 0:
        say("needs root, to bring up labs")
        return 2
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        jobs = trace(args.trace)[: args.first]
        scale = Scale.at(args.compress)
        plan = Plan(jobs, args.machine, args.estimator, scale, args.texts, args.several)
        said: list[str] = []
        ways = [WAYS[name] for name in dict.fromkeys(args.policies)]
        found = rows(plan, ways, max(1, args.at_once), said)
    except (ColocError, UsageFault) as err:
        say(err.message)
        return 1
    name = f"{args.trace}/{args.first}" if args.first else args.trace
    if args.policies != USUAL:
        name += ":" + "+".join(way.name for way in ways)
    if args.estimator != "oracle" or args.several:
        name += f":{args.estimator}" + ":several" * args.several
    run = report.Run(
        name,
        len(jobs),
        args.machine,
        args.estimator,
        parts.find_programs().version,
        args.compress,
        min(len(ways), args.at_once),
        load,
        (time.monotonic() - began) / 60,
    )
    text = report.marked(name, report.text(run, found, said))
    print(text)
    if args.write:
        report.write(RESULTS, text)
    return 0 if all(row.agrees for row in found if row.lab is not None) else 1


if __name__ == "__main__":
    sys.exit(main())
