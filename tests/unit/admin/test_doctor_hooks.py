# SPDX-License-Identifier: Apache-2.0
"""coloc doctor: who starts coloc-prolog and coloc-epilog, and whether that can drain a node."""

from pathlib import Path

import pytest

from slurm_coloc.adapters import probe
from slurm_coloc.admin.doctor import hooks
from slurm_coloc.admin.doctor.slurm import Slurm
from slurm_coloc.admin.init.plan import Role
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape

CONTROLLER = frozenset({Role.CONTROLLER})


class Host:
    """A host with a plugstack.conf and a folder for the scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = {"PlugStackConfig": str(folder / "plugstack.conf"), "PluginDir": str(folder)}
        self.nodes: tuple[NodeShape, ...] = ()
        self.plugstack(f"optional coloc.so hooks={folder}")

    def plugstack(self, line: str) -> None:
        (self.folder / "plugstack.conf").write_text(line + "\n")

    def scripts(self, mode: int = 0o755) -> None:
        for kind in ("prolog", "epilog"):
            path = self.folder / f"coloc-{kind}"
            path.write_text("#!/bin/sh\nexec coloc\n")
            path.chmod(mode)

    def is_node(self) -> None:
        self.nodes = (NodeShape(probe.short_host_name(), ("main",), (), "a100", 2, 78),)

    def found(self) -> dict[str, Finding]:
        shape = ClusterShape("test", (24, 11, 5), self.nodes)
        slurm = Slurm(self.conf, shape, {}, "no slurmdbd", ())
        return {one.check: one for one in hooks.checks(Config(version=1), slurm, CONTROLLER)}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_plugin_starts_them(host: Host) -> None:
    host.scripts()
    found = host.found()
    assert found["prolog"].status is found["epilog"].status is Status.OK
    assert "started by the plugin" in found["prolog"].found


def test_a_node_without_them(host: Host) -> None:
    assert host.found()["prolog"].status is Status.NA, "no GPU node"
    host.is_node()
    missing = host.found()["prolog"]
    assert missing.status is Status.FAIL and "is not there" in missing.found
    host.scripts(0o644)
    assert "cannot be run" in host.found()["epilog"].found


def test_a_line_of_slurm_conf_can_drain(host: Host) -> None:
    host.scripts()
    host.conf["Prolog[0]"] = "/site/prolog"
    host.conf["Prolog[1]"] = "/usr/libexec/slurm-coloc/coloc-prolog"
    found = host.found()
    assert found["prolog"].status is Status.WARN and "drained" in found["prolog"].found
    assert found["epilog"].status is Status.OK


def test_the_sites_own_scripts_start_them(host: Host) -> None:
    host.plugstack("optional coloc.so hooks=off")
    assert host.found()["prolog"].status is Status.FAIL, "no Prolog at all"
    own = host.folder / "prolog.d"
    own.mkdir()
    (own / "10-site").write_text("#!/bin/sh\ntrue\n")
    host.conf["Prolog"] = f"{own}/*"
    assert "does not run" in host.found()["prolog"].found
    (own / "20-gpu").write_text("#!/bin/sh\n/usr/libexec/slurm-coloc/coloc-prolog\n")
    assert host.found()["prolog"].status is Status.OK


def test_required_would_fail_jobs(host: Host) -> None:
    host.plugstack("required coloc.so")
    told = host.found()["spank-plugin"]
    assert told.status is Status.FAIL and "no job starts" in told.found


def test_job_submit_lua_matters_on_slurmctlds_host_alone(host: Host) -> None:
    shape = ClusterShape("test", (24, 11, 5), ())
    slurm = Slurm(host.conf, shape, {}, "no slurmdbd", ())
    on_a_node = {one.check: one for one in hooks.checks(Config(), slurm, frozenset({Role.NODE}))}
    assert on_a_node["job-submit-lua"].status is Status.NA
