# SPDX-License-Identifier: Apache-2.0
"""What one process takes beside its tensors, on one type of GPU with one set of libraries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.replay.allocator import MIB, Rules, replay
from slurm_coloc.estimate.replay.recording import Scratch, Work

#: input channels that TF32's kernels read at once: 16 bytes (cuDNN's guide on tensor cores)
ALIGNED = 4
#: channels up to which no workspace shows for the gradient of the input: any limit from 64 to 127
#: fits the runs as well, 47 and 63 do not, see ADR 9
WIDE = 64
FP32 = 4
#: PyTorch without PYTORCH_CUDA_ALLOC_CONF
DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Stack:
    """``context_mib``: CUDA context and libraries, as nvidia-smi shows them (MiB). ``spare_mib``:
    how much more of it the bound allows for, where the card was not calibrated. ``wider``: what the
    bound allows for beside, over what is above the context, on a card that no margin was compared
    on.

    ``forward``, ``data``, ``weight``: cuDNN's workspace over the bytes that a convolution reads and
    writes, for its copies of both in the order that tensor cores read (channels last); ``grouped``:
    the same for grouped ones, as a part of that. None for 1x1 and depthwise convolutions, and where
    the channels do not fill what those kernels take at once: an image's three, and for the gradient
    of the input groups, or WIDE channels or fewer of input or output.

    ``blas``: bytes of the workspace that PyTorch gives each handle of cuBLAS from the allocator's
    memory (aten/src/ATen/cuda/CublasHandlePool.cpp: 2 x 4096 KiB and 8 x 16 KiB, on Hopper 32 MiB).

    ``beyond``: what the allocator takes for activations over what the replay says: temporaries
    inside kernels, and the holes that they leave. Fitted with ``weight``, see ADR 9.

    ``allocator``: what PYTORCH_CUDA_ALLOC_CONF of the job says. ``visible_mib``: memory that the
    process sees, with its context (a MIG slice, a cap); None: more than it will ever need.
    ``card``: the type by its name in core/gpu/cards.py or by its model; "": not known.
    """

    context_mib: int
    forward: float = 0.0
    data: float = 1.0
    weight: float = 1.25
    grouped: float = 0.5
    blas: int = 8_519_680
    beyond: float = 0.03
    allocator: Rules = DEFAULT_RULES
    visible_mib: int | None = None
    card: str = ""
    spare_mib: int = 0
    wider: float = 0.0

    def workspace(self, work: Scratch) -> int:
        """Bytes while the convolution runs."""
        if work.kernel <= 1 or work.groups == work.channels:
            return 0
        inputs = work.weight // (FP32 * work.kernel * max(1, work.channels))  # of a group
        narrow = work.groups > 1 or min(inputs, work.channels) <= WIDE
        if inputs * work.groups < ALIGNED or (narrow and work.work is Work.DATA):
            return 0
        share = {Work.FORWARD: self.forward, Work.DATA: self.data, Work.WEIGHT: self.weight}
        part = share[work.work] * (self.grouped if work.groups > 1 else 1.0)
        return int(part * (work.read + work.written))

    def peak_mib(self, events: Sequence[int], lasting: int | None = None) -> int:
        """MiB that nvidia-smi shows at most of a process with these ``events`` (see replay), of
        which ``lasting`` bytes are the model's (see training); None: all of it. Raises
        SummaryError where they do not fit in what the process sees."""
        rules = self.allocator
        if self.visible_mib is not None:
            rules = replace(rules, visible=max(0, self.visible_mib - self.context_mib) * MIB)
        played = replay(events, rules)
        if played.failed is not None:
            reason = f"does not fit in the {self.visible_mib} MiB that the process sees"
            raise SummaryError(reason, "no_fit")
        passing = 0 if lasting is None else max(0, played.reserved - lasting)
        taken = (played.reserved + int(self.beyond * passing)) // MIB + 1 + self.context_mib
        return taken if self.visible_mib is None else min(taken, self.visible_mib)
