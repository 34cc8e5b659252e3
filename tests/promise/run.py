# SPDX-License-Identifier: Apache-2.0
"""`make promise`: the jobs of the plan on a private Slurm in the default configuration, judged.

make promise JOBS=300 SEED=1 ARGS='--write'
"""

import argparse
import json
import os
import pwd
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.errors import ColocError, SlurmError  # noqa: E402
from slurm_coloc.lab import parts  # noqa: E402
from slurm_coloc.lab.lab import Lab  # noqa: E402
from slurm_coloc.lab.spec import LabSpec  # noqa: E402
from tests.promise import accounts, judge  # noqa: E402
from tests.promise.plan import Kind, Planned, plan  # noqa: E402
from tests.promise.witness import Witness  # noqa: E402

PAGE = ROOT / "docs" / "promise.md"
USERS = 5
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
#: part of the submissions after which slurm-coloc is switched off, and on again
OFF, ON = 0.5, 0.58
STEERED = (23, 11)  # the first release whose GPUs can be steered
LIMIT_S = 1800.0
#: a job that failed may be put back: it has ended when it has been so for so long
REST_S = 20.0


def spec() -> LabSpec:
    """A default installation of two servers with four GPUs each. Only jobs of one user share a GPU:
    steered placement sees to that, ExclusiveUser where Slurm is too old for it."""
    steered = parts.find_programs().release >= STEERED
    return LabSpec(
        name="promise",
        nodes=2,
        machine="dgx-station-a100",
        users=USERS,
        steered=steered,
        network=True,
        cpus=128,
        exclusive_user=not steered,
        settings={"placement": {"mode": "steered"}} if steered else {},
    )


class Run:
    """The jobs on one lab."""

    def __init__(self, lab: Lab, planned: list[Planned]) -> None:
        self.lab = lab
        self.planned = planned
        self.of: dict[int, Planned] = {}
        self.refused: list[str] = []
        self.while_off: set[int] = set()
        self.put_back_s: dict[int, float] = {}
        self._timers: list[threading.Timer] = []

    def submit(self) -> None:
        """All of them, with their pauses; switched off for a while in the middle."""
        off = self.lab.dir / "coloc" / "off"
        for number, one in enumerate(self.planned):
            part = number / len(self.planned)
            if OFF <= part < ON and not off.exists():
                off.touch()
                say(f"{number} submitted: switched off")
            elif part >= ON and off.exists():
                off.unlink()
                say(f"{number} submitted: switched on again")
            time.sleep(one.after_s)
            self._submit(one, off=off.exists())
            if number % 25 == 24:
                say(f"{number + 1} submitted")

    def _submit(self, one: Planned, *, off: bool) -> None:
        user = self.lab.users[one.user]
        home = self.lab.home(user)
        summary = home / f"model-{one.kind.name.lower()}-{one.millions}.txt"
        if not summary.exists():
            summary.write_text(one.summary)
        text = accounts.script(one, self.lab.dir / "bin" / "emu-train", self.diaries(user))
        words = [*one.options, *([f"--coloc={summary.name}", "--gpus=1"] if one.coloc else [])]
        try:
            first = self.lab.sbatch(*words, script=text, user=user)
        except (ColocError, subprocess.SubprocessError) as err:
            self.refused.append(f"{' '.join(words)}: {err}")
            return
        self.of[first] = one
        if off:
            self.while_off.add(first)
        if one.kind in (Kind.CANCELLED, Kind.REQUEUED):
            how = ["scancel"] if one.kind is Kind.CANCELLED else ["scontrol", "requeue"]
            strike = threading.Timer(one.strike_s, self._strike, (how, first, user))
            strike.daemon = True
            strike.start()
            self._timers.append(strike)

    def _strike(self, how: list[str], job: int, user: str) -> None:
        try:
            self.lab.run([*how, str(job)], user=user, check=False)
            if how != ["scancel"]:
                self.put_back_s[job] = time.time()
        except SlurmError:
            pass  # the job ends by itself

    def diaries(self, user: str) -> Path:
        """The folder where a user's jobs write down their runs."""
        folder = self.lab.home(user) / "diaries"
        if not folder.exists():
            folder.mkdir()
            who = pwd.getpwnam(user)
            os.chown(folder, who.pw_uid, who.pw_gid)
        return folder

    def wait(self) -> None:
        """Until every job has ended for good."""
        began, rest_s, last = time.monotonic(), time.monotonic(), None
        while time.monotonic() - began < LIMIT_S:
            states = Counter(job["JobState"] for job in self.lab.jobs())
            if states != last:
                last, rest_s = states, time.monotonic()
                shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
                say(shown)
            ended = all(state in OVER for state in states)
            if ended and time.monotonic() - rest_s > REST_S:
                return
            time.sleep(2)
        say("not all jobs have ended in time")

    def jobs(self, witness: Witness) -> dict[int, judge.Job]:
        """Every job, with what is told of it."""
        found: dict[int, judge.Job] = {}
        over_s = time.time()
        for shown in witness.shown.values():
            first = int(shown.get("ArrayJobId", shown["JobId"]))
            one = self.of.get(first)
            if one is None:
                continue
            user = self.lab.users[one.user]
            job = accounts.of_job(self.lab, one, shown, self.diaries(user), over_s)
            job.while_off = first in self.while_off
            job.put_back_s = self.put_back_s.get(job.job)
            found[job.job] = job
        return found


def say(text: str) -> None:
    """One line of talk, at once."""
    print(f"promise: {text}", flush=True)


def table(lines: list[judge.Verdict]) -> str:
    """Of the promises, for the terminal and the page."""
    rows = ["| promise | looked at | broken |", "|---|---:|---|"]
    for line in lines:
        broken = f"{len(line.broken)}: {'; '.join(line.broken[:3])}" if line.broken else "0"
        rows.append(f"| {line.promise} | {line.seen:,} | {broken} |")
    return "\n".join(rows)


def facts(run: Run, witness: Witness, jobs: dict[int, judge.Job], took_s: float) -> str:
    """What ran, in one paragraph."""
    kinds = Counter(job.kind.value for job in jobs.values())
    runs = [one for job in jobs.values() for one in job.runs]
    shared = sum(bool(one.share_mib) for one in runs)
    oom = sum(one.outcome == "oom-gpu" for one in runs)
    slurm = parts.find_programs().version
    what = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return (
        f"{len(jobs)} jobs of {USERS} users in {took_s / 60:.0f} minutes on Slurm {slurm}:"
        f" {what}. {shared} runs on a share, {oom} GPU out-of-memories,"
        f" {len(overrun(witness))} overruns, {len(witness.seconds)} looks"
        f" ({witness.missed} failed), {len(run.refused)} submissions refused."
    )


def overrun(witness: Witness) -> list[int]:
    """Jobs with an overrun."""
    return sorted(judge.overruns(witness.seconds))


def main() -> int:
    """Run and judge. 0: every promise held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="into docs/promise.md")
    parser.add_argument("--keep", type=Path, help="folder for what was seen, as JSON")
    options = parser.parse_args()
    say("bringing up a private Slurm in the default configuration, two nodes of four GPUs")
    began = time.monotonic()
    lab = Lab.up(spec())
    try:
        run = Run(lab, plan(options.jobs, USERS, options.seed))
        with Witness(lab) as witness:
            run.submit()
            run.wait()
            witness.look()
        jobs = run.jobs(witness)
    finally:
        lab.down()
    lines = judge.judge(witness.seconds, jobs)
    if run.refused:
        lines[5].broken += run.refused
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        shown = {number: repr(job) for number, job in jobs.items()}
        (options.keep / "jobs.json").write_text(json.dumps(shown, indent=1))
    text = f"{facts(run, witness, jobs, time.monotonic() - began)}\n\n{table(lines)}"
    print(text, flush=True)
    if options.write:
        write(text, options.seed)
    return 0 if all(line.holds for line in lines) else 1


def write(text: str, seed: int) -> None:
    """Into the page, between its marks."""
    begin, end = "<!-- figures -->\n", "<!-- end of figures -->"
    page = PAGE.read_text()
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    said = f"`make promise SEED={seed}`, {time.strftime('%Y-%m-%d')}: {text}\n\n"
    PAGE.write_text(head + begin + said + end + tail)


if __name__ == "__main__":
    sys.exit(main())
