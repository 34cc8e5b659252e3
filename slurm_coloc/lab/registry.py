# SPDX-License-Identifier: Apache-2.0
"""What the labs of this machine share: names, ports and device nodes, in one file under a lock."""

import contextlib
import fcntl
import json
import os
import random
import socket
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab.spec import BASE

FILE = BASE / "registry.json"
LOCK = BASE / ".lock"
NVIDIA_MAJOR = 195
# The kernel gives /dev/nvidia-caps a number of its own at boot; nobody opens these here.
CAPS, CAPS_MAJOR = "/dev/nvidia-caps/nvidia-cap", 235
# Below the kernel's range for outgoing connections, which could take a probed port away again.
PORTS = range(20000, 32000)


@contextlib.contextmanager
def locked() -> Iterator[dict[str, Any]]:
    """The registry, held alone; what is changed in it is written back, an empty one removed."""
    fd = _take_lock()
    try:
        try:
            data: dict[str, Any] = json.loads(FILE.read_text())
        except (OSError, ValueError):
            data = {"labs": {}, "devices_made": []}
        yield data
        if data["labs"] or data["devices_made"]:
            new = FILE.with_suffix(".new")
            new.write_text(json.dumps(data, indent=1) + "\n")
            new.rename(FILE)
        else:
            FILE.unlink(missing_ok=True)
            LOCK.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                BASE.rmdir()
    finally:
        os.close(fd)


def _take_lock() -> int:
    """A descriptor that holds the lock of the file that is there now (the last lab removes it)."""
    while True:
        BASE.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            fd = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        except PermissionError as err:
            raise SlurmError("labs are root's: give the command as root") from err
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            if LOCK.stat().st_ino == os.fstat(fd).st_ino:
                return fd
        except FileNotFoundError:
            pass
        os.close(fd)


def free_ports(count: int, taken: set[int]) -> list[int]:
    """So many ports that nobody listens on and no other lab has; raises SlurmError."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise SlurmError("no free TCP ports for the lab's daemons")
    return found


def make_devices(count: int, caps: Sequence[int], made: list[str]) -> list[str]:
    """Make sure of /dev/nvidia0... and of these device files of MIG; those made now are added to
    ``made``, others stay untouched.

    Slurm sets CUDA_VISIBLE_DEVICES and SLURM_JOB_GPUS only for device files of this name.
    Raises SlurmError, with none of them made now left.
    """
    numbers = {f"/dev/nvidia{index}": (NVIDIA_MAJOR, index) for index in range(count)}
    numbers |= {f"{CAPS}{cap}": (CAPS_MAJOR, cap) for cap in caps}
    new = [Path(name) for name in numbers if not Path(name).exists()]
    try:
        for path in new:
            path.parent.mkdir(mode=0o755, exist_ok=True)
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(*numbers[str(path)]))
            path.chmod(0o666)  # not less the umask
    except OSError as err:
        for path in new:
            path.unlink(missing_ok=True)
        raise SlurmError(f"cannot make a device node: {err}") from err
    made += [str(path) for path in new]
    return list(numbers)


def drop_devices(data: dict[str, Any], devices: list[str]) -> None:
    """Remove those device nodes that a lab made and that no lab of ``data`` uses any more."""
    used = {path for lab in data["labs"].values() for path in lab["devices"]}
    for path in devices:
        if path in data["devices_made"] and path not in used:
            Path(path).unlink(missing_ok=True)
            data["devices_made"].remove(path)
    with contextlib.suppress(OSError):  # not there, or not empty
        Path(CAPS).parent.rmdir()
