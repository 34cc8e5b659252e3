# SPDX-License-Identifier: Apache-2.0
"""What an estimator is given and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from slurm_coloc.core.decide.levels import DEFAULT_LEVEL, LEVELS
from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.errors import UsageFault
from slurm_coloc.estimate.replay.parallel import Ranks
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary

PRECISIONS = ("fp32", "amp", "bf16")


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """What the summary does not say.

    ``batch_size``: samples of one process in a step; None: the text's. ``seq_len``: tokens a
    sample; None: the text's, else ``default_seq_len``. ``shape``: of one sample of the input,
    channels first, for texts without shapes. ``gpus``: GPUs of one process
    (DataParallel). ``assumed``: those of ``optimizer`` and ``precision`` that nobody named, so that
    a recording knows better. ``level``: probability that the bound holds. ``world_size``:
    data-parallel processes of the job, of which this is one; ``zero_stage``: what they divide among
    them, see replay/parallel. ``accumulate``: gradients live from batch to batch. ``compiled``: by
    torch.compile. ``checkpointed``: blocks run again in the backward. ``by_part``: tell what the
    memory is for, too. Raises UsageFault for a value out of its range.
    """

    batch_size: int | None = None
    seq_len: int | None = None
    optimizer: str = "adam"
    precision: str = "fp32"
    gpus: int = 1
    default_seq_len: int = 512
    assumed: tuple[str, ...] = ()
    level: float = DEFAULT_LEVEL
    world_size: int = 1
    zero_stage: int = 0
    shape: tuple[int, ...] | None = None
    accumulate: bool = False
    compiled: bool = False
    checkpointed: bool = False
    by_part: bool = False

    @property
    def ranks(self) -> Ranks:
        """The data-parallel processes of which this is one."""
        return Ranks(self.world_size, self.zero_stage)

    def __post_init__(self) -> None:
        if not LEVELS[0] <= self.level <= LEVELS[-1]:
            text = f"level must be from {LEVELS[0]} to {LEVELS[-1]}, not {self.level}"
            raise UsageFault(text, "bad_option")
        for name in ("batch_size", "seq_len", "gpus", "default_seq_len", "world_size"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < 2**31:
                raise UsageFault(f"{name} must be from 1 to 2147483647, not {value}", "bad_option")
        if self.shape is not None and not (
            1 <= len(self.shape) <= 4 and all(1 <= side < 2**24 for side in self.shape)
        ):
            text = "the input's shape must have one to four sizes, from 1 to 16777215 each"
            raise UsageFault(text, "bad_option")
        if not 0 <= self.zero_stage <= 3:
            raise UsageFault(f"zero_stage must be from 0 to 3, not {self.zero_stage}", "bad_option")
        if self.optimizer not in OPTIMIZERS:
            raise UsageFault(f"optimizer must be one of {', '.join(OPTIMIZERS)}", "bad_option")
        if self.precision not in PRECISIONS:
            raise UsageFault(f"precision must be one of {', '.join(PRECISIONS)}", "bad_option")


@dataclass(frozen=True, slots=True)
class Estimate:
    """GPU memory (MiB) of the fullest GPU of the process.

    ``memory_mib`` None: no figure, the job needs a whole GPU, ``reason`` says why. ``upper_mib``:
    the bound to reserve. ``smact``, ``dram``: SM and DRAM activity of the training alone on the GPU
    (0 to 1), ``smact_low`` and ``smact_high`` an interval; None where they are not predicted.
    ``parts``: MiB by what they are for (replay/parts), {} where nobody asked.
    ``name``, ``version`` of the estimator and the ``seconds`` that it took are filled in by api.
    """

    memory_mib: int | None = None
    upper_mib: int | None = None
    smact: float | None = None
    smact_low: float | None = None
    smact_high: float | None = None
    dram: float | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    version: str = ""
    seconds: float = 0.0


class Estimator(Protocol):
    """One way to estimate.

    An estimator that also answers for families that the rows do not tell has ``any_family`` = True.
    One that runs a network, and so needs the extra ``networks``, has ``runs_network`` = True.
    """

    name: str
    version: str

    def estimate(self, summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
        """Pure and bounded in time. ``options.batch_size`` is never None here.

        ``stack``: what a process takes beside its tensors on that type of GPU, and how its
        allocator is set. Raises SummaryError where a figure leaves 63 bits, or the step does not
        fit in the memory that the process sees.
        """
