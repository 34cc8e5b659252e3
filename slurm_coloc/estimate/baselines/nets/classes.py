# SPDX-License-Identifier: Apache-2.0
"""The memory classes of each family's networks, and what stands around them.

Class k holds [k * step, (k + 1) * step) MiB by nvidia-smi on one GPU, context included; the answer
is a class' upper edge, as the thesis uses it. Steps are the thesis' (1, 2 and 8 "GB" of 1000 MiB);
the last class is open: all that is above, for which a whole GPU is the answer.
"""

from dataclasses import dataclass

CONTEXT_MIB = 1735  #: CUDA context and libraries in the labels of the training rows


@dataclass(frozen=True, slots=True)
class Classes:
    """``step`` in MiB; ``count`` with the open one."""

    step: int
    count: int

    def top(self, k: int) -> int | None:
        """The upper edge of class ``k`` (MiB); None for the open one."""
        return None if k >= self.count - 1 else (k + 1) * self.step

    def of(self, mib: float) -> int:
        """The class of a memory."""
        return max(0, min(int(mib // self.step), self.count - 1))


CLASSES = {"mlp": Classes(1000, 13), "cnn": Classes(8000, 11), "transformer": Classes(8000, 11)}
NETWORKS = ("mlp", "transformer")


def file_name(network: str, family: str) -> str:
    """The file of a network's weights, in this folder."""
    return f"{network}-for-{family}.onnx"
