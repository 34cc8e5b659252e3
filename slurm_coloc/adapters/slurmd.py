# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node as slurmd lists them, in the order of its own numbers.

SLURM_JOB_GPUS counts the gpu gres of a node as slurmd has merged them: in slurm.conf's order of
types, within a type in gres.conf's, whatever the device files are called (tried 22.05 and 24.11).
Mostly that is the minor number; with MIG devices, or with a card left out, it is not. So slurmd
itself is asked: ``slurmd -G`` prints that list and ends (0.02 s).

It is asked with a spool folder of its own. In that of the slurmd that runs, ``slurmd -G`` takes a
step that does not listen on its socket yet for a dead one and removes the job's script, so that a
job of any user ends with exit code 2 (seen on 24.11; 22.05 does so, too).
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.errors import GpuError

LIMIT_S = 2.0
USUAL = ("/usr/sbin/slurmd", "/usr/local/sbin/slurmd", "/opt/slurm/sbin/slurmd")
ANCESTORS = 8
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
MOST_BYTES = 1 << 20  # of a file beside slurm.conf that is read for includes
_INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.IGNORECASE | re.MULTILINE)
_GPU = r"Gres Name=gpu Type=(\S+) Count=(\d+) .*?File=(\S+)"
_GRES = r"Gres Name=(\S+) Type=(\S+) Count=(\d+) "
_RANGE = r"(.*)\[([0-9,-]+)\](.*)"


class GresGpu(NamedTuple):
    """One gpu gres of the node: its type ("" for none), and its device files."""

    type: str
    files: tuple[str, ...]


def gpus_of_slurmd(
    environ: Mapping[str, str], node: str, conf: Path, folder: Path | None = None
) -> list[GresGpu]:
    """The node's gpu gres, at the place that SLURM_JOB_GPUS calls them by. Raises GpuError.

    ``conf``: the node's slurm.conf. ``folder``: where slurmd's own spool folder is made for it, one
    that users cannot fill; else that for temporary files.
    """
    program, text = _listed(environ, node, conf, folder)
    found = parse_gpus(text)
    if not found:
        raise GpuError(f"{program} -G lists no GPU", "gres")
    return found


def gres_counts(environ: Mapping[str, str], node: str, conf: Path) -> dict[str, int]:
    """How much of each gres slurmd would offer with this slurm.conf and the gres.conf beside it:
    ``{"gpu:a100": 4, "shard:a100": 156}``; without a type ``{"gpu": 4}``. Raises GpuError."""
    return parse_counts(_listed(environ, node, conf)[1])


def parse_counts(text: str) -> dict[str, int]:
    """The counts of ``slurmd -G``, whose lines each have a part of them (tried 22.05 and 24.11)."""
    found: dict[str, int] = {}
    for name, kind, count in re.findall(_GRES, text):
        key = name if kind == "(null)" else f"{name}:{kind}"
        found[key] = found.get(key, 0) + int(count)
    return found


def _listed(
    environ: Mapping[str, str], node: str, conf: Path, folder: Path | None = None
) -> tuple[str, str]:
    """slurmd's program and what ``slurmd -G`` prints. Raises GpuError."""
    import subprocess  # 3 ms that most hooks need not wait

    program = _program()
    own = {"LD_LIBRARY_PATH": environ["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in environ else {}
    try:
        with _apart(conf, folder) as copy:
            done = subprocess.run(
                # By that name: as slurmd-wlm, what Debian's slurmd points to, it reads no device.
                ["slurmd", "-G", "-N", node],
                executable=program,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                env={"PATH": PATH, "LC_ALL": "C", "SLURM_CONF": str(copy), **own},
                cwd="/",
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise GpuError(f"{program} -G: {err}", "gres") from err
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise GpuError(f"{program} -G: exit {done.returncode}: {last[:200]}", "gres")
    return program, done.stdout + done.stderr


@contextlib.contextmanager
def _apart(conf: Path, folder: Path | None) -> Iterator[Path]:
    """A slurm.conf that says the same but for slurmd's spool folder, log and process id. Beside it
    is what lies beside ``conf``, since Slurm looks for gres.conf and relative includes there."""
    import tempfile  # 2 ms that most hooks need not wait

    where = folder if folder and folder.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="slurm-coloc-gres-", dir=where) as name:
        etc = Path(name, "etc")
        etc.mkdir()
        for path in conf.absolute().parent.iterdir():
            if path.name != "slurm.conf":
                (etc / path.name).symlink_to(path)
        # The last value holds.
        lines = (
            f"Include {conf.absolute()}",
            f"SlurmdSpoolDir={name}/spool",
            f"SlurmdLogFile={name}/log",
            f"SlurmdPidFile={name}/pid",
            "SlurmdSyslogDebug=quiet",
        )
        (etc / "slurm.conf").write_text("\n".join(lines) + "\n")
        yield etc / "slurm.conf"


def parse_gpus(text: str) -> list[GresGpu]:
    """The gpu gres of ``slurmd -G``: one line each, or one for several GPUs of a range. 24.11 joins
    the files of MultipleFiles by commas."""
    found = []
    for kind, count, files in re.findall(_GPU, text):
        names = _files(files)
        each = [(name,) for name in names] if len(names) == int(count) else [tuple(names)]
        found += [GresGpu("" if kind == "(null)" else kind, one) for one in each]
    return found


def _files(text: str) -> list[str]:
    """Names of ``/dev/nvidia[0-3]`` or ``/dev/nvidia1,/dev/nvidia-caps/nvidia-cap[111-112]``."""
    found: list[str] = []
    for item in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)?", text):
        hit = re.fullmatch(_RANGE, item)
        if not hit:
            found.append(item)
            continue
        for part in hit[2].split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), min(int(last or first), int(first) + 1024) + 1)
            found += [f"{hit[1]}{number}{hit[3]}" for number in numbers]
    return found


def _program() -> str:
    """slurmd's own program: that of the daemon above the hook, else where packages put it."""
    if found := above():
        with contextlib.suppress(OSError):
            return str(Path(f"/proc/{found[0]}/exe").readlink())
    return next((path for path in USUAL if os.access(path, os.X_OK)), USUAL[0])


def above() -> tuple[int, int] | None:
    """The slurmd above a hook: its id and when it began (clock ticks after the boot). The topmost,
    because 24.11 starts hooks by a slurmd of their own."""
    pid, found = os.getppid(), None
    for _ in range(ANCESTORS):
        folder = Path(f"/proc/{pid}")
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if (folder / "comm").read_text().startswith("slurmd"):
                found = pid, int(fields[19])
            pid = int(fields[1])
        except (OSError, ValueError, IndexError):
            break
        if pid <= 1:
            break
    return found


def list_key(conf: Path, began: object) -> str:
    """What slurmd's list depends on: the same key means the same list. It names the start of
    slurmd, ``began``, and what lies beside slurm.conf by inode, size and time of change. "" where
    the list may depend on more: no start is known, or a file includes one from elsewhere."""
    if began is None:
        return ""
    try:
        seen = [Path(BOOT_ID).read_text().strip(), str(began), str(conf.absolute())]
        for entry in sorted(os.scandir(conf.absolute().parent), key=lambda one: one.name):
            if not entry.name.endswith(".conf"):
                continue
            state = entry.stat()
            seen.append(f"{entry.name} {state.st_ino} {state.st_size} {state.st_mtime_ns}")
            if state.st_size > MOST_BYTES:
                return ""
            text = Path(entry.path).read_text(errors="replace")
            if any(map(_is_outside, _INCLUDE.findall(text))):
                return ""
    except OSError:
        return ""
    return "\n".join(seen)


def _is_outside(included: str) -> bool:
    """Whether an include names no file beside slurm.conf that list_key() looks at."""
    return "/" in included or not included.endswith(".conf")


def began_s(node: str) -> float | None:
    """When this node's slurmd was started (Unix seconds); None where none is found. Of several on a
    host the one that was started with ``-N node``."""
    boot = _boot_s()
    if boot is None:
        return None
    found: dict[bool, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().rstrip("\n") not in ("slurmd", "slurmd-wlm"):
                continue
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            ticks = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
            if folder.stat().st_uid != 0:
                continue
        except (OSError, ValueError, IndexError):
            continue
        named = words[words.index("-N") + 1] if "-N" in words[:-1] else None
        if named in (None, node):
            began = boot + ticks / os.sysconf("SC_CLK_TCK")
            found[named == node] = max(found.get(named == node, 0.0), began)
    return found.get(True, found.get(False))


def _boot_s() -> float | None:
    try:
        text = Path("/proc/stat").read_text()
    except OSError:
        return None
    hit = re.search(r"^btime (\d+)", text, re.MULTILINE)
    return float(hit[1]) if hit else None
