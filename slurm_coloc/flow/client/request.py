# SPDX-License-Identifier: Apache-2.0
"""Requests of the command line to colocd: one request, one answer; where colocd is busy it is sent
again. From the host of slurmctld by its Unix socket, from a login node over the network."""

import json
import os
import pwd
import time
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import slurmconf
from slurm_coloc.adapters.link.client import Me, NetWire
from slurm_coloc.config import Config, config_path
from slurm_coloc.errors import (
    ColocError,
    ConfigError,
    DaemonUnreachable,
    SlurmError,
    UsageFault,
)
from slurm_coloc.flow.client.connect import Ways, error_code, reach

DEADLINE_S = 30.0  # `explain` waits for up to three Slurm commands of colocd
AGAIN_S = 0.25  # after `busy`: an ordinary user may ask 5 times a second

# Codes that colocd answers, as the errors whose exit code the command line documents. Others,
# and a job that one may not see, end with 1.
_CLASSES: dict[str, type[ColocError]] = {
    "bad-request": UsageFault,
    "not-allowed": UsageFault,
    "usage": UsageFault,
    "config": ConfigError,
    "slurm": SlurmError,
    "slurm-away": SlurmError,
    "slurm-busy": SlurmError,
    "slurm-refused": SlurmError,
    "standby": DaemonUnreachable,
}


def call(
    config: Config, op: str, fields: dict[str, Any], deadline_s: float = DEADLINE_S
) -> dict[str, Any]:
    """Colocd's answer to ``op``. Raises DaemonUnreachable, or the error that colocd answered."""
    controllers = config.network.controllers
    if not controllers and not config_path().exists():  # a host that nobody has configured
        controllers = slurmconf.controllers(os.environ)
    uid = _slurm_uid(config) if controllers else 0
    me = Me(uid, munge_socket=config.network.munge_socket)
    return _call(Ways(config.daemon.socket, controllers, me), op, deadline_s, fields)


def call_socket(
    path: Path, op: str, *, deadline_s: float = DEADLINE_S, **fields: Any
) -> dict[str, Any]:
    """As ``ask``, of the colocd behind one Unix socket."""
    return _call(Ways(path, (), Me(os.geteuid())), op, deadline_s, fields)


def call_network(config: Config, target: str, op: str, deadline_s: float) -> dict[str, Any]:
    """As ``ask``, of one controller's colocd over the network."""
    me = Me(_slurm_uid(config), munge_socket=config.network.munge_socket)
    with NetWire(target, me, deadline_s) as wire:
        answer = wire.call(op)
    if answer.get("ok") is not True:
        raise _error(answer.get("error"))
    return answer


def _call(ways: Ways, op: str, deadline_s: float, fields: dict[str, Any]) -> dict[str, Any]:
    """The answer; of a colocd that is busy asked again for ``deadline_s``, so that a list of many
    jobs takes longer and does not fail. Each time has the deadline for itself: with the rest alone
    the last one would end with "no answer" in place of ``busy``."""
    request = json.dumps({"v": 1, "op": op, **fields}).encode()
    end_s = time.monotonic() + deadline_s
    while True:
        wire, answer = reach(ways, request, deadline_s)
        wire.close()
        if error_code(answer) != "busy" or time.monotonic() >= end_s:
            break
        time.sleep(AGAIN_S)
    if answer.get("ok") is not True:
        raise _error(answer.get("error"))
    return answer


def _slurm_uid(config: Config) -> int:
    try:
        return pwd.getpwnam(config.daemon.slurm_user).pw_uid
    except KeyError:
        text = f"daemon.slurm_user: no user {config.daemon.slurm_user!r} on this host"
        raise ConfigError(text) from None


def _error(error: object) -> ColocError:
    known = error if isinstance(error, dict) else {}
    code, message = str(known.get("code", "error")), str(known.get("message", "colocd failed"))
    return _CLASSES.get(code, ColocError)(message, code)
