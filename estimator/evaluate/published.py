# SPDX-License-Identifier: Apache-2.0
"""Which models are not those that were measured, though they have their names.

timm changes models and keeps their names, and the table of measured runs does not say which timm
made them. But beside each run it has the figure that fake tensors gave when it was published, with
no GPU. Its growth from the smallest batch to the largest is what the model keeps of a sample; the
same, played on a recording of the installed model (estimators/faketensor), is within LIMIT of it
where the model is the one that was measured. No estimate and no measured memory has a say in this.

With timm 1.0.9 the growth is 0.937 to 1.007 of the published for 365 models; beyond LIMIT are the
four PoolFormerV2 alone (0.937 to 0.951), whose measured runs fit all the same: they are refused,
too, for the rule is one for all. With 1.0.31 Hiera (0.90 to 0.96), TNT and `vit_*_xp` (1.05) and
`ese_vovnet57b` (1.30: images of 256 pixels) are others.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from estimator.evaluate.runs import Judged
from slurm_coloc.errors import ColocError
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary

#: of the published growth, either way
LIMIT = 0.04
#: in a folder of texts: the release of timm that its models are of
VERSION = "timm.txt"
UNKNOWN = "an unknown timm"

#: (batch, MiB) of the published figures
Figures = Sequence[tuple[int, float]]


def stamp(folder: Path) -> None:
    """Note the installed timm in ``folder``. Raises SystemExit where it holds another's models."""
    import timm

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / VERSION
    if not any(folder.iterdir()):
        path.write_text(f"{timm.__version__}\n", encoding="utf-8")
    held = version(folder)
    if held != f"timm {timm.__version__}":
        raise SystemExit(
            f"{folder} holds models of {held}, installed is timm {timm.__version__}: another"
            " folder, please"
        )


def version(folder: Path) -> str:
    """The timm that made the models of ``folder``."""
    path = folder / VERSION
    return f"timm {path.read_text(encoding='utf-8').strip()}" if path.exists() else UNKNOWN


def growth(text: str, published: Figures) -> float | None:
    """The installed model's growth over the published one; of a recording of one batch size the
    figure there over the published. None where either is not known."""
    summary = parse_summary(text)
    ends = sorted(published)
    low, high = _figure(summary, ends[0][0]), _figure(summary, ends[-1][0])
    if low is not None and high is not None and ends[-1][1] > ends[0][1]:
        return (high - low) / (ends[-1][1] - ends[0][1])
    for batch, mib in ends:
        own = _figure(summary, batch)
        if own is not None and mib > 0:
            return own / mib
    return None


def _figure(summary: Summary, batch: int) -> int | None:
    options = TrainingOptions(batch_size=batch, optimizer="sgd")
    try:
        return estimate(summary, options, stack=Stack(0), estimator="faketensor").memory_mib
    except ColocError:
        return None


def others(recordings: Mapping[str, str], published: Mapping[str, Figures]) -> dict[str, float]:
    """By name the growth of each model that is not the measured one."""
    found: dict[str, float] = {}
    for model, text in recordings.items():
        ratio = growth(text, published[model]) if published.get(model) else None
        if ratio is not None and abs(ratio - 1) > LIMIT:
            found[model] = ratio
    return found


def told(judged: Iterable[Judged], apart: Mapping[str, float]) -> str:
    """A line that names the models that are refused."""
    runs = sum(one.model in apart for one in judged)
    if not apart:
        return "no model is another one under the same name"
    names = ", ".join(f"{name} {100 * (x - 1):+.1f} %" for name, x in sorted(apart.items()))
    return (
        f"another model under the same name, by the fake tensors' figures that were published:"
        f" {len(apart)} models, {runs} runs refused: {names}"
    )
