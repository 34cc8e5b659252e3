# SPDX-License-Identifier: Apache-2.0
"""The thesis' workloads as their users would submit them: a text of each model, the options that it
needs, and what colocd makes of both. Nothing of a job's true memory or activity is told.

The texts are those of ``python -m estimator.evaluate workloads FOLDER`` (they need torch and the
libraries' models). A model that has none, a network of digits, is written here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from estimator.evaluate.configs import Run, options_of, workloads
from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decide import shards_needed
from slurm_coloc.core.decide.decision import Estimate
from slurm_coloc.errors import UsageFault
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.sim.trace import TraceJob
from tests.paper import facts
from tests.tracelab.summaries import colocds_stack
from tests.tracelab.workload import SIZING, Submission

#: two convolutions and two linear layers, of PyTorch's example for MNIST
DIGITS = """\
----------------------------------------------------------------
        Layer (type)               Output Shape         Param #
================================================================
            Conv2d-1           [-1, 32, 26, 26]             320
            Conv2d-2           [-1, 64, 24, 24]          18,496
           Dropout-3           [-1, 64, 12, 12]               0
            Linear-4                  [-1, 128]       1,179,776
           Dropout-5                  [-1, 128]               0
            Linear-6                   [-1, 10]           1,290
================================================================
Total params: 1,199,882
Trainable params: 1,199,882
Non-trainable params: 0
----------------------------------------------------------------
"""


@dataclass(frozen=True, slots=True)
class Known:
    """What a user gives for a workload: the summary's text and the options of sbatch."""

    text: str
    options: TrainingOptions
    gpus: int

    @property
    def words(self) -> tuple[str, ...]:
        """Options of sbatch."""
        found = [f"--coloc-batch-size={self.options.batch_size}"]
        if self.options.seq_len:
            found.append(f"--coloc-seq-len={self.options.seq_len}")
        return (*found, f"--coloc-optimizer={self.options.optimizer}")


@cache
def known(folder: Path) -> dict[str, Known]:
    """By the names of the trace's jobs. Raises UsageFault without the texts or the facts."""
    where = facts.folder()
    if where is None:
        raise UsageFault("own estimates are those of the thesis' workloads: COLOC_FACTS names them")
    runs, _ = workloads(where / "workloads.csv")
    digits = Known(DIGITS, TrainingOptions(64, None, "adam"), 1)
    return {"mnist_cnn|mnist|bs64": digits} | {run.label: _known(run, folder) for run in runs}


def _known(run: Run, folder: Path) -> Known:
    """One process on one GPU, of all that there are: its part of the batch."""
    for end in ("recorded", "plain"):
        path = folder / f"{run.text}.{end}"
        if path.exists():
            options = options_of(run)
            each = (options.batch_size or run.gpus) // run.gpus
            options = replace(options, batch_size=each, gpus=1, world_size=run.gpus)
            return Known(path.read_text(encoding="utf-8"), options, run.gpus)
    raise UsageFault(f"no text {run.text} in {folder}: python -m estimator.evaluate workloads")


def asked(
    jobs: Sequence[TraceJob], folder: Path, shards_per_gpu: int, *, several: bool
) -> list[Submission]:
    """What each job reserves by colocd's own estimate. ``several``: jobs of several GPUs share
    them. Raises UsageFault for a job that is no workload of the thesis."""
    found = known(folder)
    if strange := sorted({job.name for job in jobs} - found.keys()):
        raise UsageFault(f"no text of {', '.join(strange)}")
    return [_submission(job, found[job.name], shards_per_gpu, several) for job in jobs]


def _submission(job: TraceJob, one: Known, shards_per_gpu: int, several: bool) -> Submission:
    options = one.options if job.gpus > 1 else replace(one.options, world_size=1)
    need, smact = _need(one.text, options, shards_per_gpu)
    shares = need < shards_per_gpu and (several or job.gpus == 1)
    return Submission(job, need if shares else 0, smact, one.text, one.words)


@cache
def _need(text: str, options: TrainingOptions, shards_per_gpu: int) -> tuple[int, float | None]:
    """Shards of a GPU, all where there is no estimate, and the SM activity that is expected."""
    chosen = EstimateConfig().estimator
    found = estimate(parse_summary(text), options, stack=colocds_stack(), estimator=chosen)
    if found.memory_mib is None or found.upper_mib is None:
        return shards_per_gpu, None
    reserve = Estimate(found.name, found.memory_mib, found.upper_mib)
    return shards_needed(reserve, shards_per_gpu, SIZING), found.smact
