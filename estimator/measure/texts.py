# SPDX-License-Identifier: Apache-2.0
"""The summaries of planned models: what a user has, and what `coloc summarize` writes.

Made without a GPU. Needs torch, torchinfo, timm and transformers.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from estimator.evaluate.recorded import prepared
from estimator.evaluate.texts import BATCH, KINDS, real_linspace
from estimator.measure.plan import Run


def plain_path(folder: Path, run: Run) -> Path:
    """A table, or print(model) of a language model."""
    return folder / f"{run.kind}-{run.model}.plain"


def recorded_path(folder: Path, run: Run) -> Path:
    """A recording is of one precision."""
    return folder / f"{run.kind}-{run.model}.{run.precision}"


def make(
    runs: Sequence[Run],
    folder: Path,
    until: float | None = None,
    *,
    tell: Callable[[str], None] = print,
) -> None:
    """Both texts of each run; those that are there stay, and what cannot be made is named on stderr
    and left out. Ends when the clock (time.monotonic) shows ``until``, and says what is not made
    yet: else a run without its recording looks like one that cannot be recorded."""
    if "timm" not in sys.modules:
        prepared()
    folder.mkdir(parents=True, exist_ok=True)
    for place, run in enumerate(runs):
        both = ((plain_path(folder, run), _plain), (recorded_path(folder, run), _recorded))
        missing = [(path, write) for path, write in both if not path.exists()]
        if missing and until is not None and time.monotonic() >= until:
            left = sum(not recorded_path(folder, one).exists() for one in runs[place:])
            tell(
                f"out of time: {left} of {len(runs)} runs have no recording yet; the next call"
                " goes on from here"
            )
            return
        for path, write in missing:
            try:
                path.write_text(write(run), encoding="utf-8")
            except Exception as why:  # a model's own code, on tensors without values
                reason = f"{type(why).__name__}: {str(why)[:100]}"
                print(f"{path.name}: left out: {reason}", file=sys.stderr)
                if write is _plain:
                    break


def _plain(run: Run) -> str:
    import torch
    import torchinfo

    from estimator.measure.models import job

    with real_linspace(), torch.device("meta"):
        model = job(run).model.train()
    if run.kind == "words":
        total = sum(p.numel() for p in model.parameters())
        return f"{model}\n{'=' * 71}\nTotal params: {total:,}\nTrainable params: {total:,}\n"
    size = (3, 224, 224) if run.kind == "timm" else (int(run.model.partition("-")[0]),)
    if run.kind == "timm":
        size = tuple(model.default_cfg["input_size"])  # type: ignore[arg-type]
    how = {"mode": "train", "device": "meta", "verbose": 0, **KINDS["full"]}
    return f"{torchinfo.summary(model, input_size=(BATCH, *size), **how)}\n"


def _recorded(run: Run) -> str:
    from estimator.measure.models import job, tokens
    from slurm_coloc.summarize.jobs import Wish
    from slurm_coloc.summarize.making import made

    batch = 2 if run.kind == "words" else BATCH
    wish = Wish(batch_size=batch, seq_len=tokens(run), precision=run.precision)
    return made(lambda: job(run), wish).text
