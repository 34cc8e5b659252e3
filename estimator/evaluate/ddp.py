# SPDX-License-Identifier: Apache-2.0
"""What DistributedDataParallel allocates beside the training that it wraps, on the CPU.

    python -m estimator.evaluate ddp

A few trainings are played for three steps alone and as one of two processes (gloo). PyTorch's
profiler tells each allocation, those of DDP's C++ too; their largest sum with DDP less that without
is compared with the buckets that the estimate adds (estimate/replay/parallel). Needs torch, timm
and transformers; nothing is measured on a card, and NCCL's own buffers are not in it.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_coloc.estimate.replay.parallel import buckets

PROCESSES = 2
#: the third step is like all that follow: DDP orders its buckets anew after the first
STEPS = 3
SEQUENCE = 128
#: names and batch sizes; the larger ones have their peak in the backward, not in the optimizer
VISION = (("resnet50", 2), ("resnet50", 8), ("vgg16", 1), ("mobilenetv3_small_100", 16))
VISION += (("vit_small_patch16_224", 8), ("efficientnet_b0", 4))
LINEAR = "linear"  #: three layers, without a library
TEXT = (("bert", 1), ("bert", 8), ("gpt2", 2), ("xlnet", 2))


@dataclass(frozen=True, slots=True)
class Compared:
    """Bytes. ``alone``, ``wrapped``: the most that was allocated at a time, parameters less;
    ``expected``: the difference that the estimate takes."""

    name: str
    batch: int
    alone: int
    wrapped: int
    expected: int

    @property
    def off(self) -> float:
        """The error of the expected difference, as a part of all that is allocated."""
        return (self.expected - (self.wrapped - self.alone)) / self.wrapped


def compared() -> Iterator[Compared]:
    """One training after the other; each takes up to a minute."""
    for name, batch in (*VISION, *TEXT):
        yield compare(name, batch)


def compare(name: str, batch: int) -> Compared:
    """One training."""
    with tempfile.TemporaryDirectory() as folder:
        alone, sizes = _played(name, batch, 1, Path(folder))
        wrapped, _ = _played(name, batch, PROCESSES, Path(folder))
    return Compared(name, batch, alone, wrapped, sum(buckets(sizes)))


def _played(name: str, batch: int, count: int, folder: Path) -> tuple[int, list[int]]:
    """The peak of one of so many processes, and the sizes of its parameters (bytes)."""
    import torch

    torch.multiprocessing.spawn(_process, (name, batch, count, str(folder)), count)
    peak, *sizes = map(int, (folder / "told").read_text().split())
    return peak, sizes


def _process(rank: int, name: str, batch: int, count: int, folder: str) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if count > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        meet = f"file://{folder}/meet"
        distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=count)
    model, loss = _training(name, batch)
    found = _peak(lambda: _train(model, loss, wrapped=count > 1))
    if rank == 0:
        sizes = [one.numel() * one.element_size() for one in model.parameters()]
        (Path(folder) / "told").write_text(" ".join(map(str, (found, *sizes))))
    if count > 1:
        distributed.destroy_process_group()


def _training(name: str, batch: int) -> tuple[Any, Callable[[Any], Any]]:
    """A model, and its loss for one batch."""
    import torch

    if name == LINEAR:
        rows = torch.randn(batch, 1000)
        layers = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(3)))
        return layers, lambda model: model(rows).sum()
    if name in dict(VISION):
        import timm

        images = torch.randn(batch, 3, 224, 224)
        labels = torch.randint(0, 1000, (batch,))
        return timm.create_model(name), lambda model: torch.nn.functional.cross_entropy(
            model(images), labels
        )
    import transformers

    config, kind = {
        "bert": ("BertConfig", "BertForMaskedLM"),
        "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
        "xlnet": ("XLNetConfig", "XLNetLMHeadModel"),
    }[name]
    words = torch.randint(0, 1000, (batch, SEQUENCE))
    chosen = {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}
    made = getattr(transformers, config)(**(chosen if name == "xlnet" else {}))
    return getattr(transformers, kind)(made), lambda model: model(words, labels=words).loss


def _train(model: Any, loss: Callable[[Any], Any], *, wrapped: bool) -> None:
    import torch

    if wrapped:
        # XLNet has a parameter that no loss reaches
        around = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    else:
        around = model
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(around).backward()
        optimizer.step()


def _peak(run: Callable[[], None]) -> int:
    """The most bytes that were allocated at a time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [one for one in profiler.profiler.kineto_results.events() if one.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


HEAD = (
    "| training | batch | alone | as one of two | more | expected | error |\n"
    "|---|---|---|---|---|---|---|"
)


def line(one: Compared) -> str:
    """A line of the table."""
    figures = (one.alone, one.wrapped, one.wrapped - one.alone, one.expected)
    sizes = " | ".join(f"{size / 2**20:.1f} MiB" for size in figures)
    return f"| {one.name} | {one.batch} | {sizes} | {one.off:+.2%} |"
