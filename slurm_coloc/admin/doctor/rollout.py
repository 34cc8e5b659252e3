# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor --rollout``: may slurmctld read this slurm.conf now, and what is the next step?

It asks slurmctld, asks colocd of this host for what the agents say of their nodes, and reads the
file that slurmctld would read next. It changes nothing.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import probe
from slurm_coloc.adapters.slurm import connect
from slurm_coloc.admin.doctor.colocd import Answer, read_status
from slurm_coloc.admin.rules import rollout, shard_checks, slurm_conf
from slurm_coloc.admin.rules.conf_file import parse_conf
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.admin.rules.rollout import NodeSays, Site
from slurm_coloc.config import Config, ModeRule
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.gres import count_of
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import ColocError, SlurmError, UsageFault

SETUP = ("gres", "conf_s", "slurmd_s", "stack_s", "plugin", "plugstack", "hooks", "why")


def examine(config: Config, path: Path | None) -> Iterator[Finding]:
    """All checks. ``path``: the slurm.conf that is to be used; None: slurmctld's own as it lies
    there now. Raises UsageFault where it cannot be read, SlurmError without slurmctld."""
    conf, shape, views = asyncio.run(_read(config))
    place = Path(slurm_conf.value(conf, "SLURM_CONF") or "/etc/slurm/slurm.conf")
    lines = probe.plugstack(path or place)
    if not lines:
        raise UsageFault(f"{path or place}: no slurm.conf that can be read; give --slurm-conf FILE")
    yield Finding("rollout-conf", Status.OK, str(path or place))
    status = read_status(config)
    if isinstance(status, ColocError) or "links" not in status:
        yield _silent(status)
    found = parse_conf(lines)
    site = _site(conf, shape, views, place.parent / "job_submit.lua", status)
    on_for = tuple(_rule(one) for one in config.mode.rules if one.mode == "on")
    site = replace(site, on_for=on_for)
    yield from rollout.checks(found, site)
    yield shard_checks.shard_types(conf, lines)
    yield rollout.next_step(found, site)


async def _read(config: Config) -> tuple[dict[str, str], ClusterShape, list[JobView]]:
    slurm = connect(config.daemon, briefly=True)
    return await slurm.config(), await slurm.shape(), await slurm.all_jobs()


def _silent(status: Answer) -> Finding:
    if isinstance(status, ColocError):
        todo = "systemctl start slurm-coloc on slurmctld's host: agents tell it what nodes have"
        return Finding("rollout-colocd", Status.WARN, status.message, todo)
    text = "colocd tells what nodes have to root and SlurmUser only"
    return Finding("rollout-colocd", Status.WARN, text, "run this as root")


def _site(
    conf: dict[str, str], shape: ClusterShape, views: list[JobView], script: Path, status: Answer
) -> Site:
    told = {} if isinstance(status, ColocError) else status
    links = {row["node"]: row for row in told.get("links", ())}
    shares = [view.handle for view in views if not view.ended and count_of(view.tres, "shard")]
    return Site(
        release=f"{shape.release[0]}.{shape.release[1]:02}",
        nodes=tuple(node_says(node, links.get(node.name)) for node in shape.nodes),
        shares=shares,
        script=probe.text_of(script),
        broken=probe.lua_broken(script),
        types_in_force=frozenset(slurm_conf.words(conf, "GresTypes")),
        submit_in_force="lua" in slurm_conf.words(conf, "JobSubmitPlugins"),
        mode=str(told.get("mode", "")),
    )


def _rule(rule: ModeRule) -> str:
    """A rule's fields, for people."""
    parts = [f"{name} {value}" for name in ("partition", "account", "user")
             if (value := getattr(rule, name))]  # fmt: skip
    return ", ".join(parts) or "all"


def node_says(shape: NodeShape, link: dict[str, Any] | None) -> NodeSays:
    """A node, and what its agent tells; ``link``: of colocd's status, None for none."""
    setup = (link or {}).get("setup")
    linked = bool(link and link["linked"])
    if not isinstance(setup, dict):
        return NodeSays(shape, linked)
    return NodeSays(shape, linked, told=True, **{name: setup[name] for name in SETUP})


def without_slurm(err: SlurmError) -> Finding:
    """Slurm's answer is missing: nothing can be compared."""
    return Finding("slurm", Status.FAIL, err.message, "start slurmctld; check munged and the PATH")
