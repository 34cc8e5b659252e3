# SPDX-License-Identifier: Apache-2.0
"""colocd as the command line asks it: one request, one answer, one deadline, JSON."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from slurm_coloc.errors import ColocError, ConfigError, DaemonUnreachable, SlurmError, UsageFault

MAX_ANSWER = 64 * 2**20  # bytes; 1000 runs with their evidence are about 2 MiB
DEADLINE_S = 30.0  # `explain` waits for up to three Slurm commands of colocd

# Codes that colocd answers, as the errors whose exit code the command line documents. Others,
# and a job that one may not see, end with 1.
_CLASSES: dict[str, type[ColocError]] = {
    "bad-request": UsageFault,
    "not-allowed": UsageFault,
    "usage": UsageFault,
    "config": ConfigError,
    "slurm": SlurmError,
    "slurm-timeout": SlurmError,
}


def ask(path: Path, op: str, *, deadline_s: float = DEADLINE_S, **fields: Any) -> dict[str, Any]:
    """Colocd's answer to ``op``. Raises DaemonUnreachable, or the error that colocd answered."""
    request = json.dumps({"v": 1, "op": op, **fields}).encode() + b"\n"
    try:
        line = _exchange(path, request, time.monotonic() + deadline_s)
        answer = json.loads(line)
    except TimeoutError:
        text = f"{path}: colocd gave no answer within {deadline_s:g} s"
        raise DaemonUnreachable(f"{text}; see its log") from None
    except OSError as err:
        hint = "is slurm-coloc.service running?"
        raise DaemonUnreachable(f"{path}: {err.strerror or err}: {hint}") from err
    except ValueError as err:
        raise DaemonUnreachable(f"{path}: the answer is not colocd's: {err}") from err
    if not isinstance(answer, dict):
        raise DaemonUnreachable(f"{path}: the answer is not colocd's")
    if answer.get("ok") is not True:
        raise _error(answer.get("error"))
    return answer


def _error(told: object) -> ColocError:
    known = told if isinstance(told, dict) else {}
    code, message = str(known.get("code", "error")), str(known.get("message", "colocd failed"))
    return _CLASSES.get(code, ColocError)(message, code)


def _exchange(path: Path, request: bytes, end: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
        _limit(sock, end)
        sock.connect(os.fspath(path))
        sock.sendall(request)
        found = bytearray()
        while not found.endswith(b"\n"):
            _limit(sock, end)
            piece = sock.recv(65536)
            if not piece:
                raise ValueError("the connection was closed before the answer")
            found += piece
            if len(found) > MAX_ANSWER:
                raise ValueError("it is too long")
        return bytes(found)


def _limit(sock: socket.socket, end: float) -> None:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)
