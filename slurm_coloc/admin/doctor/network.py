# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: can nodes and login nodes reach colocd, and do they?"""

import os
import time
from collections.abc import Iterator
from typing import Any

from slurm_coloc.adapters import slurmconf
from slurm_coloc.adapters.link.address import is_own, resolve
from slurm_coloc.adapters.link.munge import Munge, MungeError
from slurm_coloc.admin.doctor.colocd import ANSWER_S, Answer
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.hosts import address
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.client.request import call_network

SHOWN = 8  # names of nodes


def checks(config: Config, status: Answer, shape: ClusterShape | None) -> Iterator[Finding]:
    """The checks of [network]; one only where it is off."""
    told = None if isinstance(status, ColocError) else status
    used = bool(config.network.listen or config.network.controllers)
    yield _listen(config, told, _other_hosts(shape))
    if not used:
        return
    yield _munge(config)
    yield from _answers(config)
    if config.network.listen and told is not None:
        yield _links(told)


def found_colocd(config: Config) -> Config:
    """``config``, on a host that names no colocd with those by slurm.conf, as the agent has it."""
    named = config.network.controllers or slurmconf.controllers(os.environ)
    network = config.network.model_copy(update={"controllers": named})
    found = config.model_copy(update={"network": network})
    return found if colocd_on_another_host(found) else config


def colocd_on_another_host(config: Config) -> bool:
    """Whether this is a node or login node: no socket here, and no controller is this host."""
    if config.daemon.socket.exists() or not config.network.controllers:
        return False
    hosts = (address(text)[0] for text in config.network.controllers)
    return not any(is_own(one) for host in hosts for one in resolve(host))


def _other_hosts(shape: ClusterShape | None) -> list[str]:
    """GPU nodes that are other hosts than this one."""
    nodes = shape.nodes if shape else ()
    return [node.name for node in nodes if not any(map(is_own, resolve(node.address or node.name)))]


def _listen(config: Config, told: dict[str, Any] | None, others: list[str]) -> Finding:
    check, listen = "network-listen", config.network.listen
    if told is None:
        return Finding(check, Status.NA, "no colocd on this host")
    role = f", role {told.get('role')}"
    if listen:
        return Finding(check, Status.OK, f"colocd listens on {listen}{role}")
    if not others:
        return Finding(check, Status.OK, f"not needed: every GPU node is this host{role}")
    names = ", ".join(others[:SHOWN])
    return Finding(
        check,
        Status.WARN,
        f"colocd cannot be reached from other hosts: {names}",
        'coloc.toml: [network] listen = ":6824", and controllers = ["<this host>:6824"] there and'
        " on login nodes",
    )


def _munge(config: Config) -> Finding:
    """A credential for ourselves: made, opened, and refused the second time."""
    check = "munge"
    try:
        munge = Munge(config.network.munge_socket)
        made = munge.encode(b"doctor", os.geteuid(), ANSWER_S)
        munge.decode(made, ANSWER_S)
    except MungeError as err:
        todo = "start munged; network.munge_socket must be that of AuthInfo in slurm.conf"
        return Finding(check, Status.FAIL, err.message, todo)
    return Finding(check, Status.OK, "credentials are made and opened")


def _answers(config: Config) -> Iterator[Finding]:
    """Ask each controller over the network, as nodes and users do."""
    check = "network-answer"
    for target in config.network.controllers:
        begin = time.monotonic()
        try:
            told = call_network(config, target, "status", ANSWER_S)
        except ColocError as err:
            clock = "expired" in err.message or "future" in err.message
            todo = (
                "set the clocks of both hosts (chrony, ntp): MUNGE allows five minutes"
                if clock
                else f"is colocd running there, is {address(target)[1]}/tcp open, is the munge key"
                " the same?"
            )
            yield Finding(check, Status.FAIL, err.message, todo)
        else:
            spent_ms = (time.monotonic() - begin) * 1000
            text = f"{target}: role {told.get('role')}, {spent_ms:.0f} ms"
            yield Finding(check, Status.OK, text)


def _links(told: dict[str, Any]) -> Finding:
    check = "agent-links"
    links = told.get("links")
    if not isinstance(links, list):
        return Finding(check, Status.NA, "colocd tells this to root and SlurmUser only")
    if told.get("role") == "standby":
        return Finding(check, Status.NA, "the other controller's colocd is the active one")
    lost = [link["node"] for link in links if not link["linked"]]
    waiting = sum(link["spooled"] or 0 for link in links)
    text = f"{len(links) - len(lost)} of {len(links)} GPU nodes"
    if waiting:
        text += f", {waiting} reports wait there"
    if not lost:
        return Finding(check, Status.OK, text)
    names = ", ".join(lost[:SHOWN]) + (", ..." if len(lost) > SHOWN else "")
    todo = "systemctl enable --now slurm-coloc-agent there; reports wait in their spools until then"
    return Finding(check, Status.WARN, f"{text}; no agent: {names}", todo)
