# SPDX-License-Identifier: Apache-2.0
"""Texts of transformers' architectures against their recordings: synthetic labels, nothing here is
measured on a card.

Each architecture is made twice in sizes drawn at random, printed with print(model) and with
torchinfo (whole, and at its default depth), and recorded; text and recording are then estimated
alike. Needs torch, torchinfo and transformers.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from estimator.evaluate.drawn import DRAWS, KEPT_BACK, MODELS, Settings, Spelling, as_it_is, draw
from estimator.evaluate.recorded import prepared
from estimator.evaluate.texts import KINDS
from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack

SAMPLES, TOKENS, BATCH = 2, 128, 32  #: printed and recorded with, and estimated for
PRINTED, RECORDED = "plain", "recorded"
PLAIN = (PRINTED, *KINDS)  #: ends of the texts that a user has


class Judged(NamedTuple):
    """An architecture's draw: MiB by its recording, and by each of its texts (None: no figure)."""

    name: str
    recorded: int
    texts: dict[str, tuple[int, int] | None]


def make(cache: Path) -> None:
    """Files NAME-DRAW.KIND; those that are there stay. What cannot be made is named on stderr."""
    missing = [
        (f"{name}-{number}", name, config, {**spelling(draw(name, number)), **told})
        for name, config, spelling, told in (*MODELS, *KEPT_BACK)
        for number in range(1 if spelling is as_it_is else DRAWS)
        if not all((cache / f"{name}-{number}.{end}").exists() for end in (RECORDED, *PLAIN))
    ]
    if not missing:
        return
    if "transformers" not in sys.modules:
        prepared()
    cache.mkdir(parents=True, exist_ok=True)
    for stem, name, config, settings in missing:
        try:
            for end, text in _texts(name, config, settings).items():
                (cache / f"{stem}.{end}").write_text(text, encoding="utf-8")
        except Exception as why:  # many architectures; one that fails must not stop the rest
            print(f"{stem}: {type(why).__name__}: {str(why)[:160]}", file=sys.stderr)


def _texts(name: str, config: str, settings: Settings) -> dict[str, str]:
    import torch
    import torchinfo
    import transformers

    from slurm_coloc.summarize.jobs import Wish
    from slurm_coloc.summarize.making import made
    from slurm_coloc.summarize.target import job_of

    torch.set_num_threads(1)
    wish = Wish(batch_size=SAMPLES, seq_len=TOKENS)

    def maker() -> Any:
        return getattr(transformers, name)(getattr(transformers, config)(**settings))

    found = {RECORDED: made(lambda: job_of(maker(), wish, name), wish).text}
    model = maker().train()
    total = sum(p.numel() for p in model.parameters())
    found[PRINTED] = f"{model}\nTotal params: {total:,}\nTrainable params: {total:,}\n"
    batch = job_of(model, wish, name).inputs(SAMPLES)
    for kind, how in KINDS.items():
        text = torchinfo.summary(model, input_data=batch, mode="train", verbose=0, **how)
        found[kind] = f"{text}\n"
    return found


def judged(
    models: Sequence[tuple[str, str, Spelling, Settings]], cache: Path, optimizer: str
) -> list[Judged]:
    """All draws that are in the cache, without a context. print(model) needs words as input."""
    found = []
    for name, _, spelling, _ in models:
        for number in range(DRAWS):
            path = cache / f"{name}-{number}.{RECORDED}"
            if not path.exists():
                continue
            words = "vocab_size" in spelling(draw(name, number))
            options = TrainingOptions(BATCH, TOKENS if words else None, optimizer)
            summary = parse_summary(path.read_text(encoding="utf-8"))
            answer = estimate(summary, options, stack=Stack(0), estimator="traced")
            if answer.memory_mib is None:
                print(f"{name}-{number}: {answer.reason}", file=sys.stderr)
                continue
            texts = {
                end: asked(cache / f"{name}-{number}.{end}", options)
                for end in PLAIN
                if words or end != PRINTED
            }
            found.append(Judged(f"{name}-{number}", answer.memory_mib, texts))
    return found


def asked(path: Path, options: TrainingOptions) -> tuple[int, int] | None:
    """MiB and bound by the text of a file, without a context; None where it gives no figure."""
    if not path.exists():
        return None
    try:
        summary = parse_summary(path.read_text(encoding="utf-8"))
    except SummaryError:
        return None
    answer = estimate(summary, options, stack=Stack(0), estimator="text")
    if answer.memory_mib is None or answer.upper_mib is None:
        return None
    return answer.memory_mib, answer.upper_mib


def table(cases: list[Judged]) -> str:
    """A line for each kind of text: how far it is from the recording."""
    lines = [
        "| text | answered | median | within 5 % | 10 % | 20 % | recording above the bound |",
        "|---|---|---|---|---|---|---|",
    ]
    for end in PLAIN:
        asked = [case for case in cases if end in case.texts]
        told = [(case.recorded, found) for case in asked if (found := case.texts[end])]
        errors = sorted(abs(found[0] / recorded - 1) for recorded, found in told)
        if not errors:
            continue
        near = " | ".join(
            f"{100 * sum(e < limit for e in errors) / len(errors):.0f} %"
            for limit in (0.05, 0.1, 0.2)
        )
        above = sum(found[1] < recorded for recorded, found in told)
        lines.append(
            f"| {end} | {len(told)} of {len(asked)} | {100 * errors[len(errors) // 2]:.1f} % |"
            f" {near} | {above} |"
        )
    return "\n".join(lines)


def each(cases: list[Judged]) -> str:
    """A line a draw."""
    lines = []
    for case in cases:
        off = []
        for end, found in case.texts.items():
            if found is None:
                off.append(f"{end} no figure")
                continue
            below = " ABOVE THE BOUND" if found[1] < case.recorded else ""
            off.append(f"{end} {100 * (found[0] / case.recorded - 1):+.1f} %{below}")
        lines.append(f"{case.name:40} {case.recorded:6} MiB  {', '.join(off)}")
    return "\n".join(lines)
