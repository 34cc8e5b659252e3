# SPDX-License-Identifier: Apache-2.0
"""What one process takes beside its tensors, on one type of GPU with one set of libraries."""

from dataclasses import dataclass

from slurm_coloc.estimate.replay.recording import Scratch, Work


@dataclass(frozen=True, slots=True)
class Stack:
    """``context_mib``: CUDA context and libraries, as nvidia-smi shows them (MiB).

    ``forward``, ``data``, ``weight``: cuDNN's workspace over the bytes that a convolution reads and
    writes; ``grouped``: the same for grouped ones, as a part of that. 1x1 and depthwise
    convolutions take none.
    """

    context_mib: int
    forward: float = 0.0
    data: float = 0.0
    weight: float = 1.75
    grouped: float = 0.5

    def workspace(self, work: Scratch) -> int:
        """Bytes while the convolution runs."""
        if work.kernel <= 1 or work.groups == work.channels:
            return 0
        share = {Work.FORWARD: self.forward, Work.DATA: self.data, Work.WEIGHT: self.weight}
        part = share[work.work] * (self.grouped if work.groups > 1 else 1.0)
        return int(part * (work.read + work.written))
