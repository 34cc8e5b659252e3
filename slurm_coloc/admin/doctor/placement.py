# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: how shared jobs are placed, and whether the cluster can be steered."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurm_coloc.adapters import probe
from slurm_coloc.adapters.slurm import connect
from slurm_coloc.admin.doctor import sharing
from slurm_coloc.admin.rules import placement as steerchecks
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.admin.rules.slurm_conf import Conf, value
from slurm_coloc.config import Config
from slurm_coloc.core.place.gate_wait import Way, way_of
from slurm_coloc.core.place.node_gate import present
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.gres import count_of
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.errors import ColocError, SlurmError
from slurm_coloc.flow.client.request import call
from slurm_coloc.policies import registry

WEEK_S = 7 * 86400.0
ANSWER_S = 3.0
_STEERED = re.compile(r"\bsteered\s*=\s*[\"']([\w.,\s-]*)[\"']")
_DETECT = re.compile(r"^\s*AutoDetect\s*=\s*(\w+)", re.IGNORECASE | re.MULTILINE)


def checks(
    config: Config, conf: Conf, shape: ClusterShape, limits: SiteLimits | str
) -> Iterator[Finding]:
    """The checks. ``conf``: `scontrol show config`; ``limits``: or why they are not known."""
    place = config.placement
    if place.policy not in registry():
        names = ", ".join(sorted(registry()))
        text = f"placement.policy = {place.policy!r}"
        yield Finding("placement-policy", Status.FAIL, text, f"choose one of {names}")
    yield from sharing.checks(config, shape, limits)
    if place.mode == "native":
        yield steerchecks.native(conf, shape.release, place.idle_first, _whole(config, shape))
        yield from steerchecks.native_gate(conf, node_gate=place.node_gate, gate=place.smact_gate)
        if place.node_gate:
            yield _figures(config)
        return
    folder = Path(value(conf, "SLURM_CONF")).parent
    wanted = {
        node.name
        for node in shape.nodes
        if node.shards
        and (
            any(one in node.features or in_nodes(one, node.name) for one in place.nodes)
            if place.nodes
            else node.devices
        )
    }
    source = probe.text_of(folder / "job_submit.lua") or ""
    hook = [name.strip() for text in _STEERED.findall(source) for name in text.split(",")]
    detect = _DETECT.search(probe.text_of(folder / "gres.conf") or "")
    found = list(steerchecks.steered(shape, limits, wanted, hook, detect[1] if detect else ""))
    yield from found
    if found[0].status is not Status.FAIL:
        yield steerchecks.gate(shape, place.smact_gate)
        if way_of(shape) is Way.EXTRA:
            yield _figures(config)
        yield _steps(config, shape)


def _whole(config: Config, shape: ClusterShape) -> int | None:
    """Jobs that have or want whole GPUs where shares are; None where the queue is not known."""
    parts = {name for node in shape.nodes if node.shards for name in node.partitions}
    try:
        queue = asyncio.run(connect(config.daemon, briefly=True).queue())
    except SlurmError:
        return None
    return sum(
        any(
            count_of(tres, "gpu")
            for tres in (job.tres_per_node, job.tres_per_task, job.tres_per_job)
        )
        and not parts.isdisjoint(job.partition.split(","))
        for job in queue
    )


def _figures(config: Config) -> Finding:
    """Whether colocd keeps the nodes' figures up to date: when it stops, the last ones stay."""
    try:
        uses = asyncio.run(connect(config.daemon, briefly=True).usage())
    except SlurmError as err:
        return Finding("node-gate-figures", Status.NA, f"nodes are not known: {err.message}")
    figures = {use.name: pct for use in uses if (pct := present(use.extra)) is not None}
    try:
        call(config, "ping", {}, ANSWER_S)
    except ColocError as err:
        return steerchecks.figures(figures, err.message)
    return steerchecks.figures(figures)


def _steps(config: Config, shape: ClusterShape) -> Finding:
    try:
        lines = asyncio.run(connect(config.daemon, briefly=True).steps(time.time() - WEEK_S))
    except SlurmError as err:
        return Finding("placement-steps", Status.NA, f"steps are not known: {err.message}")
    return steerchecks.inner_steps(_typed(lines, shape.steerable))


def _typed(lines: Mapping[str, str], models: frozenset[str]) -> Mapping[str, int]:
    """Commands of steps that name one of the models, and how often."""
    names = "|".join(map(re.escape, sorted(models)))
    asks = re.compile(rf"(?:gpu[:/=]|--gpus[\w-]*[= ]|-G ?)(?:{names})\b")
    return Counter(line for line in lines.values() if asks.search(line))
