# SPDX-License-Identifier: Apache-2.0
"""What `make install` and colocd's unit leave on a machine for the hooks."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.lab.bringup import COLOCD_NICE

from .conftest import ROOT, USER

UNIT = ROOT / "etc/systemd/slurm-coloc.service"


def unit(key: str) -> list[str]:
    """The values of a key, in order."""
    lines = UNIT.read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    # Neither the program nor its manual page is installed where tests run.
    text = UNIT.read_text().replace("ExecStart=/usr/bin/coloc", "ExecStart=/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace("Documentation=man:coloc(1)\n", ""))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_lab_runs_colocd_with_the_unit_s_priority() -> None:
    assert unit("Nice") == [str(COLOCD_NICE)]


@pytest.mark.parametrize("there", [False, True], ids=["new", "too-open"])
def test_the_spool_is_there_before_colocd(public: Path, as_root: None, there: bool) -> None:
    spool = public / "spool"
    if there:
        spool.mkdir(mode=0o777)
        (spool / "report").touch()
    (line,) = unit("ExecStartPre")
    assert line.startswith("+")  # as root
    words = shlex.split(line[1:].replace("$$", "$"))
    default = HookSettings().spool_dir
    words = [word.replace(str(default), str(spool)) for word in words]
    assert str(spool) in words[-1]
    subprocess.run(words, env={"USER": str(USER)}, check=True)
    seen = spool.stat()
    assert (seen.st_uid, seen.st_mode & 0o7777) == (USER, 0o700)
    assert [file.name for file in spool.iterdir()] == (["report"] if there else [])


def test_stopping_colocd_leaves_the_state_of_running_jobs() -> None:
    """systemd removes a RuntimeDirectory with its service, and gives all in it to the service."""
    run_dir = HookSettings().run_dir
    for name in unit("RuntimeDirectory"):
        assert not run_dir.is_relative_to(f"/run/{name}")
    assert unit("RuntimeDirectoryPreserve") == ["yes"]
    header = (ROOT / "spank/coloc.h").read_text()
    assert f'#define COLOC_RUN_DIR "{run_dir}"' in header


def test_make_install_brings_what_the_hooks_need(tmp_path: Path) -> None:
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.skip("no make or no C compiler")
    if not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("no slurm/spank.h (Debian: libslurm-dev)")
    tree, target = tmp_path / "tree", tmp_path / "target"
    tree.mkdir()
    for part in ("Makefile", "etc", "spank", "prolog", "epilog"):
        source = ROOT / part
        shutil.copytree(source, tree / part) if source.is_dir() else shutil.copy(source, tree)
    env = {key: value for key, value in os.environ.items() if "MAKE" not in key}
    words = ["make", "-C", str(tree), "install", f"DESTDIR={target}", "PLUGINDIR=/plugins"]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()}
    assert found >= {
        "plugins/coloc.so",
        "usr/lib/systemd/system/slurm-coloc.service",
        "usr/libexec/slurm-coloc/coloc-epilog",
        "usr/libexec/slurm-coloc/coloc-prolog",
        "usr/share/man/man1/coloc.1",
        "usr/share/man/man8/spank_coloc.8",
    }
