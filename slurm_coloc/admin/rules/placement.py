# SPDX-License-Identifier: Apache-2.0
"""Checks of `coloc doctor` for placement, native and steered, pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.admin.rules.slurm_conf import Conf, words
from slurm_coloc.core.place.gate_wait import Way, way_of
from slurm_coloc.core.place.node_gate import PARAMETER
from slurm_coloc.core.place.steerable import refusals
from slurm_coloc.core.place.steering import IdleFirst
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeWeight
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.core.slurm.releases import LEAST_LOADED, Release, shown

SHOWN = 4


def native(conf: Conf, release: Release, idle_first: IdleFirst, whole: int | None) -> Finding:
    """What Slurm itself does with shares, beside placement.idle_first. ``whole``: jobs that have or
    want whole GPUs of the nodes that share, None where that is not known; with "auto" idle GPUs
    come first while there are none, as in steered placement."""
    name, line = "placement", "slurm.conf: SelectTypeParameters=...,LL_SHARED_GRES"
    least = "ll_shared_gres" in words(conf, "SelectTypeParameters")
    text = "native, first fit: one GPU fills before the next"
    if least:
        text = "native, LL_SHARED_GRES: the GPU with the largest free part"
    if idle_first is True and not least:
        if not LEAST_LOADED.holds(release):
            line = f"Slurm {shown(LEAST_LOADED.first)} and later; or placement.idle_first = false"
        return Finding(name, Status.WARN, f"{text}, but placement.idle_first is true", line)
    if idle_first is False and least:
        todo = "slurm.conf: SelectTypeParameters without LL_SHARED_GRES"
        return Finding(name, Status.WARN, f"{text}, but placement.idle_first is false", todo)
    if idle_first == "auto" and not least and whole == 0 and LEAST_LOADED.holds(release):
        text += " while others are idle, and no job here wants whole GPUs (placement.idle_first)"
        return Finding(name, Status.WARN, text, f"{line}; or placement.idle_first = false")
    if idle_first == "auto" and least and whole:
        text += f"; {whole} jobs want whole GPUs, and shares take idle ones first"
    return Finding(name, Status.OK, text)


def cpu_jobs(nodes: Iterable[NodeWeight]) -> Finding:
    """Whether Slurm keeps jobs without GPUs off the nodes that have some: where they take the CPUs
    no share starts."""
    by_part: dict[str, list[NodeWeight]] = {}
    for node in nodes:
        for part in node.partitions:
            by_part.setdefault(part, []).append(node)
    wrong = []
    for part, there in sorted(by_part.items()):
        plain = [node.weight for node in there if not node.gpus]
        if plain and any(node.gpus and node.weight <= max(plain) for node in there):
            wrong.append(part)
    text = "no node with GPUs is filled before one without"
    if wrong:
        parts = ", ".join(wrong[:SHOWN])
        text = f"jobs without GPUs may fill nodes with GPUs while others are idle: {parts}"
    todo = "slurm.conf: NodeName=... Weight=N for nodes with GPUs, higher than that of the others"
    return judge("node-weight", not wrong, text, todo, Status.WARN)


def native_gate(conf: Conf, *, node_gate: bool, gate: float) -> Iterator[Finding]:
    """Whether Slurm keeps shared jobs off busy nodes."""
    if node_gate:
        good = PARAMETER in words(conf, "SchedulerParameters")
        text = f"placement.node_gate without {PARAMETER}: it does nothing"
        if good:
            text = f"nodes above {gate:.0%} SM activity take no shared job"
        todo = f"slurm.conf: SchedulerParameters=...,{PARAMETER} (23.11 and later)"
        yield judge("node-gate", good, text, todo)


def gate(shape: ClusterShape, smact_gate: float) -> Finding:
    """Whether jobs can wait at the gate on present SM activity (steered)."""
    name, way = "placement-gate", way_of(shape)
    if smact_gate >= 1:
        return Finding(name, Status.OK, "no gate is configured (placement.smact_gate = 1)")
    if way is Way.START:
        return Finding(
            name, Status.OK, "a job that waits for a quieter GPU gets a later start time"
        )
    if way is Way.EXTRA:
        text = "a job that waits for a quieter GPU gets a constraint and keeps its age priority"
        return Finding(name, Status.OK, text)
    return Finding(
        name,
        Status.WARN,
        "no gate: a later start time would cost jobs their age priority (PriorityWeightAge)",
        f"slurm.conf: SchedulerParameters=...,{PARAMETER}, which also makes every job's --extra a"
        " constraint; or PriorityFlags=ACCRUE_ALWAYS; or placement.smact_gate = 1",
    )


def figures(found: Mapping[str, int], away: str = "") -> Finding:
    """Whether the nodes' figures are kept fresh. ``away``: why colocd does not answer, "" where it
    does."""
    name = "node-gate-figures"
    old = sorted(node for node, pct in found.items() if pct)
    if not away or not old:
        return Finding(name, Status.OK, f"{len(found)} nodes have one")
    return Finding(
        name,
        Status.WARN,
        f"colocd does not update those of {', '.join(old[:SHOWN])}: {away}",
        "start colocd; without it each agent opens its node's gate after half a minute",
    )


def steered(
    shape: ClusterShape,
    limits: SiteLimits | str,
    wanted: Collection[str],
    hook: Sequence[str],
    detects: str,
) -> Iterator[Finding]:
    """Whether the cluster can be steered. ``wanted``: nodes that are to be steered; ``hook``: the
    models that job_submit.lua knows; ``detects``: gres.conf's AutoDetect, "" where not known."""
    known = limits if isinstance(limits, SiteLimits) else SiteLimits()
    found = refusals(shape, known)
    if detects.lower() in ("nvml", "rsmi", "nvidia"):
        found.append(
            f"gres.conf has AutoDetect={detects}, which takes the device's own name for its type"
        )
    bare = sorted(n.name for n in shape.nodes if n.name in wanted and not n.devices)
    if bare or not wanted:
        found.append(
            f"no gres type for each GPU on {', '.join(bare[:SHOWN]) or 'any node with shards'}"
        )
    if found:
        yield Finding(
            "placement",
            Status.FAIL,
            f"steered placement is configured, but not possible: {'; '.join(found[:SHOWN])}",
            'placement.mode = "native", or: gres.conf AutoDetect=off, NodeName=... Name=gpu'
            " Type=MODEL-0 File=/dev/nvidia0 and so on for each GPU, slurm.conf"
            " Gres=gpu:MODEL-0:1,gpu:MODEL-1:1,...,shard:N Feature=MODEL",
        )
        return
    yield Finding("placement", Status.OK, f"steered: {', '.join(sorted(wanted)[:8])}")
    yield _features(shape)
    yield _hook(shape, hook)


def _features(shape: ClusterShape) -> Finding:
    """A request by a model becomes a feature: all nodes of the model must have it."""
    models = shape.steerable
    without = sorted(
        f"{node.name}: {node.gpu_type}"
        for node in shape.nodes
        if node.gpu_type in models and node.gpu_type not in node.features
    )
    text = f"the model is not a feature of {', '.join(without[:SHOWN])}"
    return judge(
        "placement-features",
        not without,
        text if without else ", ".join(sorted(models)),
        "slurm.conf: NodeName=... Feature=MODEL; without it a request by the model waits for ever",
    )


def _hook(shape: ClusterShape, hook: Sequence[str]) -> Finding:
    models = sorted(shape.steerable)
    missing = [model for model in models if model not in hook]
    text = f"gpu:MODEL:N is rewritten for {models}"
    if missing:
        text = f"Slurm refuses requests by {', '.join(missing)} as they stand"
    todo = f'in job_submit.lua: coloc.setup{{ steered = "{",".join(models)}" }}'
    return judge("placement-hook", not missing, text, todo)


def inner_steps(asked: Mapping[str, int]) -> Finding:
    """Typed requests of srun inside jobs, which no hook of slurmctld sees. ``asked``: command and
    how often it was seen lately."""
    if not asked:
        return Finding("placement-steps", Status.OK, "no srun inside a job names a model of GPUs")
    ranked = sorted(asked, key=lambda line: -asked[line])
    told = "; ".join(line[:80] for line in ranked[:SHOWN])
    return Finding(
        "placement-steps",
        Status.WARN,
        f"{sum(asked.values())} steps of the last week name a model and would fail: {told}",
        "leave the type out there: a step inherits the GPUs of its job",
    )
