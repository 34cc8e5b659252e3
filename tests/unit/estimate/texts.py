# SPDX-License-Identifier: Apache-2.0
"""The texts that the estimate's tests read, and where they are from."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "etc/examples"
DATA = Path(__file__).parent / "data"
SHARED = Path(os.environ.get("COLOC_SHARED", ROOT.parent / "shared"))

NAMES = sorted(path.name for path in EXAMPLES.glob("*.txt"))
KERAS = sorted(path.name for path in DATA.glob("keras*.txt") if "unbuilt" not in path.name)


def example(name: str) -> str:
    """Text of an example of the project."""
    return (EXAMPLES / name).read_text(encoding="utf-8")


def keras(name: str) -> str:
    """A Keras text of the tests."""
    return (DATA / name).read_text(encoding="utf-8")


def shared(name: str) -> str:
    """A real file that lies beside the checkout; skips where it does not."""
    path = SHARED / "summaries" / name
    if not path.is_file():
        pytest.skip(f"{path} is not here: real summaries are not part of the project")
    return path.read_text(encoding="utf-8")


TORCHSUMMARY = """\
----------------------------------------------------------------
        Layer (type)               Output Shape         Param #
================================================================
            Conv2d-1           [-1, 64, 16, 16]           1,728
       BatchNorm2d-2           [-1, 64, 16, 16]             128
              ReLU-3           [-1, 64, 16, 16]               0
         MaxPool2d-4             [-1, 64, 8, 8]               0
           Flatten-5                 [-1, 4096]               0
            Linear-6                   [-1, 10]          40,970
================================================================
Total params: 42,826
Trainable params: 42,826
Non-trainable params: 0
----------------------------------------------------------------
"""

TORCHINFO = """\
=================================================================================
Layer (type:depth-idx)        Input Shape       Output Shape      Param #
=================================================================================
Net                           [8, 3, 32, 32]    [8, 10]           --
├─Conv2d: 1-1                 [8, 3, 32, 32]    [8, 16, 32, 32]   448
├─ReLU: 1-2                   [8, 16, 32, 32]   [8, 16, 32, 32]   --
├─AdaptiveAvgPool2d: 1-3      [8, 16, 32, 32]   [8, 16, 1, 1]     --
├─Linear: 1-4                 [8, 16]           [8, 10]           170
=================================================================================
Total params: 618
Trainable params: 618
Non-trainable params: 0
Total mult-adds (Units.MEGABYTES): 3.67
=================================================================================
Input size (MB): 0.10
Forward/backward pass size (MB): 1.05
Params size (MB): 0.00
Estimated Total Size (MB): 1.15
=================================================================================
"""

REPR = """\
Net(
  (embed): Embedding(1000, 64)
  (layers): ModuleList(
    (0-3): 4 x Block(
      (attn): SelfAttention(
        (q): Linear(in_features=64, out_features=64, bias=True)
        (k): Linear(in_features=64, out_features=64, bias=True)
        (v): Linear(in_features=64, out_features=64, bias=True)
      )
      (norm): LayerNorm((64,), eps=1e-05, elementwise_affine=True)
    )
  )
  (head): Linear(in_features=64, out_features=1000, bias=False)
)
"""
