# SPDX-License-Identifier: Apache-2.0
"""What `coloc init` puts beside a wheel: what is missing, and what an older wheel left."""

from pathlib import Path

import pytest

from slurm_coloc.adapters import programfiles

ROLES = ("controller", "node")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of its own, where `make` builds a plugin of one word."""
    for name, place in (("etc", "coloc.lua"), ("etc/systemd", "slurm-coloc.service"),
                        ("prolog", "coloc-prolog"), ("spank", "plugin.c")):  # fmt: skip
        (tmp_path / "sources" / name).mkdir(parents=True)
        (tmp_path / "sources" / name / place).write_text("first")
    for name, place in (("SOURCES", "sources"), ("LIBEXEC", "libexec"), ("UNITS", "units"),
                        ("RECORD", "before/program.json"), ("BUILT", "before/plugin.sha256"),
                        ("HEADER", "slurm_version.h"), ("PROGRAM", "coloc")):  # fmt: skip
        monkeypatch.setattr(programfiles, name, tmp_path / place)
    files = {
        "controller": (
            ("etc/coloc*.lua", tmp_path / "libexec", 0o644),
            ("etc/systemd/slurm-coloc.service", tmp_path / "units", 0o644),
        ),
        "node": (("prolog/coloc-prolog", tmp_path / "libexec", 0o755),),
    }
    monkeypatch.setattr(programfiles, "_FILES", files)

    def plugin(folder: Path) -> list[Path]:
        made = [folder / "coloc.so", tmp_path / "libexec/coloc-ticket"]
        for path in made:
            path.parent.mkdir(exist_ok=True)
            path.write_text((tmp_path / "sources/spank/plugin.c").read_text())
        return made

    monkeypatch.setattr(programfiles, "_plugin", plugin)
    return tmp_path


def put(host: Path) -> set[str]:
    return {path.name for path in programfiles.install(ROLES, host / "plugins")}


def test_what_is_missing_comes_once(host: Path) -> None:
    first = {
        "coloc.lua",
        "slurm-coloc.service",
        "coloc-prolog",
        "coloc.so",
        "coloc-ticket",
        "coloc",
    }
    assert put(host) == first
    assert (host / "libexec/coloc-prolog").stat().st_mode & 0o777 == 0o755
    assert programfiles.missing(ROLES, host / "plugins") == [] and put(host) == set()


@pytest.mark.parametrize(
    ("changed", "comes"),
    [
        ("etc/coloc.lua", {"coloc.lua"}),
        ("prolog/coloc-prolog", {"coloc-prolog"}),
        ("spank/plugin.c", {"coloc.so", "coloc-ticket"}),
    ],
)
def test_a_newer_wheel_brings_its_own(host: Path, changed: str, comes: set[str]) -> None:
    put(host)
    (host / "sources" / changed).write_text("second")
    assert put(host) == comes
    for name in comes:
        [found] = [*host.glob(f"libexec/{name}"), *host.glob(f"plugins/{name}")]
        assert found.read_text() == "second"
    assert put(host) == set()


def test_another_release_of_slurm_needs_another_plugin(host: Path) -> None:
    put(host)
    (host / "slurm_version.h").write_text("25.11")
    assert put(host) == {"coloc.so", "coloc-ticket"}


def test_what_a_package_or_an_admin_put_there_stays(host: Path) -> None:
    (host / "libexec").mkdir()
    (host / "libexec/coloc.lua").write_text("the package's")
    assert "coloc.lua" not in put(host)
    assert (host / "libexec/coloc.lua").read_text() == "the package's"


def test_a_program_that_leads_nowhere_is_put_back(host: Path) -> None:
    put(host)
    (host / "coloc").unlink()
    (host / "coloc").symlink_to(host / "gone")
    assert put(host) == {"coloc"}


def test_all_of_it_goes(host: Path) -> None:
    put(host)
    programfiles.remove()
    assert not (host / "libexec").exists() and not (host / "before/plugin.sha256").exists()
    assert programfiles.noted() == []
