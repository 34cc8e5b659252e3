# SPDX-License-Identifier: Apache-2.0
"""Looks at this machine for `coloc doctor`: files, the Lua of slurmctld, a SPANK plugin's release.

Nothing is loaded or changed: a plugin's release is read from its ELF file.
"""

import difflib
import re
import shutil
import socket
import stat
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LUA_MODULES = ("posix.sys.socket", "posix.poll", "posix.fcntl", "posix.time")
MAX_TEXT = 1 << 20  # bytes of a configuration file


@dataclass(frozen=True, slots=True)
class Node:
    """What stat tells of a path."""

    uid: int
    mode: int
    is_socket: bool


def check(path: Path) -> Node | None:
    """A path as it is; None where there is none or it may not be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Node(
        found.st_uid,
        stat.S_IMODE(found.st_mode),
        stat.S_ISSOCK(found.st_mode),
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant; "" for none."""
    return next(iter(difflib.get_close_matches(word, list(known), 1)), "")


def short_host_name() -> str:
    """This host as slurm.conf usually names it."""
    return socket.gethostname().split(".")[0]


def text_of(path: Path) -> str | None:
    """The text of a file; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_TEXT).decode(errors="replace")
    except OSError:
        return None


def lua_posix() -> tuple[bool | None, str]:
    """Whether Lua 5.1 (which Debian's slurmctld embeds) finds lua-posix; None: no such Lua here."""
    lua = shutil.which("lua5.1")
    if lua is None:
        return None, "no lua5.1 program on this host"
    program = "; ".join(f'require "{name}"' for name in LUA_MODULES)
    try:
        done = subprocess.run(
            [lua, "-e", program], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return None, f"{lua}: {err}"
    if done.returncode == 0:
        return True, "lua5.1 finds lua-posix"
    return False, (done.stderr.strip().splitlines() or ["lua5.1 failed"])[0]


def lua_broken(path: Path) -> str:
    """Why Lua 5.1 cannot read a script; "" where it can, or where there is no lua5.1 here."""
    lua = shutil.which("lua5.1")
    if lua is None or check(path) is None:
        return ""
    try:
        done = subprocess.run(
            # Lua 5.1 has no `arg` yet when it runs -e.
            [lua, "-e", "assert(loadfile(os.getenv('SCRIPT')))"],
            env={"SCRIPT": str(path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or ["it cannot be read"])[0][:300]


def plugstack(path: Path, depth: int = 3) -> list[str]:
    """Lines of plugstack.conf, or of slurm.conf, with their includes; comments left out."""
    lines: list[str] = []
    for raw in (text_of(path) or "").splitlines():
        line = raw.split("#", 1)[0].strip()
        include = re.match(r"include\s+(\S+)", line, re.IGNORECASE)
        if include and depth:
            pattern = Path(include[1])
            base = pattern if pattern.is_absolute() else path.parent / pattern
            for found in sorted(base.parent.glob(base.name)):
                lines += plugstack(found, depth - 1)
        elif line:
            lines.append(line)
    return lines


def plugin_release(path: Path) -> tuple[int, int, int] | None:
    """The Slurm release that a SPANK plugin was built for (its symbol plugin_version, slurm.h's
    SLURM_VERSION_NUMBER); None where it cannot be read as a 64-bit little-endian ELF file."""
    try:
        data = path.read_bytes()
        at = _symbol(data, b"plugin_version")
        if at is None:
            return None
        (number,) = struct.unpack_from("<I", data, at)
    except (OSError, OverflowError, struct.error, IndexError):
        return None
    return number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF


def _symbol(data: bytes, name: bytes) -> int | None:
    """Offset in the file of a dynamic symbol's value (ELF64: elf.h)."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    # sh_type, sh_addr, sh_offset, sh_size, sh_link of each section
    heads = [struct.unpack_from("<4xI8xQQQI", data, start + i * size) for i in range(count)]
    for kind, _, offset, length, link in heads:
        if kind != 11:  # SHT_DYNSYM
            continue
        names = heads[link][2]
        for entry in range(offset, offset + length, 24):
            index, section, where = struct.unpack_from("<IxxHQ", data, entry)
            begin = names + index
            if data[begin : begin + len(name) + 1] == name + b"\0" and 0 < section < count:
                home = heads[section]
                return int(where - home[1] + home[2])
    return None
