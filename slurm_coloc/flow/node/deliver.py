# SPDX-License-Identifier: Apache-2.0
"""Reports from a node to colocd, else to the node's spool; and the spool's own way there."""

import contextlib
import json
import os
from typing import Any

from slurm_coloc.adapters import hookenv, spool
from slurm_coloc.adapters.link.agent_socket import AgentWire
from slurm_coloc.adapters.link.client import Me, Wire
from slurm_coloc.errors import ColocError, DaemonUnreachable
from slurm_coloc.flow.client.connect import Ways, error_code, reach

MAX_FLUSH = 32  # older reports sent along with a new one

# colocd will never take a report that it refused so: asking again is of no use.
FINAL = frozenset({"bad-request", "not-yours"})


def ways_of(settings: hookenv.HookSettings, cluster: str, node: str, slurm_uid: int) -> Ways:
    """How this node's hooks reach colocd."""
    me = Me(slurm_uid, cluster, node, settings.munge_socket)
    trusted = frozenset({0, slurm_uid, os.geteuid()})
    return Ways(settings.socket, settings.controllers, me, trusted, settings.run_dir)


def deliver(
    report: dict[str, Any], settings: hookenv.HookSettings, slurm_uid: int, deadline_s: float
) -> str:
    """Hand a report to colocd, through the agent where it can, else to the spool. Returns "colocd",
    "colocd via agent" or "spool: <why>".

    Where the hook itself reaches colocd, reports that were spooled earlier go along; the agent
    sends them by itself. Raises ConfigError or OSError when the spool cannot be used either.
    """
    line = json.dumps(report, separators=(",", ":")).encode("ascii")
    ways = ways_of(settings, report.get("cluster", ""), report["node"], slurm_uid)
    try:
        wire, answer = reach(ways, line, deadline_s)
        with wire:
            if answer.get("ok") is not True:
                raise DaemonUnreachable(f"colocd refused: {str(answer.get('error'))[:200]}")
            if isinstance(wire, AgentWire):
                return "colocd via agent"
            with contextlib.suppress(ColocError, OSError):
                _flush(wire, settings, slurm_uid)
        return "colocd"
    except DaemonUnreachable as err:
        why = err.message
    name = spool.report_name(report["job_id"], report["restart"], report["node"])
    with spool.open_dir(settings.spool_dir, 0o700, slurm_uid) as fd:
        spool.write_file(fd, name, line + b"\n", 0o600, slurm_uid)
    return f"spool: {why}"


def _flush(wire: Wire, settings: hookenv.HookSettings, slurm_uid: int) -> None:
    """Send up to MAX_FLUSH older reports."""
    with spool.open_dir(settings.spool_dir, None, slurm_uid) as fd:
        for name in spool.spooled(fd)[:MAX_FLUSH]:
            line = read_spooled(fd, name, slurm_uid)
            if line is not None:
                settle_spooled(fd, name, wire.exchange(line))


def read_spooled(dir_fd: int, name: str, slurm_uid: int) -> bytes | None:
    """A spooled report's line; None where it is not one that the hooks wrote."""
    try:
        data = spool.read_file(dir_fd, name, {0, slurm_uid, os.geteuid()})
    except ColocError:
        return None
    return data.strip() if data and b"\n" not in data.strip() else None


def settle_spooled(dir_fd: int, name: str, answer: dict[str, Any]) -> bool:
    """Remove a report that colocd took, set one aside that it never will; whether it was taken."""
    code = error_code(answer)
    if not code:
        spool.remove_file(dir_fd, name)
    elif code in FINAL:
        spool.set_aside(dir_fd, name)
    return not code
