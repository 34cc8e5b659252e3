# SPDX-License-Identifier: Apache-2.0
"""slurm.conf of this host tells an agent that nobody has configured where colocd is."""

from pathlib import Path

import pytest

from slurm_coloc import agent
from slurm_coloc.adapters import hookenv, slurmconf

CONF = """\
# SlurmctldHost=old
SlurmctldHost=ctl1
 slurmctldhost = ctl2(10.0.0.2)
SlurmUser=hpc
"""


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(hookenv, "DEFAULT_CONFIG", tmp_path / "coloc.toml")
    (tmp_path / "slurm.conf").write_text(CONF)
    return {"SLURM_CONF": str(tmp_path / "slurm.conf")}


def test_controllers_and_user(environ: dict[str, str]) -> None:
    assert slurmconf.controllers(environ) == ("ctl1:6824", "10.0.0.2:6824")
    assert slurmconf.slurm_user(environ) == "hpc"


def test_an_old_name_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm.conf").write_text("ControlMachine=old\n")
    environ = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert slurmconf.controllers(environ) == ("old:6824",)
    assert slurmconf.slurm_user(environ) == ""
    monkeypatch.setattr(slurmconf, "PLACES", (str(tmp_path / "no"), str(tmp_path / "slurm.conf")))
    assert slurmconf.controllers({}) == ("old:6824",)
    assert slurmconf.controllers({"SLURM_CONF": str(tmp_path / "no")}) == ()


def test_an_agent_without_a_configuration(environ: dict[str, str], tmp_path: Path) -> None:
    found = agent._settings(environ)
    assert (found.controllers, found.slurm_user) == (("ctl1:6824", "10.0.0.2:6824"), "hpc")
    (tmp_path / "coloc.toml").write_text("version = 1\n")
    assert agent._settings(environ).controllers == ()  # configured: this host alone
