# SPDX-License-Identifier: Apache-2.0
"""What slurm-coloc costs at sbatch: rate and latency in each state, interleaved in one run.

    .venv/bin/python tests/bench/submit_bench.py [--submissions 2000] [--block 25] [--json]

Needs root. The states, of which without, cold, with and new are measured on one lab and every other
has a lab of its own, so that none waits for another's breaker or queue:

    none     a Slurm that knows nothing of slurm-coloc
    empty    SPANK plugin loaded, job_submit.lua with two empty functions
    without  all of slurm-coloc, jobs without --coloc
    cold     as without, each job after a short Python program, as a new text's estimate is one: how
             much longer slurmctld's own work takes so, on few cores
    with     all of slurm-coloc, jobs with --coloc and always the same text
    new      as with, each job with a text that colocd has never seen
    dead     as with, colocd killed
    hung     as with, colocd stopped (SIGSTOP)

With --floods also five states of one more lab, in which another user floods colocd's public socket
while jobs with new texts are submitted:

    questions   eight connections, each with pipelined `jobs --all --limit 1000` over 3,000 runs
    connects    connect() and close() without end
    bombs       tickets for texts that are short to send and long to read, each a new one
    options     (only by --floods options) submissions whose options have 30 MB, one after another
    computes    no flood but a loop: what any program that computes on this host costs

Jobs are submitted one after another by an ordinary user, held, and cancelled after each block. The
order of the states is drawn anew for each round of blocks. sbatch ms is the wall time of the whole
command; ctld us is slurmctld's own mean time for REQUEST_SUBMIT_BATCH_JOB (sdiag), which no process
start blurs; hook ms is what coloc.lua logged for its call to colocd.
"""

import argparse
import json
import os
import platform
import pwd
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.lab.lab import Lab  # noqa: E402
from slurm_coloc.lab.spec import LabSpec  # noqa: E402
from tests.cluster.floods import COMPUTES, FLOODS, flood, remember  # noqa: E402

STATES = ("none", "empty", "without", "cold", "with", "new", "dead", "hung")
PLAIN = ("none", "empty", "without", "cold")  # no job with --coloc
ONE_LAB = ("without", "cold", "with", "new")
SLOW = ("slow-estimate", "not-prepared", "colocd_slow", "colocd_down")  # whole GPUs for slowness
SUMMARY = ROOT / "etc" / "examples" / "resnet50_torchinfo.txt"
EMPTY_LUA = """-- SPDX-License-Identifier: Apache-2.0
function slurm_job_submit() return slurm.SUCCESS end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
"""
BESIDE = {**FLOODS, **COMPUTES}  # what another user does meanwhile
#: without the one whose 30 MB slurmctld writes to its disk long after: it is measured apart
MOST = [name for name in BESIDE if name != "options"]
LOGGED = re.compile(r"coloc: uid=(\d+) decision=\w+ action=(\w+) reason=([\w.-]+) ms=([\d.]+)")
SDIAG = re.compile(
    r"REQUEST_SUBMIT_BATCH_JOB\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)"
)


@dataclass
class State:
    """What was measured in one state; wall times in milliseconds. ``count``, ``total_us``: by
    slurmctld; ``logged``: (action, reason, ms) of each decision, by the hook."""

    name: str
    lab: Lab
    wall_ms: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    count: int = 0
    total_us: int = 0
    logged: list[tuple[str, str, float]] = field(default_factory=list)
    texts: int = 0

    @property
    def user(self) -> str:
        return self.lab.users[0]

    def argv(self) -> list[str]:
        """The next submission; a new text is written before it is timed."""
        words = [shutil.which("sbatch") or "sbatch", "-H", "-o", "/dev/null", "--gpus=1"]
        if self.name in PLAIN:
            return [*words, "--wrap=true"]
        copy, text = self.lab.home(self.user) / f"{self.name}.txt", SUMMARY.read_text()
        if self.name == "new" or self.name in BESIDE:
            self.texts += 1
            text += f"model {self.texts} of {time.time_ns()}\n"
        copy.write_text(text)
        copy.chmod(0o644)
        return [*words, f"--coloc={copy}", "--coloc-batch-size=32", "--wrap=true"]

    def block(self, count: int, keep: bool = True) -> None:
        """Submit ``count`` held jobs one after another, then cancel them."""
        before, before_us = self.controller()
        log = self.lab.log_file("slurmctld")
        begin = log.stat().st_size
        with flood(self.lab, self.name) if self.name in BESIDE else nullcontext():
            self._submit(count, keep)
        after, after_us = self.controller()
        self.lab.run(["scancel", "-u", self.user])
        if keep:
            self.count += after - before
            self.total_us += after_us - before_us
            said = log.read_bytes()[begin:].decode(errors="replace")
            uid = str(pwd.getpwnam(self.user).pw_uid)  # who floods may submit, too
            found = LOGGED.findall(said)
            self.logged += [(a, r, float(ms)) for who, a, r, ms in found if who == uid]

    def _submit(self, count: int, keep: bool) -> None:
        who, env = pwd.getpwnam(self.user), self.lab.login_env(self.user)
        home = self.lab.home(self.user)
        for _ in range(count):
            argv = self.argv()
            if self.name == "cold":
                subprocess.run(
                    [sys.executable, "-c", "import asyncio, decimal, json"],
                    user=who.pw_uid,
                    cwd="/",
                    check=True,
                )
            began = time.perf_counter()
            done = subprocess.run(
                argv,
                env=env,
                cwd=home,
                user=who.pw_uid,
                group=who.pw_gid,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            took_ms = (time.perf_counter() - began) * 1000
            if keep:
                self.wall_ms.append(took_ms)
                if done.returncode:
                    self.failed.append(done.stderr.strip())

    def controller(self) -> tuple[int, int]:
        """Submissions that slurmctld counted, and its microseconds for all of them."""
        found = SDIAG.search(self.lab.run(["sdiag"]).stdout)
        return (int(found[1]), int(found[2])) if found else (0, 0)


def make(name: str) -> Lab:
    """Bring up the lab of a state."""
    spec = LabSpec(
        name=f"bench{name}",
        users=2,
        coloc=name != "none",
        emulator=False,
        cli_filter=False,  # optional, and it would stand in every state but the first
        settings={"daemon": {"refresh_s": 30.0, "reconcile_s": 30.0}} if name != "none" else {},
    )
    lab = Lab.up(spec)
    if name == "floods":
        remember(lab)
    if name == "empty":
        (lab.dir / "job_submit.lua").write_text(EMPTY_LUA)
        lab.restart("slurmctld")
    return lab


def spoil(state: State) -> None:
    """The states in which colocd does not serve."""
    if state.name in ("dead", "empty"):
        state.lab.colocd.kill()
    elif state.name == "hung":
        state.lab.colocd.stop()


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def measure(states: Sequence[State], submissions: int, block: int, seed: int) -> None:
    rng = random.Random(seed)
    for state in states:  # first use of plugins, posix modules, page cache
        state.block(10, keep=False)
        spoil(state)
    left = submissions
    while left > 0:
        for state in rng.sample(list(states), len(states)):
            state.block(min(block, left))
        left -= block


def row(state: State) -> dict[str, Any]:
    """One line of the table, as numbers."""
    hook = [ms for _, _, ms in state.logged]
    slow = sum(reason in SLOW for _, reason, _ in state.logged)
    return {
        "state": state.name,
        "submissions": len(state.wall_ms),
        "failed": len(state.failed),
        "rate_per_s": round(1000 * len(state.wall_ms) / sum(state.wall_ms), 1),
        "sbatch_p50_ms": round(quantile(state.wall_ms, 0.5), 2),
        "sbatch_p95_ms": round(quantile(state.wall_ms, 0.95), 2),
        "sbatch_p99_ms": round(quantile(state.wall_ms, 0.99), 2),
        "sbatch_max_ms": round(max(state.wall_ms), 1),
        "ctld_submissions": state.count,
        "ctld_mean_us": round(state.total_us / max(1, state.count)),
        "hook_p50_ms": round(quantile(hook, 0.5), 3),
        "hook_p99_ms": round(quantile(hook, 0.99), 3),
        "hook_max_ms": round(max(hook, default=0.0), 1),
        "hook_p90_ms": round(quantile(hook, 0.9), 3),
        "slow_pct": round(100 * slow / max(1, len(hook)), 2),
        "reasons": dict(Counter(f"{a}:{r}" for a, r, _ in state.logged).most_common()),
    }


def show(rows: Sequence[dict[str, Any]], head: str) -> None:
    print(head)
    print(
        f"{'state':9} {'n':>5} {'failed':>6} {'per s':>6} | {'sbatch p50':>10} {'p95':>7}"
        f" {'p99':>7} {'max ms':>7} | {'ctld us':>7} | {'hook p50':>8} {'p99':>8} {'max ms':>7}"
    )
    for r in rows:
        print(
            f"{r['state']:9} {r['submissions']:5} {r['failed']:6} {r['rate_per_s']:6.1f} |"
            f" {r['sbatch_p50_ms']:10.2f} {r['sbatch_p95_ms']:7.2f} {r['sbatch_p99_ms']:7.2f}"
            f" {r['sbatch_max_ms']:7.1f} | {r['ctld_mean_us']:7} | {r['hook_p50_ms']:8.3f}"
            f" {r['hook_p99_ms']:8.3f} {r['hook_max_ms']:7.1f}"
        )
    for r in rows:
        if r["reasons"]:
            print(f"{r['state']}: " + ", ".join(f"{k} {n}" for k, n in r["reasons"].items()))
    by = {r["state"]: r for r in rows}
    if {"empty", "without"} <= by.keys():
        part = by["without"]["sbatch_p50_ms"] / by["empty"]["sbatch_p50_ms"] - 1
        rate = by["without"]["rate_per_s"] / by["empty"]["rate_per_s"] - 1
        print(f"without --coloc against the empty Lua: p50 {part:+.1%}, rate {rate:+.1%}")
    if {"without", "with"} <= by.keys():
        more = by["with"]["sbatch_p50_ms"] - by["without"]["sbatch_p50_ms"]
        print(f"with --coloc against without: p50 {more:+.2f} ms (reading the summary included)")
    for name in ("with", "new"):
        if {"without", name} <= by.keys():
            more_ms = (by[name]["ctld_mean_us"] - by["without"]["ctld_mean_us"]) / 1000
            slow = by[name]["slow_pct"]
            print(f"{name}: slurmctld {more_ms:+.2f} ms; whole GPUs for slowness {slow:.2f} %")
    if {"cold", "new"} <= by.keys():
        more_ms = (by["new"]["ctld_mean_us"] - by["cold"]["ctld_mean_us"]) / 1000
        print(f"new against cold: slurmctld {more_ms:+.2f} ms")
    for name in BESIDE:
        if {"new", name} <= by.keys():
            quiet, flooded = by["new"], by[name]
            ratios = [flooded[key] / quiet[key] for key in ("hook_p50_ms", "hook_p99_ms")]
            print(
                f"{name} against quiet: hook p50 x {ratios[0]:.2f}, p99 x {ratios[1]:.2f};"
                f" whole GPUs for slowness {flooded['slow_pct']:.2f} %"
            )
    if {"with", "new"} <= by.keys():
        known, new = by["with"], by["new"]
        parts = [
            f"{what} {new[key]:.2f} ms against {known[key]:.2f} ({new[key] / known[key]:.2f} times)"
            for what, key in (("p50", "hook_p50_ms"), ("p99", "hook_p99_ms"))
            if known[key]
        ]
        print(f"new texts against known ones in the hook: {', '.join(parts)}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="submission rate and latency in each state")
    parser.add_argument("--submissions", type=int, default=2000, help="in each state")
    parser.add_argument("--block", type=int, default=25, help="submissions between two states")
    parser.add_argument("--states", nargs="+", choices=STATES, default=list(STATES))
    told = "also while a user floods colocd: these, else all but options"
    parser.add_argument("--floods", nargs="*", choices=list(BESIDE), help=told)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if os.geteuid() != 0:
        parser.error("needs root, to bring up labs")
    states: list[State] = []
    labs: dict[str, Lab] = {}
    load = os.getloadavg()[0]
    try:
        beside = () if args.floods is None else args.floods or MOST
        for name in [*args.states, *beside]:
            lab = "coloc" if name in ONE_LAB else "floods" if name in BESIDE else name
            if lab not in labs:
                labs[lab] = make(lab)
                print(f"bench: lab {lab} is up", file=sys.stderr)
            states.append(State(name, labs[lab]))
        measure(states, args.submissions, args.block, args.seed)
        rows = [row(state) for state in states]
        version = states[0].lab.version
    finally:
        with ThreadPoolExecutor(len(labs) or 1) as pool:
            list(pool.map(lambda lab: lab.down(), labs.values()))
    told = " ".join(sys.argv[1:] if argv is None else argv)
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    head = (
        f"submit_bench.py {told}".rstrip() + f"; {time.strftime('%Y-%m-%d')}; Slurm {version};"
        f" {os.cpu_count()} x {cpu[1] if cpu else platform.machine()}; load {load:.1f}"
    )
    if args.json:
        print(json.dumps({"schema": 1, "head": head, "states": rows}))
    else:
        show(rows, head)
    for state in states:
        for text in state.failed[:3]:
            print(f"bench: {state.name}: {text}", file=sys.stderr)
    return 1 if any(state.failed for state in states) else 0


if __name__ == "__main__":
    sys.exit(main())
