# SPDX-License-Identifier: Apache-2.0
"""coloc doctor on one host without Slurm: its role, its program, its service, its names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters import probe, programfiles, units
from slurm_coloc.admin.doctor import host
from slurm_coloc.admin.init.plan import Role
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.config import Config, ModeConfig, ModeRule, parse_config
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.errors import ConfigError

CONTROLLER, NODE = frozenset({Role.CONTROLLER}), frozenset({Role.NODE})


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that runs, in place of /usr/bin/coloc."""
    path = tmp_path / "coloc"
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    monkeypatch.setattr(programfiles, "PROGRAM", path)
    monkeypatch.setattr(units, "BOOTED", tmp_path / "none")
    return path


def by_check(found: Sequence[Finding] | Any) -> dict[str, Finding]:
    return {one.check: one for one in found}


def judged(here: frozenset[Role], **options: Any) -> dict[str, Finding]:
    config = Config.model_validate({"daemon": {"slurm_user": "root"}})
    return by_check(host.checks(config, here, **({"installed": True} | options)))


def test_the_program_is_there_and_runs(program: Path) -> None:
    assert judged(CONTROLLER)["program"].status is Status.OK
    program.write_text("#!/nonexistent/python\n")
    broken = judged(NODE)["program"]
    assert broken.status is Status.FAIL and "does not run as root" in broken.found + broken.todo
    program.unlink()
    gone = judged(NODE)["program"]
    assert gone.status is Status.FAIL and "is not there" in gone.found
    program.symlink_to(program.parent / "nowhere")
    assert "leads nowhere" in judged(NODE)["program"].found


def test_another_configuration_is_not_judged(program: Path) -> None:
    program.unlink()
    found = judged(NODE, installed=False)
    assert found["program"].status is Status.NA and "service" not in found


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (("active", "enabled"), Status.OK),
        (("active", "disabled"), Status.WARN),
        (("inactive", "enabled"), Status.FAIL),
        (("failed", "disabled"), Status.FAIL),
        (None, Status.NA),
    ],
)
def test_the_service(
    program: Path, monkeypatch: pytest.MonkeyPatch, state: object, status: Status
) -> None:
    monkeypatch.setattr(units, "state", lambda name: state)
    found = judged(CONTROLLER)["service"]
    assert found.status is status and "slurm-coloc" in found.found


def test_lua_posix_without_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "lua_posix", lambda: (None, "no lua5.1 program on this host"))
    monkeypatch.setattr(host, "LUA_POSIX", (f"{tmp_path}/*/posix/*.so",))
    missing = host.lua_posix(CONTROLLER)
    assert missing.status is Status.FAIL and missing.todo.startswith("apt-get install")
    assert host.lua_posix(NODE).status is Status.NA
    (tmp_path / "lua" / "posix").mkdir(parents=True)
    (tmp_path / "lua" / "posix" / "poll.so").touch()
    assert host.lua_posix(CONTROLLER).status is Status.OK


def test_roles_by_the_file_that_is_there(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    name = probe.short_host_name()
    conf.write_text(f"SlurmctldHost={name}\nNodeName=other Gres=gpu:1\n")
    assert host.roles_here({"SLURM_CONF": str(conf)}) == CONTROLLER
    conf.write_text(f"SlurmctldHost=other\nNodeName={name} Gres=gpu:1\n")
    assert host.roles_here({"SLURM_CONF": str(conf)}) == NODE
    assert host.roles_here({"SLURM_CONF": str(tmp_path / "no")}) == frozenset({Role.LOGIN})


def test_partitions_that_there_are_not() -> None:
    shape = ClusterShape("site", (24, 11), (), (PartitionShape("gpu-small"), PartitionShape("cpu")))
    config = Config(mode=ModeConfig(rules=(ModeRule(partition="gpu-smal", mode="on"),)))
    (wrong,) = host.mode_rules(config, shape)
    assert wrong.status is Status.FAIL and "did you mean gpu-small?" in wrong.found
    (good,) = host.mode_rules(Config(), shape)
    assert good.status is Status.OK


def test_what_agents_say_of_other_hosts() -> None:
    node = NodeShape("n1", ("main",), (), "a100", 2, 78)
    setup = {
        "gres": {}, "conf_s": 1.0, "slurmd_s": 2.0, "stack_s": 1.0, "plugin": "24.11",
        "plugstack": True, "hooks": True, "why": "",
    }  # fmt: skip
    shape = ClusterShape("site", (24, 11), (node,))

    def status_of(**changes: Any) -> dict[str, Any]:
        return {"links": [{"node": "n1", "linked": True, "setup": setup | changes}]}

    (good,) = host.nodes(status_of(), shape)
    assert good.status is Status.OK
    (bad,) = host.nodes(status_of(plugin="22.05"), shape)
    assert bad.status is Status.FAIL and "n1: coloc.so is for Slurm 22.05" in bad.found
    assert list(host.nodes({}, shape)) == []  # not told to this user


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"netwrk": {}}, "netwrk: no such key; did you mean network?"),
        ({"network": {"listn": ":1"}}, "network.listn: no such key; did you mean listen?"),
        ({"sharing": {"wiht_": "user"}}, "did you mean with?"),
        ({"mode": {"rules": [{"partitoin": "x", "mode": "on"}]}}, "did you mean partition?"),
        ({"pool": {"zzz": 1}}, "pool.zzz: no such key"),
    ],
)
def test_a_wrong_key_and_the_one_that_was_meant(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"version": 1, **data}, "coloc.toml")
    assert said in caught.value.message
