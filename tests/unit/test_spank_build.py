# SPDX-License-Identifier: Apache-2.0
"""The SPANK plugin builds without a warning, shows Slurm only what it must, and its pure parts
pass their own tests under the address and undefined sanitizers."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SPANK = Path(__file__).parents[2] / "spank"
ENTRY_POINTS = {
    "plugin_name",
    "plugin_type",
    "plugin_version",
    "spank_plugin_version",
    "slurm_spank_init",
    "slurm_spank_init_post_opt",
    "slurm_spank_job_epilog",
    "slurm_spank_job_prolog",
    "slurm_spank_task_init",
    "slurm_spank_task_post_fork",
}


def why_not() -> str | None:
    """Why the plugin cannot be built here; None when it can."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or shutil.which("make") is None:
        return "no C compiler or no make"
    for header, package in (("slurm/spank.h", "libslurm-dev"), ("zlib.h", "zlib1g-dev")):
        probe = subprocess.run(
            [compiler, "-E", "-"], input=f"#include <{header}>\n", text=True, capture_output=True
        )
        if probe.returncode != 0:
            return f"no <{header}> (Debian: {package})"
    return None


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


def make(build: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["make", "-C", str(SPANK), f"BUILD={build}", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the built plugin."""
    folder = tmp_path_factory.mktemp("spank")
    make(folder)
    return folder


def symbols(plugin: Path, which: str) -> set[str]:
    text = subprocess.run(
        ["nm", "-D", which, str(plugin)], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in text.splitlines()}


def test_exports_only_the_entry_points(build: Path) -> None:
    assert symbols(build / "coloc.so", "--defined-only") == ENTRY_POINTS


def test_asks_slurm_only_for_what_spank_h_declares(build: Path) -> None:
    header = subprocess.run(
        ["cc", "-E", "-"], input="#include <slurm/spank.h>\n", text=True, capture_output=True
    ).stdout
    wanted = {
        name for name in symbols(build / "coloc.so", "--undefined-only") if "@" not in name
    } - {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__"}
    from_zlib = {"compress2", "compressBound", "zError"}  # where no libz.a is installed
    unknown = [n for n in wanted - from_zlib if not re.search(rf"\b{n} *\(", header)]
    assert unknown == []


def test_a_second_build_does_nothing_and_another_release_builds_again(build: Path) -> None:
    before = (build / "dispatch.o").stat().st_mtime_ns
    make(build)
    assert (build / "dispatch.o").stat().st_mtime_ns == before
    (build / "slurm-release").write_text("0x010203\n")
    make(build)
    assert (build / "dispatch.o").stat().st_mtime_ns != before


def test_install_goes_where_it_is_told(build: Path, tmp_path: Path) -> None:
    folders = "PLUGINDIR=/p", "MANDIR=/m", "LIBEXECDIR=/l"
    make(build, "install", f"DESTDIR={tmp_path}", *folders)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == [
        "l/coloc-ticket",
        "m/man8/spank_coloc.8",
        "p/coloc.so",
    ]


def test_pure_parts_under_the_sanitizers(build: Path) -> None:
    probe = subprocess.run(
        ["cc", "-fsanitize=address,undefined", "-xc", "-", "-o", str(build / "probe")],
        input="int main(void) { return 0; }\n",
        text=True,
        capture_output=True,
    )
    if probe.returncode != 0:
        pytest.skip("the compiler has no sanitizer libraries")
    assert "spank: all unit tests pass" in make(build, "check").stdout


def test_changed_inputs_give_way_nowhere(tmp_path: Path) -> None:
    """A short run of what `make fuzz` does for longer."""
    make(tmp_path, "fuzz", "RUNS=2000")
