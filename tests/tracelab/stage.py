# SPDX-License-Identifier: Apache-2.0
"""A lab for one policy: what is submitted there, and what is seen of it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import procs
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.tracelab import records
from tests.tracelab.predict import RAMP_S
from tests.tracelab.scale import Scale
from tests.tracelab.summaries import summary
from tests.tracelab.ways import GATE, LIMIT_MIN, Way
from tests.tracelab.workload import Submission

#: MiB of host memory that a stand-in is given
HOST_MIB = 100
#: for colocd at a submission: one that is not answered in time gets a whole GPU, and three labs
#: on a small machine are slower than a cluster's controller
DEADLINE_MS = 3000
TRIES = 20
#: shards of the summary of a job that asks for several GPUs: it gets whole ones whatever that says
ANY = 8
READY_S = 60.0
#: how the stand-in tells its time, and that it ran out, once a run
WALL = re.compile(r"^emu-train: done .*\bwall_s=([\d.]+)", re.M)
SHARDS = re.compile(r"coloc:1:[0-9a-f]+:collocate:[\w-]+:(\d+)")
OOM = "torch.OutOfMemoryError: CUDA out of memory"


def spec(name: str, way: Way, machine: str, scale: Scale, *, several: bool = False) -> LabSpec:
    """The lab of a policy. The history is off: a job reserves what the trace's estimator says.
    ``several``: jobs of several GPUs can share them."""
    settings: dict[str, dict[str, object]] = {
        "estimate": {"history": False},
        "recovery": {"start_after_s": 2, "max_per_user_day": 1000, "max_first_per_user_day": 1000},
        "agent": {
            "window_s": scale.window_s,
            "beat_s": scale.beat_s,
            "log_read_s": 0 if way.plan == "off" else 1,
        },
        "placement": {
            "mode": "steered" if way.telemetry else "native",
            "plan": way.plan,
            "smact_gate": GATE,
            "interval_s": scale.look_s,
            "max_pin_s": 1e6,  # the gate holds as long as it takes, as in the simulator
        },
    }
    return LabSpec(
        name=name,
        machine=machine,
        users=1,
        deadline_ms=DEADLINE_MS,
        mode="on" if way.shares else "off",
        exclusive_user=way.shares,  # sharing.with stays as it is by default
        multi_gpu=several and way.shares,
        settings=settings,
        slurm_conf_extra="MinJobAge=86400",
        **way.wish,
    )


@dataclass
class Stage:
    """``said``: what a reader of the result must know."""

    lab: Lab
    way: Way
    scale: Scale
    said: list[str] = field(default_factory=list)
    _trainings: dict[int, dict[tuple[str, int], int]] = field(default_factory=dict)

    @property
    def user(self) -> str:
        """Who submits all jobs."""
        return self.lab.users[0]

    @property
    def shards_per_gpu(self) -> int:
        """Of this machine's cards."""
        return self.lab.spec.cards.shards_per_gpu(self.lab.spec.shard_mib)

    def ready(self) -> None:
        """Wait until colocd has heard of every GPU, where it decides on that."""
        if not self.way.telemetry:
            return
        if not procs.wait_until(self._heard, READY_S, 0.5):
            raise SlurmError(f"no telemetry of all GPUs within {READY_S:g} s")

    def _heard(self) -> bool:
        done = self.lab.run(["coloc", "gpus", "--json"], check=False)
        known = json.loads(done.stdout)["gpus"] if done.returncode == 0 else []
        return len(known) == self.lab.spec.cards.gpus

    # ---- what is submitted ---------------------------------------------------------------------

    def words(self, one: Submission) -> list[str]:
        """The options of sbatch for a job."""
        gpus = one.job.gpus
        words = [f"--gpus={gpus}", f"--mem={HOST_MIB}", f"--time={LIMIT_MIN}"]
        if gpus > 1 and one.shards:  # so they are shared
            words[0] = f"--gpus-per-task=1 --ntasks={gpus}"
        if self.way.shares and (one.text or one.shards or gpus > 1):
            words += [f"--coloc={self._model(one)}", *one.words]
        return " ".join(words).split()

    def script(self, one: Submission) -> str:
        """What a job runs: the training stand-in, its clock as fast as the trace's."""
        job = one.job
        every_s = 1e9 if self.way.plan == "off" else self.scale.compress
        words = [
            f"{self.lab.dir}/bin/emu-train",
            f"--memory-mib {max(1, job.memory_mib)}",
            f"--smact {job.activity.smact}",
            f"--work-s {job.run_s}",
            f"--gpus {job.gpus}",
            f"--ramp-s {RAMP_S} --time-scale {self.scale.compress} --log-every-s {every_s}",
        ]
        return f"#!/bin/bash\nexec {' '.join(words)}\n"

    def submit(self, one: Submission, *, quiet: bool = False) -> int:
        """sbatch, as its user; Slurm's id. ``quiet``: no log is kept."""
        log = "/dev/null" if quiet else self._log(one.job.id)
        words = [f"--output={log}", *self.words(one)]
        return self.lab.sbatch(*words, script=self.script(one), user=self.user)

    def _log(self, job_id: int) -> Path:
        return self.lab.home(self.user) / f"job-{job_id}.log"

    def _model(self, one: Submission) -> Path:
        """The summary of a job's training: what colocd knows of one job it knows of all like it."""
        shards, gpus = one.shards or ANY, one.job.gpus if one.shards else 1
        same = self._trainings.setdefault(shards, {})
        number = same.setdefault((one.job.name, one.job.gpus), len(same))
        path = self.lab.home(self.user) / f"model-{shards}-{number}.txt"
        if not path.exists():
            path.write_text(one.text or summary(shards, self.shards_per_gpu, number, gpus))
            path.chmod(0o644)
        return path

    def rehearse(self, jobs: Sequence[Submission]) -> None:
        """Each size is submitted once, held, and cancelled: colocd must reserve what the simulator
        is told, and answers faster the second time. Raises SlurmError where it does not."""
        known = {(one.shards, one.job.name): one for one in jobs if one.shards}
        for (shards, _), one in sorted(known.items()):
            for _ in range(TRIES):
                got, why = self._held(one)
                if got == shards:
                    break
            else:
                raise SlurmError(f"{shards} shards expected, colocd reserves {got}: {why}")

    def _held(self, one: Submission) -> tuple[int, str]:
        """Shards that are decided for a held job of this kind, by its mark (a share that waits for
        its pin asks for a whole GPU), and the mark."""
        job_id = self.lab.sbatch("--hold", *self.words(one), wrap="true", user=self.user)
        row = self.lab.job(job_id)
        self.lab.run(["scancel", str(job_id)])
        mark = row.get("AdminComment", "")
        found = SHARDS.search(mark)
        return int(found[1]) if found else 0, mark

    # ---- what is seen --------------------------------------------------------------------------

    def runs(self) -> list[records.Run]:
        """All runs that have ended."""
        log = self.lab.dir / "log" / "jobcomp"
        return records.runs(log.read_text(errors="replace")) if log.exists() else []

    def joules(self) -> float:
        """What all GPUs drew since the lab is up."""
        found = json.loads(self.lab.run(["coloc-emu", "show", self._ledger, "--json"]).stdout)
        return sum(float(gpu["energy_j"]) for gpu in found["gpus"])

    @property
    def _ledger(self) -> str:
        return f"{self.lab.dir}/nodes/{self.lab.spec.node_names[0]}/ledger"

    def queue(self) -> list[str]:
        """State of each job that has not ended."""
        return self.lab.run(["squeue", "-h", "-o", "%T"]).stdout.split()

    def ooms(self, job_id: int) -> int:
        """How often a job's log tells an out-of-memory of the GPU."""
        log = self._log(job_id)
        return log.read_text(errors="replace").count(OOM) if log.exists() else 0

    def trained_s(self, job_id: int) -> float | None:
        """Seconds of the trace from a job's first byte on the GPU to its end, by its own log."""
        log = self._log(job_id)
        found = WALL.findall(log.read_text(errors="replace")) if log.exists() else []
        return float(found[-1]) if found else None

    def reserved(self, jobs: Sequence[Submission], ids: dict[int, int]) -> list[Submission]:
        """The jobs with what was reserved for them indeed. One that was recovered keeps what was
        planned: its request is that of the last try."""
        rows = {int(row["JobId"]): row for row in self.lab.jobs()}
        found = []
        for one in jobs:
            row = rows.get(ids[one.job.id], {})
            got = reserved(row)
            # 22.05 shares a GPU that is taken whole, so there a whole one is all its shards.
            got = 0 if got == self.shards_per_gpu else got
            known = bool(row) and row.get("Restarts", "0") == "0"
            found.append(replace(one, shards=got) if known else one)
        return found


def reserved(row: dict[str, str]) -> int:
    """Shards in a job's request, of one GPU; 0 where there are none."""
    tres = row.get("TresPerTask", "") or row.get("TresPerNode", "")
    return int(tres.rsplit(":", 1)[1]) if "shard" in tres else 0
