# SPDX-License-Identifier: Apache-2.0
"""The memory limit that the MPS server itself holds each client to, set and read back.

A client's own variable (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT) may lower it and cannot raise it; a
client that unsets the variable meets this one. A server has one limit for all of its clients, so it
is the largest share that it serves. NVIDIA's MPS guide: the default holds for servers to come, that
of a server for clients to come; who is a client already keeps what it had.

A daemon that runs as its user takes orders from that user, too: then what the job's processes hold
(core/gpu/overrun) is the only thing that tells.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

#: after which no further command is given: a user may have stopped the daemon, and each waits
#: COMMAND_S then; on a busy node programs take their time to start
LIMIT_S = 1.9
MOST_SERVERS = 4
DEVICE = 0  # the daemon's only one, in its own numbering; by UUID limits were seen not to apply
_SHOWN = r"([0-9]{1,9})\s*([GM])i?B?"


class Share(NamedTuple):
    """What a job's file says. ``mib``: its share, 0 where that is not known. ``bound_mib``: the
    largest limit of its server since it came, as it was read back; None where it was not."""

    mib: int = 0
    bound_mib: int | None = None


def read(path: Path) -> Share:
    """Share() for the file of an older release, or one that cannot be read."""
    try:
        plain = json.loads(path.read_text("ascii"))
        bound = plain["bound_mib"]
        return Share(int(plain["mib"]), None if bound is None else int(bound))
    except (OSError, ValueError, KeyError, TypeError):
        return Share()


def write(path: Path, share: Share) -> None:
    """Root's alone to read. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.fchmod(fd, 0o600)
        os.write(fd, json.dumps(share._asdict()).encode("ascii"))
    finally:
        os.close(fd)


def largest(shares: Iterable[Share], total_mib: int) -> int:
    """The limit of a server for these jobs: all of the GPU, ``total_mib``, where one is not known;
    0 where that is not known either."""
    each = [share.mib for share in shares]
    return max(each) if each and all(each) else total_mib


def apply(command: Callable[[str], str], mib: int) -> bool:
    """Set the limit by ``command``, which gives the daemon an order and returns its answer; whether
    it reads back. Raises nothing that ``command`` does not."""
    end_s = time.monotonic() + LIMIT_S

    def given(text: str) -> str | None:
        return command(text) if time.monotonic() < end_s else None

    given(f"set_default_device_pinned_mem_limit {DEVICE} {mib}M")
    if not shows(given(f"get_default_device_pinned_mem_limit {DEVICE}"), mib):
        return False
    servers = given("get_server_list")
    if servers is None:
        return False
    for server in _numbers(servers)[:MOST_SERVERS]:
        given(f"set_device_pinned_mem_limit {server} {DEVICE} {mib}M")
        if not shows(given(f"get_device_pinned_mem_limit {server} {DEVICE}"), mib):
            return False
    return True


def shows(text: str | None, mib: int) -> bool:
    """Whether an answer is this limit: drivers show it in whole GiB, rounded down, from 1 GiB."""
    found = re.fullmatch(_SHOWN, (text or "").strip())
    if found is None:
        return False
    number = int(found[1])
    return number == mib if found[2] == "M" else number == mib // 1024 > 0


def _numbers(text: str) -> list[int]:
    words = [line.split()[0] for line in text.splitlines() if line.strip()]
    return [int(word) for word in words if word.isdigit() and len(word) <= 10]
