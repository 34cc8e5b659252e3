# SPDX-License-Identifier: Apache-2.0
"""coloc doctor without Slurm: with colocd, without it, and with a broken configuration."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters import probe
from slurm_coloc.admin.doctor import gpus, network
from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from tests.unit.cli.conftest import Site


def _doctor(site: Site, config: Path | None = None) -> dict[str, dict[str, str]]:
    env = {"COLOC_CONFIG": str(config or site.config)}
    done = site.coloc("doctor", "--json", env=env)
    assert done.returncode == 1, "there is no Slurm here"
    told: dict[str, Any] = json.loads(done.stdout)
    assert (told["schema"], told["ok"]) == (1, False)
    assert all(set(row) == {"check", "status", "found", "todo"} for row in told["checks"])
    return {row["check"]: row for row in told["checks"]}


def test_with_colocd(site: Site) -> None:
    found = _doctor(site)
    for name in ("configuration", "mode-rules", "off-switch", "colocd", "socket", "state-dir"):
        assert found[name]["status"] == "ok", found[name]
    assert found["slurm"]["status"] == "fail"
    assert found["slurm-conf"]["status"] == "not-applicable"


def test_colocd_dead_and_other_faults(site: Site, tmp_path: Path) -> None:
    off = tmp_path / "off"
    off.touch()
    config = tmp_path / "coloc.toml"
    config.write_text(
        f'version = 1\n[daemon]\nsocket = "{tmp_path}/none.sock"\noff_file = "{off}"\n'
        f'state_dir = "{tmp_path}"\ncommand_dir = "{tmp_path}"\nslurm_user = "nobody-here"\n'
        '[[mode.rules]]\nuser = "no-such-user"\nmode = "on"\n[estimate]\nestimator = "crystal"\n'
    )
    found = _doctor(site, config)
    assert found["colocd"]["status"] == "fail"
    assert found["socket"]["status"] == "not-applicable"
    assert found["slurm-user"]["status"] == "fail"
    assert found["state-dir"]["status"] == "fail"
    assert found["off-switch"]["status"] == "warn"
    assert "no-such-user" in found["mode-rules"]["found"]
    assert "horus" in found["estimator"]["todo"] or "text" in found["estimator"]["todo"]


def test_wrong_configuration(site: Site, tmp_path: Path) -> None:
    config = tmp_path / "coloc.toml"
    config.write_text("version = 1\n[pool]\nshard_gib = 1\n")
    found = _doctor(site, config)
    assert found["configuration"]["status"] == "fail"
    assert "pool.shard_gib" in found["configuration"]["found"]


def test_for_people(site: Site) -> None:
    done = site.coloc("doctor")
    assert done.returncode == 1
    assert "fail           slurm " in done.stdout
    assert "-> " in done.stdout


def test_plugstack_with_includes(tmp_path: Path) -> None:
    (tmp_path / "plugstack.conf").write_text(
        "# comment\ninclude plugstack.conf.d/*.conf\nrequired a.so # x\n"
    )
    folder = tmp_path / "plugstack.conf.d"
    folder.mkdir()
    (folder / "coloc.conf").write_text("optional coloc.so arg=1\n")
    (folder / "loop.conf").write_text(f"include {tmp_path}/plugstack.conf\n")
    lines = probe.plugstack(tmp_path / "plugstack.conf")
    assert lines[0] == "optional coloc.so arg=1"
    assert "required a.so" in lines
    assert probe.plugstack(tmp_path / "missing") == []


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 90])
def test_a_plugin_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "coloc.so"
    path.write_bytes(content)
    assert probe.plugin_release(path) is None


def test_a_library_without_the_symbol() -> None:
    assert probe.plugin_release(Path(os.path.realpath("/proc/self/exe"))) is None


def test_on_a_node_colocd_is_elsewhere(site: Site, tmp_path: Path) -> None:
    """Nobody answers at 192.0.2.1 (TEST-NET-1, RFC 5737)."""
    config = tmp_path / "coloc.toml"
    config.write_text(
        f'version = 1\n[daemon]\nsocket = "{tmp_path}/none.sock"\ncommand_dir = "{tmp_path}"\n'
        'slurm_user = "root"\n[network]\ncontrollers = ["192.0.2.1:6824"]\n'
        f'munge_socket = "{tmp_path}/none"\n'
    )
    found = _doctor(site, config)
    assert found["colocd"]["status"] == "not-applicable"
    assert "state-dir" not in found
    assert found["network-listen"]["status"] == "not-applicable"
    assert found["munge"]["status"] == found["network-answer"]["status"] == "fail"


def test_a_dead_colocd_of_this_host_is_a_fault(site: Site, tmp_path: Path) -> None:
    config = tmp_path / "coloc.toml"
    config.write_text(
        f'version = 1\n[daemon]\nsocket = "{tmp_path}/none.sock"\ncommand_dir = "{tmp_path}"\n'
        '[network]\nlisten = ":6824"\ncontrollers = ["127.0.0.1:1"]\n'
    )
    assert _doctor(site, config)["colocd"]["status"] == "fail"


def test_rules_for_single_gpus() -> None:
    """Nodes that no rule can mean are told, and this host's GPUs where it has any."""
    rules = [{"node": "gpu[01-04]", "method": "mps"}, {"node": "gpx1", "method": "streams"}]
    config = Config.model_validate({"sharing": {"rules": rules}})
    shape = ClusterShape("c", (24, 11), (NodeShape("gpu03", ("main",), (), "a100", 1, 39),))
    lost, here = gpus.sharing(config, shape)
    assert (lost.status, here.check) == (Status.WARN, "sharing-here")
    assert lost.found == "of no GPU node of this cluster: gpx1"
    fine = Config.model_validate({"sharing": {"rules": rules[:1]}})
    assert next(iter(gpus.sharing(fine, shape))).status is Status.OK
    assert list(gpus.sharing(Config(), shape)) == []


@pytest.mark.parametrize(("host", "elsewhere"), [("ctl1(192.0.2.7)", True), ("localhost", False)])
def test_a_node_without_a_configuration_finds_colocd_by_slurm_conf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, elsewhere: bool
) -> None:
    """As its agent does: it is not asked for a colocd of its own."""
    (tmp_path / "slurm.conf").write_text(f"SlurmctldHost={host}\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    config = Config.model_validate({"daemon": {"socket": str(tmp_path / "none.sock")}})
    found = network.found_colocd(config)
    assert network.colocd_on_another_host(found) == elsewhere
    assert found.network.controllers == (("192.0.2.7:6824",) if elsewhere else ())
