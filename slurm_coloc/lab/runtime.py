# SPDX-License-Identifier: Apache-2.0
"""A `coloc` that every account of the lab may run.

colocd runs as SlurmUser, and a checkout or an interpreter below /root (mode 0700) is closed to
it. Where that is so, the package and what it needs are copied into the lab's folder, and an
interpreter that others may run is taken, or copied too.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
CHECKOUT = PACKAGE.parent


def open_to_others(path: Path) -> bool:
    """Whether an account without rights may read ``path`` and pass every folder above it."""
    try:
        path = path.resolve(strict=True)
        mode = path.stat().st_mode
        passable = all(up.stat().st_mode & stat.S_IXOTH for up in path.parents)
    except OSError:
        return False
    want = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return passable and (mode & want) == want


def distributions() -> list[metadata.Distribution]:
    """The installed distributions that slurm-coloc needs at run time, and pyslurm if it is here.

    Optional extras are left out, as is slurm-coloc itself (its package is taken from PACKAGE).
    """
    todo, seen, found = ["slurm-coloc", "pyslurm"], set[str](), list[metadata.Distribution]()
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # another platform's requirement
        if name != "slurm-coloc":
            found.append(dist)
        for wish in dist.requires or []:
            if "extra ==" not in wish:
                todo.append(re.split(r"[^A-Za-z0-9_.-]", wish, maxsplit=1)[0])
    return found


def _copy_packages(site: Path) -> None:
    site.mkdir(parents=True)
    # With their times, so that the compiled files beside them stay valid: a hook starts quicker.
    shutil.copytree(PACKAGE, site / PACKAGE.name)
    for dist in distributions():
        for file in dist.files or []:
            source = Path(str(dist.locate_file(file)))
            if ".." in file.parts or not source.is_file():
                continue
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    _open_tree(site)


def _open_tree(top: Path) -> None:
    """Readable by everybody, whatever the umask was that the originals were made under."""
    for folder, _, names in os.walk(top):
        Path(folder).chmod(0o755)
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o111 else 0o644)


def _public_python() -> Path | None:
    """An interpreter of this very minor release that others may run."""
    own = Path(sys.executable).resolve()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (own, Path("/usr/bin") / name, Path("/usr/local/bin") / name):
        if not open_to_others(path):
            continue
        if path == own and not open_to_others(Path(os.__file__)):
            continue
        done = subprocess.run([path, "-c", "import sqlite3, ssl"], capture_output=True, check=False)
        if done.returncode == 0:
            return path
    return None


def _copy_python(target: Path) -> tuple[Path, dict[str, str]]:
    """Copy interpreter, library and standard library; returns the program and its environment."""
    base = Path(sys.base_prefix)
    stdlib = Path(sysconfig.get_path("stdlib"))
    skip = shutil.ignore_patterns(
        "__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter", "config-*"
    )
    shutil.copytree(stdlib, target / stdlib.relative_to(base), ignore=skip, symlinks=True)
    (target / "bin").mkdir()
    program = target / "bin" / "python"
    shutil.copyfile(Path(sys.executable).resolve(), program)
    program.chmod(0o755)
    library = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME"))
    if library.is_file() and ".so" in library.name:
        shutil.copyfile(library, target / "lib" / library.name)
    _open_tree(target)
    return program, {
        "PYTHONHOME": str(target),
        "LD_LIBRARY_PATH": f"{target}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",
    }


def readable_as_is() -> bool:
    """Whether every account can run this package where it lies."""
    here = [Path(sys.executable), Path(os.__file__), Path(__file__), PACKAGE / "cli"]
    here += [Path(sys.executable).parent]
    here += [Path(str(d.locate_file(""))) for d in distributions()]
    pydantic = next((d for d in distributions() if d.metadata["Name"] == "pydantic"), None)
    if pydantic:
        here.append(Path(str(pydantic.locate_file("pydantic/__init__.py"))))
    return all(open_to_others(path) for path in here)


def install(folder: Path) -> str:
    """Write ``folder``/bin/coloc, runnable by every account; returns how it was done."""
    python, how, env = Path(sys.executable), "in place", dict[str, str]()
    if readable_as_is():
        env["PYTHONPATH"] = str(CHECKOUT)
    else:
        site = folder / "py" / "site"
        _copy_packages(site)
        public, how = _public_python(), "packages copied"
        if public is None:
            python, env = _copy_python(folder / "py" / "base")
            how = "packages and interpreter copied"
        else:
            python = public
        env["PYTHONPATH"] = str(site)
    # Unexpanded $ is meant: a hook brings an LD_LIBRARY_PATH of its own (the emulated NVML).
    sets = " ".join(f'{key}="{value}"' for key, value in env.items())
    program = folder / "bin" / "coloc"
    program.parent.mkdir(exist_ok=True)
    # -P keeps a job's own folder out of the module path; -s the user's ~/.local.
    program.write_text(
        "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"
        f'export {sets}\nexec "{python}" -s -P -m slurm_coloc "$@"\n'
    )
    program.chmod(0o755)
    return how
