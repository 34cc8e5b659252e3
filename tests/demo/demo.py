# SPDX-License-Identifier: Apache-2.0
"""`make demo`: the same trainings shared with --coloc and on whole GPUs, on a real private Slurm.

Slurm, sbatch, the plugin, the hook, colocd and the hooks on the node are real. The GPUs and the
trainings are emulated: their times follow a published interference model, they were not measured.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from rich.table import Table

from slurm_coloc.errors import ColocError
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.demo.plan import FIRST, LIAR, LIAR_MIB, REST, Training

console = Console(width=124, highlight=False)
LIMIT_S = 150.0
DONE = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


@dataclass
class Job:
    """A submitted training and what was seen of it."""

    training: Training
    user: str
    job_id: int
    log: Path
    states: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What it wrote."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def recovered(self) -> bool:
        """Whether it ran out of GPU memory and completed all the same."""
        return "out of memory" in self.text and self.states[-1:] == ["COMPLETED"]

    def figure(self, name: str) -> str:
        """The last ``name=value`` of the stand-in's closing line."""
        found = re.findall(rf"\b{name}=(\S+)", self.text)
        return found[-1] if found else "-"


def say(text: str) -> None:
    """One line of talk, at once."""
    console.print(text)


class Show:
    """The demo on one lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def estimate(self, training: Training) -> int:
        """MiB that `coloc estimate` says."""
        words = ["coloc", "estimate", str(training.file), f"--batch-size={training.batch}"]
        if training.seq_len:
            words.append(f"--seq-len={training.seq_len}")
        answer = json.loads(self.lab.run([*words, "--json"]).stdout)
        return int(answer["estimates"][0]["memory_mib"])

    def submit(self, training: Training, number: int, *, shared: bool) -> Job:
        """sbatch as the user would write it."""
        user = self.lab.users[0]
        home = self.lab.home(user)
        truth = LIAR_MIB if training.lies else round(self.estimate(training) * training.truth)
        script = home / f"train-{number}.sh"
        model = home / training.summary
        model.write_bytes(training.file.read_bytes())
        script.write_text(
            "#!/bin/bash\n"
            "#SBATCH --mem=200\n"
            f"{self.lab.dir}/bin/emu-train --memory-mib {truth} --smact {training.smact}"
            f" --work-s {training.work_s} --ramp-s 1 --batch {training.batch}\n"
        )
        log = home / f"{'shared' if shared else 'whole'}-{number}.log"
        asked = ["--coloc", training.summary, *training.options] if shared else ["--gres=gpu:1"]
        words = ["sbatch", "--parsable", f"--output={log}", *asked, script.name]
        done = self.lab.run(words, user=user, cwd=home)
        job = Job(training, user, int(done.stdout.split(";")[0].split()[-1]), log)
        shown = " ".join(word for word in words if not word.startswith(("--output", "--parsable")))
        say(f"  [bold]$ {shown}[/bold]")
        for line in done.stderr.splitlines():
            say(f"    [dim]{line.removeprefix('sbatch: ')}[/dim]")
        return job

    def watch(self, jobs: list[Job], started: float, *, until_running: bool = False) -> None:
        """Tell every change of state until all have ended (or, for the first wave, run)."""
        while True:
            now = self.lab.run(["squeue", "-h", "--states=all", "--format=%A %T"]).stdout
            states = dict(line.split() for line in now.splitlines() if line.strip())
            for job in jobs:
                state = states.get(str(job.job_id), "GONE")
                if state == "COMPLETING" or job.states[-1:] == [state]:
                    continue
                job.states.append(state)
                self._tell(job, state, time.monotonic() - started)
            last = [job.states[-1] if job.states else "" for job in jobs]
            if until_running and all(state in ("RUNNING", *DONE) for state in last):
                return
            if all(self._over(job) for job in jobs):
                return
            if time.monotonic() - started > LIMIT_S:
                raise ColocError(f"the jobs have not ended within {LIMIT_S:g} s: {last}")
            time.sleep(0.2)

    def _over(self, job: Job) -> bool:
        """Whether the job has ended for good; the liar's first ends are not its last."""
        if job.states[-1:] and job.states[-1] in DONE:
            return not (
                job.states[-1] == "FAILED"
                and job.states.count("FAILED") <= 2
                and "out of memory" in job.text
            )
        return False

    def _tell(self, job: Job, state: str, at_s: float) -> None:
        again = "RUNNING" in job.states[:-1]
        more = "with more memory" if job.states.count("RUNNING") == 1 else "on a whole GPU"
        note = {
            "PENDING": f"put back by colocd, first in line, {more}" if again else "",
            "FAILED": "ran out of GPU memory" if "out of memory" in job.text else "failed",
        }.get(state, "")
        if state != "PENDING" or again:
            name = job.training.summary.removesuffix(".txt")
            say(f"  {at_s:5.1f} s  job {job.job_id:<3} {name:<32} {state:<10} {note}")

    def shared(self) -> tuple[list[Job], float]:
        """All trainings with --coloc; returns them and the makespan in seconds."""
        say("\n[bold]1. Shared GPUs: sbatch --coloc[/bold]")
        started = time.monotonic()
        jobs = [self.submit(one, n, shared=True) for n, one in enumerate(FIRST)]
        self.watch(jobs, started, until_running=True)
        self._memory_taken(jobs)
        say("  The next one gives a batch size far below the one it trains with:")
        jobs.append(self.submit(LIAR, len(jobs), shared=True))
        self._out_of_memory(jobs[-1])
        for one in REST:
            jobs.append(self.submit(one, len(jobs), shared=True))
        self.watch(jobs, started)
        return jobs, time.monotonic() - started

    def whole(self) -> tuple[list[Job], float]:
        """The same trainings on whole GPUs, without us."""
        say("\n[bold]2. The same trainings on whole GPUs: sbatch --gres=gpu:1[/bold]")
        started = time.monotonic()
        trainings = [*FIRST, LIAR, *REST]
        jobs = [self.submit(one, n, shared=False) for n, one in enumerate(trainings)]
        self.watch(jobs, started)
        return jobs, time.monotonic() - started

    def _memory_taken(self, jobs: list[Job]) -> None:
        """Wait until the first trainings hold their memory (they print their first step then)."""
        self._until(lambda: all("step " in job.text for job in jobs), "the first trainings step")

    def _out_of_memory(self, job: Job) -> None:
        self._until(lambda: "out of memory" in job.text, f"job {job.job_id} fills the GPU")

    def _until(self, check: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 30
        while not check():
            if time.monotonic() > deadline:
                raise ColocError(f"not within 30 s: {what}")
            time.sleep(0.1)

    def table(self, jobs: list[Job]) -> int:
        """Who shared which GPU; returns how many did."""
        table = Table(title="Who shared which GPU", title_justify="left")
        for name in (
            "job",
            "model",
            "batch",
            "estimate",
            "reserved",
            "peak",
            "GPU",
            "beside",
            "end",
        ):
            table.add_column(name, justify="left" if name in ("model", "GPU", "end") else "right")
        sharing = 0
        for job in jobs:
            beside = max((int(n) for n in re.findall(r"neighbours_max=(\d+)", job.text)), default=0)
            told = json.loads(
                self.lab.run(["coloc", "explain", str(job.job_id), "--json"], user=job.user).stdout
            )
            decision = told["decision"]
            held = decision["action"] == "collocate"
            sharing += held and (beside > 0 or job.recovered)
            table.add_row(
                str(job.job_id),
                job.training.summary.removesuffix(".txt"),
                str(job.training.batch),
                f"{(decision['memory_mib'] or 0) / 1024:.1f} GiB",
                f"{decision['shards']} GiB" if held else "whole",
                f"{int(job.figure('peak_mib')) / 1024:.1f} GiB"
                if job.figure("peak_mib") != "-"
                else "-",
                job.figure("gpu")[-6:],
                str(beside),
                "OOM, whole GPU, done" if job.recovered else job.states[-1].lower(),
            )
        console.print(table)
        return sharing


def main() -> int:
    """Run the demo; 0 when nothing was lost."""
    if os.geteuid() != 0:
        say("demo: needs root (a private Slurm starts daemons as several users)")
        return 2
    say("demo: a private Slurm with two emulated A100-40GB. Slurm, sbatch and colocd are real;")
    say("demo: GPU times are emulated by a published interference model, not measured.")
    # The estimator's first answers come while the lab's daemons still start.
    spec = LabSpec(
        name=f"demo{os.getpid()}", machine="2xa100-40gb", users=1, mode="on", deadline_ms=1000
    )
    lab = Lab.up(spec)
    try:
        say(f"demo: Slurm {lab.version} is up")
        show = Show(lab)
        shared, shared_s = show.shared()
        whole, whole_s = show.whole()
        sharing = show.table(shared)
        recovered = sum(job.recovered for job in shared)  # their logs go with the lab
    except ColocError as err:
        say(f"demo: failed: {err.message}\n{lab.logs(15)}")
        return err.exit_code
    finally:
        lab.down()
    lost = sum(job.states[-1] != "COMPLETED" for job in [*shared, *whole])
    say(f"\nshared: {shared_s:.1f} s   whole GPUs: {whole_s:.1f} s   (emulated GPU times)")
    print(
        f"demo: {len(shared)} jobs, 2 GPUs, {sharing} shared a GPU, {recovered} recovered from OOM,"
        f" {lost} lost, {whole_s / shared_s:.2f}x the throughput of whole GPUs"
    )
    return 0 if lost == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
