# SPDX-License-Identifier: Apache-2.0
"""What slurmd starts, prolog/coloc-prolog and epilog/coloc-epilog: they end with 0 whatever is in
/etc/default/slurm-coloc or happens to the program."""

import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT

SCRIPTS = ("prolog/coloc-prolog", "epilog/coloc-epilog")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "coloc"
    file.write_text('#!/bin/sh\necho "ran $1 $COLOC_CONFIG"\nexit 4\n')
    file.chmod(0o755)
    return file


def started(script: str, tmp_path: Path, defaults: str, **env: str) -> tuple[str, str]:
    """What it prints on stdout and stderr with such a file of defaults."""
    file, copy = tmp_path / "defaults", tmp_path / "script"
    file.write_text(defaults)
    text = (ROOT / script).read_text()
    assert "\ndefaults=/etc/default/slurm-coloc\n" in text
    copy.write_text(text.replace("/etc/default/slurm-coloc", str(file), 1))
    copy.chmod(0o755)
    done = subprocess.run([copy], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    return done.stdout, done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_job_of_others_costs_nothing(script: str, tmp_path: Path) -> None:
    assert started(script, tmp_path, "echo read; exit 3\n") == ("", "")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("last", ["", "false", "[ -e /nonexistent ] && A=1"])
def test_the_defaults_name_the_program(
    script: str, tmp_path: Path, program: Path, last: str
) -> None:
    text = f"COLOC_PROGRAM={program}\nCOLOC_CONFIG=/etc/elsewhere.toml\n{last}\n"
    out, err = started(script, tmp_path, text, SPANK_COLOC_V="1")
    name = script.rpartition("-")[2]
    assert out == f"ran {name} /etc/elsewhere.toml\n"
    assert f"{program} {name} ended with 4: the job is not affected" in err


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("broken", ["if", "exit 3", "echo $NOT_SET", "A=(1 2"])
def test_broken_defaults_are_told(script: str, tmp_path: Path, program: Path, broken: str) -> None:
    text = f"COLOC_PROGRAM={program}\n{broken}\n"
    _, err = started(script, tmp_path, text, SPANK_COLOC_V="1")
    assert "defaults cannot be read" in err


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_slurmd_has_in_its_environment_comes_first(
    script: str, tmp_path: Path, program: Path
) -> None:
    out, _ = started(
        script,
        tmp_path,
        "COLOC_PROGRAM=/bin/false\n",
        SPANK_COLOC_V="1",
        COLOC_PROGRAM=str(program),
    )
    assert out.startswith("ran ")
