# SPDX-License-Identifier: Apache-2.0
"""The answer of `coloc estimate` as a JSON object (schema 1), from a text and its options."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurm_coloc.errors import ColocError
from slurm_coloc.estimate.api import AUTO, Estimate, TrainingOptions, estimate, estimate_all
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary

SCHEMA = 1
FIGURES = ("name", "version", "memory_mib", "upper_mib")
ACTIVITY = ("smact", "smact_low", "smact_high", "dram")


@dataclass(frozen=True, slots=True)
class Site:
    """What the configuration and the GPU type say; MiB, and shards that one GPU offers."""

    estimator: str
    stack: Stack
    shard_mib: int
    gpu: str
    shards_per_gpu: int
    notes: tuple[str, ...] = ()
    compute_budget: float | None = None  # with pool.size_by_smact
    max_jobs_per_gpu: int | None = None  # None: a share may be as small as one shard
    card_mib: int | None = None  # what a process sees of the GPU, where the user named its type


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that is shown, for people and as JSON."""

    summary: Summary
    estimates: tuple[Estimate, ...]
    chosen: Estimate
    shards: int | None
    reason: str

    def as_json(self) -> dict[str, Any]:
        """The object of schema 1. Where a whole GPU is the answer ``shards`` is null."""
        return {
            "schema": SCHEMA,
            "summary": {
                "format": self.summary.format,
                "family": self.summary.family,
                "parameters": self.summary.parameters,
                "activations": self.summary.activations,
                "layers": len(self.summary.layers),
            },
            "estimates": [
                {**{key: getattr(item, key) for key in FIGURES}, "seconds": round(item.seconds, 6)}
                for item in self.estimates
            ],
            "chosen": {
                "name": self.chosen.name,
                "memory_mib": self.chosen.memory_mib,
                "upper_mib": self.chosen.upper_mib,
                **{key: getattr(self.chosen, key) for key in ACTIVITY},
                "shards": self.shards,
                "reason": self.reason,
            }
            | ({"parts": dict(self.chosen.parts)} if self.chosen.parts else {}),
        }


def error_json(err: ColocError) -> dict[str, Any]:
    """The object of schema 1 for a request that failed."""
    return {"schema": SCHEMA, "error": {"code": err.code, "message": err.message}}


def answer(text: str, options: TrainingOptions, site: Site, names: Sequence[str]) -> Answer:
    """Parse, estimate with ``names`` and choose. Raises SummaryError and UsageFault.

    The site's estimator is chosen when it is among ``names``, else the first of them; AUTO chooses
    the recording where it gives a figure, else the text.
    """
    summary = parse_summary(text)
    estimates = [
        _on_card(one, summary, options, site) if site.card_mib else one
        for one in estimate_all(summary, options, stack=site.stack, names=names)
    ]
    chosen = _chosen(estimates, site.estimator)
    shards, reason = _shards(chosen, site)
    notes = "; ".join((*chosen.notes, *site.notes))
    return Answer(
        summary=summary,
        estimates=tuple(estimates),
        chosen=chosen,
        shards=shards,
        reason=f"{reason}; {notes}" if notes else reason,
    )


def _on_card(made: Estimate, summary: Summary, options: TrainingOptions, site: Site) -> Estimate:
    """``made`` as the card's memory bounds it, where it is near that: the allocator then gives back
    what it keeps. Where it does not fit at all the figure stays, with a note."""
    if made.memory_mib is None or site.card_mib is None or made.memory_mib <= site.card_mib:
        return made
    stack = replace(site.stack, visible_mib=site.card_mib)
    bounded = estimate(summary, options, stack=stack, estimator=made.name)
    if bounded.memory_mib is not None:
        return bounded
    note = f"does not fit in the {site.card_mib} MiB of one {site.gpu}"
    return replace(made, notes=(*made.notes, note))


def _chosen(estimates: Sequence[Estimate], wanted: str) -> Estimate:
    """The site's own among the estimates."""
    by_name = {item.name: item for item in estimates}
    order = ("traced", "text") if wanted == AUTO else (wanted,)
    found = [by_name[name] for name in order if name in by_name]
    with_figure = [item for item in found if item.memory_mib is not None]
    return [*with_figure, *reversed(found), *estimates][0]


def _shards(chosen: Estimate, site: Site) -> tuple[int | None, str]:
    """Shards to reserve, or None and why the job needs a whole GPU."""
    if chosen.memory_mib is None or chosen.upper_mib is None:
        return None, f"whole GPU: {chosen.reason}"
    shards, why = max(1, math.ceil(chosen.upper_mib / site.shard_mib)), ""
    if site.compute_budget and chosen.smact is not None:
        active = math.ceil(chosen.smact / site.compute_budget * site.shards_per_gpu)
        shards = max(shards, min(active, site.shards_per_gpu - 1))
    jobs = site.max_jobs_per_gpu
    if jobs and shards < (least := math.ceil(site.shards_per_gpu / jobs)):
        shards, why = least, f", the least: {jobs} jobs a GPU at most"
    if shards > site.shards_per_gpu:
        return None, (
            f"whole GPU: up to {chosen.upper_mib} MiB, more than the"
            f" {site.shards_per_gpu * site.shard_mib} MiB of one {site.gpu} that can be shared"
        )
    return shards, f"{shards} of {site.shards_per_gpu} shards of one {site.gpu}{why}"
