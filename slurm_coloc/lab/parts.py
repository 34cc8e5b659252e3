# SPDX-License-Identifier: Apache-2.0
"""What a lab takes from the machine and from slurm-coloc: programs, accounts, builds, files."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab.runtime import CHECKOUT, PACKAGE

PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "munged": "munge",
    "sbatch": "slurm-client",
    "useradd": "passwd",
}
EMULATOR = PACKAGE / "lab" / "emulator"
#: The folder of spank/, etc/, prolog/ and epilog/: in an installed package etc/setup/wheel.py has
#: put it beside this file, else it is the checkout.
SOURCES = next(path for path in (PACKAGE / "lab" / "sources", CHECKOUT) if path.is_dir())
#: Names a folder with builds to start from, e.g. of a test run that brings up many labs.
BUILT = "COLOC_LAB_BUILT"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Names the folder of another Slurm than the system's, for all labs: with sbin, bin and include.
SLURM = "COLOC_LAB_SLURM"


@dataclass(frozen=True)
class Programs:
    """Absolute paths of the programs, the release and the accounts of the daemons."""

    paths: dict[str, str]
    version: str
    release: tuple[int, int]
    slurm: pwd.struct_passwd
    munge: pwd.struct_passwd


def path_of(slurm: str = "") -> str:
    """PATH of all of a lab's programs. ``slurm``: the folder of its Slurm, "" for the system's."""
    return f"{slurm}/sbin:{slurm}/bin:{SYSTEM_PATH}" if slurm else SYSTEM_PATH


def find(packages: Mapping[str, str], slurm: str = "") -> dict[str, str]:
    """Absolute paths of programs, from ``slurm``, PATH and the system's folders.

    ``packages``: the Debian package of each program; raises SlurmError naming those to install.
    """
    if slurm and not (Path(slurm) / "sbin" / "slurmctld").exists():
        raise SlurmError(f"{slurm}: no sbin/slurmctld there: give the folder that Slurm was"
                         " installed into (configure's --prefix)")  # fmt: skip
    search = path_of(slurm) if slurm else os.environ.get("PATH", "") + ":" + SYSTEM_PATH
    found = {name: path for name in packages if (path := shutil.which(name, path=search))}
    missing = dict.fromkeys(package for name, package in packages.items() if name not in found)
    if missing:
        raise SlurmError(
            f"not installed: {', '.join(missing)}. On Debian or Ubuntu:"
            f" apt-get install {' '.join(missing)}"
        )
    return found


def find_programs(prefix: str | None = None) -> Programs:
    """Slurm and munge of this machine. ``prefix``: the folder of another Slurm; None: that
    of $COLOC_LAB_SLURM, if it is set. Raises SlurmError where something is missing."""
    found = find(PACKAGES, os.environ.get(SLURM, "") if prefix is None else prefix)
    text = subprocess.run([found["slurmd"], "-V"], capture_output=True, text=True, check=False)
    match = re.search(r"(\d+)\.(\d+)\.\S+", text.stdout)
    if match is None:
        raise SlurmError(f"{found['slurmd']} -V shows no version: {text.stdout or text.stderr!r}")
    try:
        slurm, munge = pwd.getpwnam("slurm"), pwd.getpwnam("munge")
    except KeyError as err:
        raise SlurmError(f"an account of the daemons is missing on this machine: {err}") from err
    return Programs(found, match[0], (int(match[1]), int(match[2])), slurm, munge)


class Build:
    """`make -C WHERE BUILD=TARGET [GOAL]` in the background, where it is ``wanted``."""

    def __init__(
        self,
        where: Path,
        target: Path,
        log: Path,
        wanted: bool,
        goal: str = "all",
        more: tuple[str, ...] = (),
    ) -> None:
        """``more``: variables of make."""
        self.where, self.log = where, log
        self.run: subprocess.Popen[bytes] | None = None
        if wanted:
            # A make that called us must not hand down its flags and its job server.
            env = {key: value for key, value in os.environ.items() if "MAKE" not in key}
            if goal == "all":
                _start_from_built(where, target)
            with log.open("ab") as out:
                self.run = subprocess.Popen(
                    ["make", "-j2", "-C", str(where), f"BUILD={target}", *more, goal],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                )

    def wait(self, timeout_s: float = 120.0) -> bool:
        """True when it was built, False when it was not wanted; raises SlurmError."""
        if self.run is None:
            return False
        try:
            if self.run.wait(timeout_s) == 0:
                return True
        except subprocess.TimeoutExpired:
            self.cancel()
        raise SlurmError(f"make -C {self.where} failed:\n{tail(self.log)}")

    def cancel(self) -> None:
        """End a build that nobody waits for any more."""
        if self.run is not None and self.run.poll() is None:
            self.run.terminate()
            self.run.wait()


def _start_from_built(where: Path, target: Path) -> None:
    """Copy a build that lies ready, times and all: make then finds little to do."""
    ready = Path(os.environ.get(BUILT, "/nonexistent"), where.name)
    if ready.is_dir():
        shutil.copytree(ready, target, symlinks=True, dirs_exist_ok=True)


def may_make_namespaces() -> bool:
    """Whether this process, and a slurmd started by it, has CAP_SYS_ADMIN (bit 21)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 21 & 1)
    return False


def tail(log: Path, lines: int = 25) -> str:
    """The last lines of a log, an empty text when there is none."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def add_user(name: str, home: Path) -> None:
    """Make a local account with a shell and a workplace; raises SlurmError."""
    _account(["useradd", "-M", "-d", str(home), "-s", "/bin/bash", "-U", name])
    account = pwd.getpwnam(name)
    home.mkdir(parents=True)
    os.chown(home, account.pw_uid, account.pw_gid)


def remove_user(name: str) -> None:
    """Remove an account of the lab; one that is gone already is no error. Raises SlurmError."""
    if uid_of(name) is not None:
        _account(["userdel", "-f", name])


def uid_of(name: str) -> int | None:
    """The uid of an account; None when there is none."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _account(argv: list[str]) -> None:
    env = {"PATH": SYSTEM_PATH, "LC_ALL": "C"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    # userdel ends with 12 or a warning when there is no mail spool to remove
    if done.returncode != 0 and not (argv[0] == "userdel" and uid_of(argv[-1]) is None):
        raise SlurmError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")


def copy_lua(target: Path) -> None:
    """Copy etc/*.lua to where slurmctld can read it."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted((SOURCES / "etc").glob("*.lua")):
        shutil.copyfile(path, target / path.name)
        (target / path.name).chmod(0o644)
