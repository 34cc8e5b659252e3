# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fake tensors as the thesis ran them: parameters and activations alone. A baseline.

The published figure is what lives at the highest point of a step on fake tensors: parameters,
buffers, the batch and the activations, without gradients, optimizer state, context or the
allocator's rounding. Played on our recordings this gives the figures published beside
measured timm runs within 1 % in 24 of 30 models (batch 32, drawn at random; the rest has -6 to
+34 %). It needs the recording of ``coloc summarize``, for it is no formula.
"""

from slurm_coloc.estimate.api import Estimate, TrainingOptions
from slurm_coloc.estimate.block.traced import Traced
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.replay.training import OPTIMIZERS
from slurm_coloc.estimate.summary import Summary

MIB = 2**20
NO_RECORDING = "the summary has no recording: coloc summarize makes one"


def step_of(recording: Traced | None, options: TrainingOptions) -> Recording | str:
    """The recorded step at the asked batch, or why there is none. Raises SummaryError."""
    if recording is None:
        return NO_RECORDING
    if options.precision != recording.precision:
        return f"recorded in {recording.precision}, asked for {options.precision}"
    if options.gpus > 1:
        return "recorded on one GPU of the process, asked for several"
    return recording.at(options.batch_size or recording.batch)


def living(step: Recording, gradients: bool) -> int:
    """Bytes of the step's own tensors at their highest, with or without ``gradients``."""
    sizes: list[int] = []
    now = most = 0
    for event in step.events:
        if not isinstance(event, int):
            continue  # a workspace: fake tensors know of none
        if event < 0:
            now -= sizes[-1 - event]
            continue
        sizes.append(0 if not gradients and len(sizes) in step.gradients else event)
        now += sizes[-1]
        most = max(most, now)
    return most


class FakeTensor:
    """See the module."""

    name = "faketensor"
    version = "1"
    any_family = True

    def estimate(self, summary: Summary, options: TrainingOptions, context_mib: int) -> Estimate:
        """See Estimator.estimate; ``context_mib`` is not in the figure."""
        step = step_of(summary.recording, options)
        if isinstance(step, str):
            return Estimate(self.name, self.version, None, None, reason=step)
        fixed = sum(step.parameters) + sum(step.constants) + sum(step.inputs)
        mib = -(-(fixed + living(step, gradients=False)) // MIB)
        note = "parameters and activations alone: no gradients, optimizer or context"
        return Estimate(self.name, self.version, mib, mib, notes=(note,))


class Corrected:
    """The same with what it leaves out: gradients, the optimizer's state and the context. What it
    still does not know are the allocator and the libraries' workspaces: see traced."""

    name = "faketensor-corrected"
    version = "1"
    any_family = True

    def estimate(self, summary: Summary, options: TrainingOptions, context_mib: int) -> Estimate:
        """See Estimator.estimate."""
        step = step_of(summary.recording, options)
        if isinstance(step, str):
            return Estimate(self.name, self.version, None, None, reason=step)
        rule = OPTIMIZERS[options.optimizer]
        trained = sum(step.parameters)
        fixed = trained + sum(step.constants) + sum(step.inputs) + int(trained * sum(rule.state))
        stepping = trained * (1 + rule.copies)  # gradients, and copies of them, after backward
        mib = -(-(fixed + max(living(step, gradients=True), stepping)) // MIB) + context_mib
        return Estimate(self.name, self.version, mib, mib)


ESTIMATOR = FakeTensor()
