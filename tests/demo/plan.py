# SPDX-License-Identifier: Apache-2.0
"""The jobs of the demo: which summary, which options, and what the stand-in really does.

The GPU is emulated, so a training has to be told its footprint. It is the estimate times ``truth``:
an honest estimate is off by some per cent, and one job lies on purpose.
"""

from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "etc" / "examples"


@dataclass(frozen=True)
class Training:
    """One job. ``smact`` is its SM activity alone (0 to 1), ``work_s`` its time alone."""

    summary: str
    batch: int
    smact: float
    work_s: float
    truth: float = 0.95
    seq_len: int | None = None
    lies: bool = False

    @property
    def file(self) -> Path:
        """The checked-in summary."""
        return EXAMPLES / self.summary

    @property
    def options(self) -> list[str]:
        """What the user writes beside --coloc."""
        words = [f"--coloc-batch-size={self.batch}"]
        if self.seq_len:
            words.append(f"--coloc-seq-len={self.seq_len}")
        return words


# The first four fill the GPUs; then comes the one whose user wrote a batch size far too small.
FIRST = (
    Training("resnet50_torchinfo.txt", 32, 0.42, 16),
    Training("mobilenetv3_small_torchsummary.txt", 64, 0.25, 14, 0.9),
    Training("bert_base_counts_repr.txt", 8, 0.45, 16, 0.92, seq_len=128),
    Training("efficientnet_b0_torchinfo.txt", 32, 0.38, 15),
)
LIAR = Training("resnet18_cifar_torchsummary.txt", 2, 0.40, 8, lies=True)
REST = (
    Training("vit_small_torchinfo.txt", 16, 0.40, 14, 1.02),
    Training("gpt2_repr.txt", 2, 0.45, 16, 0.97, seq_len=256),
    Training("resnet18_cifar_torchsummary.txt", 128, 0.30, 12, 0.93),
    Training("resnet50_depth3_torchinfo.txt", 16, 0.36, 14, 0.96),
    Training("mlp_torchsummary.txt", 512, 0.20, 12, 0.95),
)
LIAR_MIB = 36_000  # what it really takes: more than a shared A100-40GB has left
