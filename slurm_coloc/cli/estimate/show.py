# SPDX-License-Identifier: Apache-2.0
"""The answer of ``coloc estimate`` for people."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slurm_coloc.cli import render
from slurm_coloc.cli.estimate.request import DEFAULT_GPU, Request, Setting, options_of
from slurm_coloc.estimate.answer import Answer
from slurm_coloc.estimate.api import settled
from slurm_coloc.estimate.fit import Fitted
from slurm_coloc.estimate.replay.parts import Part

BAR = 76  # characters: 80 columns hold it
#: a part's letter in the bar, and its colour where the terminal has any
LOOKS = {
    Part.CONTEXT: ("c", "white"),
    Part.WEIGHTS: ("W", "blue"),
    Part.KEPT: ("k", "cyan"),
    Part.STATES: ("S", "magenta"),
    Part.GRADIENTS: ("G", "yellow"),
    Part.ACTIVATIONS: ("A", "green"),
    Part.STEP: ("s", "bright_magenta"),
    Part.WORKSPACE: ("w", "bright_blue"),
    Part.REST: ("r", "bright_black"),
}


def show(setting: Setting, found: Answer, given: Request) -> None:
    """Tables for people on stdout, the talk on stderr."""
    options = settled(found.summary, options_of(setting.config, given))
    out, talk = Console(), Console(stderr=True)
    model = found.summary
    out.print(
        f"{model.format}: {model.family}, {model.parameters:,} parameters,"
        f" {len(model.layers)} rows",
        highlight=False,
    )
    table = Table("estimator", "memory MiB", "upper MiB", "ms")
    for item in found.estimates:
        cells = [f"{x:,}" if x is not None else "-" for x in (item.memory_mib, item.upper_mib)]
        mark = " (chosen)" if item is found.chosen and len(found.estimates) > 1 else ""
        table.add_row(f"{item.name} {item.version}{mark}", *cells, f"{item.seconds * 1e3:.1f}")
    out.print(table)
    if found.chosen.parts:
        out.print("MiB of the estimate, where its tensors hold most:")
        for line in _bar(found.chosen.parts):
            out.print(line)
    batch = given.batch_size
    known = model.recording
    recorded = {"optimizer": known and known.optimizer, "precision": known}
    source = {name: " (recorded)" if recorded[name] else " (default)" for name in recorded}
    assumed = [
        f"batch size {batch}" if batch else f"batch size {model.batch_in_text or '?'} (summary)",
        f"optimizer {options.optimizer}" + ("" if given.optimizer else source["optimizer"]),
        f"precision {options.precision}" + ("" if given.precision else source["precision"]),
        _gpu(setting, given),
    ]
    if given.seq_len:
        assumed.append(f"sequence length {options.seq_len}")
    out.print("assumed: " + ", ".join(assumed), highlight=False, soft_wrap=True)
    out.print(_activity(found), highlight=False, soft_wrap=True)
    # Notes have lines of their own. Reasons name the options of sbatch; here they are shorter.
    noted = "; ".join(("", *found.chosen.notes))
    reason = found.reason.replace(noted, "", 1).replace("--coloc-", "--")
    out.print(f"reservation: {reason}", highlight=False, markup=False, soft_wrap=True)
    for note in dict.fromkeys(note for item in found.estimates for note in item.notes):
        talk.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)


def _activity(found: Answer) -> str:
    """How busy the training alone keeps the GPU."""
    one = found.chosen
    if one.smact is None:
        return "activity: not predicted"
    return (
        f"activity alone: SM {one.smact:.2f} ({one.smact_low:.2f} to {one.smact_high:.2f}),"
        f" DRAM {one.dram:.2f}"
    )


def _gpu(setting: Setting, given: Request) -> str:
    """The GPU type, and where its figures are from."""
    name = given.gpu or DEFAULT_GPU
    calibrated = setting.stacks.calibration(name)
    stack = setting.stacks.of(name)
    context = f"context {stack.context_mib} MiB"
    source = f"calibrated {calibrated.measured}".strip() if calibrated else "not calibrated"
    if stack.spare_mib:
        source = f"typical; {stack.context_mib + stack.spare_mib} in the bound"
    return f"GPU {name}{'' if given.gpu else ' (default)'}, {context} ({source})"


def _bar(parts: Mapping[str, int]) -> Iterator[Text]:
    """One bar of ``parts`` (MiB), each as wide as it is large, then what its letters are."""
    total = sum(parts.values())
    bar, done = Text(), 0
    legend = [Text()]
    for name, mib in parts.items():
        letter, style = LOOKS[Part(name)]
        done += mib
        # Rounded at its end, so that all of them are as long as the bar.
        bar.append(letter * (done * BAR // total - len(bar)), style=style)
        item = f"{letter} {name} {mib:,}"
        if len(legend[-1]) + len(item) > BAR:
            legend.append(Text())
        legend[-1].append(f"{'  ' if legend[-1] else ''}{item}", style=style)
    yield bar
    yield from legend


def show_fit(found: Sequence[Fitted], batch: int | None) -> None:
    """Which GPUs it fits."""
    columns = ("GPU", "MiB>", f"batch {batch or '?'}", "largest batch>")
    rows = [
        (one.device.name, f"{one.device.mib:,}", str(one.fits), one.largest or None)
        for one in found
    ]
    render.show(render.table("", columns, rows))
    render.show(
        Text("yes: its bound fits. perhaps: the estimate does. largest batch: whose bound fits.")
    )


def show_sweep(rows: Iterable[tuple[int, Answer]]) -> None:
    """One line for each batch size."""
    cells = []
    for batch, found in rows:
        one = found.chosen
        known = one.memory_mib is not None
        mib = [f"{x:,}" if x is not None else None for x in (one.memory_mib, one.upper_mib)]
        cells.append((batch, *mib, found.reason.split(";")[0] if known else found.reason))
    render.show(render.table("", ("batch>", "memory MiB>", "upper MiB>", "reservation"), cells))
