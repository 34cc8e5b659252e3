# SPDX-License-Identifier: Apache-2.0
"""The program's own files outside its Python package: hooks, Lua, units, the SPANK plugin.

A distribution's package brings them. Where slurm-coloc came as a wheel, `coloc init` puts them
where the package would, and new ones in place of those that another wheel left there; `coloc leave
--program` removes them.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from slurm_coloc.errors import ConfigError

PACKAGE = Path(__file__).resolve().parents[1]
#: in a wheel etc/setup/wheel.py has put them beside the lab; in a checkout they are in their places
SOURCES = next(path for path in (PACKAGE / "lab" / "sources", PACKAGE.parent) if path.is_dir())
RECORD = Path("/etc/slurm-coloc/before/program.json")
#: what the plugin was built from
BUILT = RECORD.with_name("plugin.sha256")
HEADER = Path("/usr/include/slurm/slurm_version.h")
PROGRAM = Path("/usr/bin/coloc")
LIBEXEC = Path("/usr/libexec/slurm-coloc")
UNITS = Path("/etc/systemd/system")
BUILD_S = 120.0
#: file, its place, its mode; by what a host is
_FILES = {
    "controller": (
        ("etc/coloc*.lua", LIBEXEC, 0o644),
        ("etc/systemd/slurm-coloc.service", UNITS, 0o644),
    ),
    "node": (
        ("prolog/coloc-prolog", LIBEXEC, 0o755),
        ("epilog/coloc-epilog", LIBEXEC, 0o755),
        ("etc/systemd/slurm-coloc-agent.service", UNITS, 0o644),
    ),
    "login": (),
}


def _wanted(roles: Collection[str]) -> list[tuple[Path, Path, int]]:
    found = []
    for role in roles:
        for pattern, folder, mode in _FILES[role]:
            found += [(one, folder / one.name, mode) for one in sorted(SOURCES.glob(pattern))]
    return found


def missing(roles: Collection[str], plugin_dir: Path) -> list[Path]:
    """What a host with these roles lacks, wherever it is to come from, and what `install` once made
    of another wheel. Raises ConfigError."""
    packaged = Path("/usr/lib/systemd/system")
    ours = set(noted())
    found = [
        target
        for source, target, _ in _wanted(roles)
        if (target in ours and not _same(source, target))
        or not (target.exists() or (target.parent == UNITS and (packaged / target.name).exists()))
    ]
    plugin = [plugin_dir / "coloc.so", LIBEXEC / "coloc-ticket"]
    stale = ours.issuperset(plugin) and not (BUILT.exists() and BUILT.read_text() == _built_of())
    found += [path for path in plugin if stale or not path.exists()]
    return found if PROGRAM.exists() else [*found, PROGRAM]


def _same(source: Path, target: Path) -> bool:
    return target.exists() and source.read_bytes() == target.read_bytes()


def _built_of() -> str:
    """A digest of the plugin's source and of Slurm's release."""
    texts = sorted((SOURCES / "spank").glob("*.[ch]"))
    whole = b"".join(path.read_bytes() for path in [*texts, HEADER] if path.exists())
    return hashlib.sha256(whole).hexdigest()


def install(roles: Collection[str], plugin_dir: Path) -> list[Path]:
    """Put what is missing or old into its place and note it; the new files. Raises ConfigError."""
    lacking = missing(roles, plugin_dir)
    made: list[Path] = []
    try:
        for source, target, mode in _wanted(roles):
            if target in lacking:
                target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                new = target.with_name(f".{target.name}.new")
                shutil.copyfile(source, new)
                new.chmod(mode)
                new.replace(target)  # a hook or slurmctld may be reading the old one
                made.append(target)
        if PROGRAM in lacking:
            PROGRAM.unlink(missing_ok=True)  # it led into an environment that is gone
            PROGRAM.symlink_to(Path(sys.executable).parent / "coloc")
            made.append(PROGRAM)
        if {plugin_dir / "coloc.so", LIBEXEC / "coloc-ticket"} & set(lacking):
            made += _plugin(plugin_dir)
            BUILT.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            BUILT.write_text(_built_of())
    except OSError as err:
        raise ConfigError(f"{err.filename}: {err.strerror}") from err
    finally:
        _note([*noted(), *made])
    return made


def _plugin(plugin_dir: Path) -> list[Path]:
    """Build the plugin for the Slurm whose headers are here; raises ConfigError."""
    with tempfile.TemporaryDirectory() as work:
        words = ["make", "-C", str(SOURCES / "spank"), f"BUILD={work}", "install"]
        words += [f"PLUGINDIR={plugin_dir}", f"MANDIR={work}/man"]
        env = {key: value for key, value in os.environ.items() if "MAKE" not in key}
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, env=env, timeout=BUILD_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            raise ConfigError(f"the SPANK plugin could not be built: {err}") from err
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["make failed"])[0]
        hint = "it needs make, gcc, libslurm-dev of Slurm's release, zlib1g-dev"
        raise ConfigError(f"the SPANK plugin could not be built: {last} ({hint})")
    return [plugin_dir / "coloc.so", LIBEXEC / "coloc-ticket"]


def noted() -> list[Path]:
    """What `install` made. Raises ConfigError."""
    try:
        return [Path(name) for name in json.loads(RECORD.read_text())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as err:
        raise ConfigError(f"{RECORD}: {err}") from err


def _note(made: list[Path]) -> None:
    if made:
        RECORD.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        RECORD.write_text(json.dumps([str(path) for path in dict.fromkeys(made)], indent=1) + "\n")


def remove() -> list[Path]:
    """Take away what `install` made, and its folder where that is empty; what went."""
    gone = []
    for path in noted():
        if path.exists() or path.is_symlink():
            path.unlink()
            gone.append(path)
    if LIBEXEC.is_dir() and not any(LIBEXEC.iterdir()):
        LIBEXEC.rmdir()
    RECORD.unlink(missing_ok=True)
    BUILT.unlink(missing_ok=True)
    return gone
