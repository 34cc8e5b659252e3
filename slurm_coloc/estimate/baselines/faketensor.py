# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fake tensors as the thesis ran them: parameters and activations alone. A baseline.

The published figure is what lives at the highest point of a step on fake tensors: parameters,
buffers, the batch and the activations, without gradients, optimizer state, context or the
allocator's rounding. Played on our recordings
of 385 timm models at batch 32 this is within 1 % of the figures published beside the measured runs
for 64 % of them and within 5 % for 96 % (-9 to +34 %). It needs the recording of
``coloc summarize``, for it is no formula.
"""

from slurm_coloc.estimate.estimator import Estimate, TrainingOptions
from slurm_coloc.estimate.estimators.traced import unfit
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import OPTIMIZERS
from slurm_coloc.estimate.summary import Summary

MIB = 2**20


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
    """See the module. ``corrected``: with what it leaves out, the gradients, the optimizer's state
    and the context. What that still does not know are the allocator and the libraries' workspaces:
    see traced."""

    version = "1"
    any_family = True

    def __init__(self, name: str, corrected: bool) -> None:
        self.name = name
        self._corrected = corrected

    def estimate(self, summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
        """See Estimator.estimate; ``stack`` is in the corrected figure alone."""
        recording = summary.recording
        reason = unfit(recording, options)
        if recording is None or reason:
            return Estimate(reason=reason)
        batch = options.batch_size or recording.batch
        step = recording.at(-(-batch // options.gpus))  # of one GPU's share
        trained = sum(step.parameters)
        fixed = trained + sum(step.constants) + sum(step.inputs)
        most = living(step, gradients=self._corrected)
        if not self._corrected:
            mib = -(-(fixed + most) // MIB)
            note = "parameters and activations alone: no gradients, optimizer or context"
            return Estimate(mib, mib, notes=(note,))
        rule = OPTIMIZERS[options.optimizer]
        fixed += int(trained * sum(rule.state))
        stepping = trained * (1 + rule.copies)  # gradients, and copies of them, after backward
        mib = -(-(fixed + max(most, stepping)) // MIB) + stack.context_mib
        return Estimate(mib, mib)


ESTIMATORS = (
    FakeTensor("faketensor", corrected=False),
    FakeTensor("faketensor-corrected", corrected=True),
)
