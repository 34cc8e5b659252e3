# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: can Prometheus read what the site wants it to read of this host?"""

import importlib.util
import socket
from collections.abc import Iterator
from ipaddress import ip_address

from slurm_coloc.adapters.prometheus.port import read_token
from slurm_coloc.adapters.prometheus.text import MISSING
from slurm_coloc.admin.init.plan import Role
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.config import Config
from slurm_coloc.errors import ConfigError

CHECK = "metrics"
CONNECT_S = 1.0
SERVED = {
    Role.CONTROLLER: ("colocd", "slurm-coloc"),
    Role.NODE: ("the agent", "slurm-coloc-agent"),
}


def checks(config: Config, here: frozenset[Role]) -> Iterator[Finding]:
    """Of the ports that daemons of this host should have."""
    wanted = config.metrics
    ports = {Role.CONTROLLER: wanted.colocd_port, Role.NODE: wanted.agent_port}
    mine = {role: port for role, port in ports.items() if port and role in here}
    if not mine:
        yield Finding(CHECK, Status.NA, "no port of [metrics] for a daemon of this host")
        return
    if importlib.util.find_spec("prometheus_client") is None:
        yield Finding(CHECK, Status.FAIL, "prometheus_client is missing", MISSING)
        return
    try:
        if wanted.token_file:
            read_token(wanted.token_file)
    except ConfigError as err:
        todo = "head -c 32 /dev/urandom | base64 into it, mode 0600, owned by who reads it"
        yield Finding(CHECK, Status.FAIL, err.message, todo)
        return
    for role, port in mine.items():
        who, unit = SERVED[role]
        where = f"{wanted.address} port {port}"
        if why := _unreachable(wanted.address, port):
            todo = f"systemctl restart {unit}; its log has the reason"
            yield Finding(CHECK, Status.FAIL, f"{who} does not listen on {where}: {why}", todo)
        else:
            yield Finding(CHECK, Status.OK, f"{who} listens on {where}")


def _unreachable(address: str, port: int) -> str:
    """Why nothing can be reached there; "" where something can."""
    found = ip_address(address)
    if found.is_unspecified:
        address = "127.0.0.1" if found.version == 4 else "::1"
    try:
        socket.create_connection((address, port), CONNECT_S).close()
    except OSError as err:
        return err.strerror or str(err)
    return ""
