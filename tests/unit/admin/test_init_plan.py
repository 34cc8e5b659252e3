# SPDX-License-Identifier: Apache-2.0
"""What `coloc init` would do on each kind of host."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_coloc.admin.init.plan import FileStep, Host, Role, afterwards, controllers, roles, steps
from slurm_coloc.admin.rules.conf_file import parse_conf
from slurm_coloc.config import parse_config

ETC = Path("/etc/slurm")
CONF = """\
SlurmctldHost=ctl1
SlurmctldHost=ctl2(10.0.0.2)
SlurmUser=slurm
GresTypes=gpu
NodeName=gpu[1-2] NodeHostname=host[1-2] Gres=gpu:a100:2
NodeName=cpu1 CPUs=4
"""
GRES = "Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
SAMPLE = (Path(__file__).resolve().parents[3] / "etc" / "job_submit.lua").read_text()
TOML = Path("/etc/slurm-coloc/coloc.toml")


def host(*found: Role, conf: str = CONF, **files: str) -> Host:
    texts = {ETC / "slurm.conf": conf, ETC / "gres.conf": GRES}
    texts |= {ETC / name.replace("_conf", ".conf"): text for name, text in files.items()}
    return Host(
        name="host1",
        roles=frozenset(found),
        conf=ETC / "slurm.conf",
        stack=ETC / "plugstack.conf",
        files=texts,
        whole=tuple(conf.splitlines()),
        toml=TOML,
        node="gpu1" if Role.NODE in found else "",
        cards=(39, 39) if Role.NODE in found else (),
        sample=SAMPLE,
        gres_lines=tuple(GRES.splitlines()),
    )


def by_name(found: Host, share: bool = False) -> dict[str, FileStep]:
    made = list(steps(found, share))
    for step in made:
        assert not step.problem, step
    return {step.path.name: step for step in made}


@pytest.mark.parametrize(
    ("name", "wanted", "node"),
    [
        ("ctl1", {Role.CONTROLLER}, ""),
        ("ctl2", {Role.CONTROLLER}, ""),
        ("gpu2", {Role.NODE}, "gpu2"),
        ("host2", {Role.NODE}, ""),
        ("cpu1", {Role.LOGIN}, ""),
        ("login", {Role.LOGIN}, ""),
    ],
)
def test_roles(name: str, wanted: set[Role], node: str) -> None:
    assert roles(parse_conf(CONF.splitlines()), name) == (frozenset(wanted), node)


def test_one_host_may_be_two_things() -> None:
    conf = "SlurmctldHost=box.example.org\nNodeName=box Gres=gpu:1\n"
    found, node = roles(parse_conf(conf.splitlines()), "box")
    assert (found, node) == ({Role.CONTROLLER, Role.NODE}, "box")


def test_controllers_are_reached_by_their_addresses() -> None:
    assert controllers(parse_conf(CONF.splitlines())) == ["ctl1", "10.0.0.2"]
    assert controllers(parse_conf(["ControlMachine=old"])) == ["old"]


def test_the_controller_observes() -> None:
    found = by_name(host(Role.CONTROLLER))
    assert list(found) == ["coloc.toml", "job_submit.lua", "slurm.conf", "plugstack.conf"]
    assert [edit.new for edit in found["slurm.conf"].edits] == ["JobSubmitPlugins=lua"]
    assert found["plugstack.conf"].new == (  # it may be the file of all hosts
        "optional coloc.so controllers=ctl1:6824,10.0.0.2:6824\n"
    )
    assert found["job_submit.lua"].new == SAMPLE
    config = parse_config(tomllib.loads(found["coloc.toml"].new), "x")
    assert config.mode.default == "observe" and config.network.listen == ":6824"
    assert config.network.controllers == ("ctl1:6824", "10.0.0.2:6824")


def test_a_login_node_names_the_controllers() -> None:
    found = by_name(host(Role.LOGIN))
    assert list(found) == ["coloc.toml", "plugstack.conf"]
    assert found["plugstack.conf"].new == (
        "optional coloc.so controllers=ctl1:6824,10.0.0.2:6824\n"
    )
    config = parse_config(tomllib.loads(found["coloc.toml"].new), "x")
    assert (config.network.listen, len(config.network.controllers)) == ("", 2)


def test_a_node_that_observes_changes_no_file_of_slurm() -> None:
    assert list(by_name(host(Role.NODE))) == ["coloc.toml"]


def test_a_node_that_shares() -> None:
    found = by_name(host(Role.NODE), share=True)
    assert list(found) == ["coloc.toml", "gres.conf", "slurm.conf", "plugstack.conf"]
    assert found["gres.conf"].new == f"{GRES}Name=shard Count=78\n"
    assert "Gres=gpu:a100:2,shard:a100:78\n" in found["slurm.conf"].new
    assert "GresTypes=gpu,shard\n" in found["slurm.conf"].new
    assert "JobSubmitPlugins" not in found["slurm.conf"].new


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cards": ()}, "NVML shows no GPU"),
        ({"cards": (39, 0)}, "NVML shows no GPU"),
        ({"node": ""}, "COLOC_NODE=NAME"),
    ],
)
def test_gpus_that_are_not_known_change_no_file(changes: dict[str, object], said: str) -> None:
    found = {one.path.name: one for one in steps(replace(host(Role.NODE), **changes), True)}
    for name in ("gres.conf", "slurm.conf"):
        assert said in found[name].problem and found[name].new == found[name].old


def test_a_line_in_an_included_file_counts() -> None:
    there = replace(
        host(Role.NODE),
        gres_lines=(*GRES.splitlines(), "Name=shard Count=78"),
        stack_lines=("optional /usr/lib/coloc.so",),
    )
    found = by_name(there, share=True)
    assert not found["gres.conf"].due and not found["plugstack.conf"].due


def test_the_controller_wants_what_the_nodes_offer() -> None:
    offers = {"gpu1": {"gpu:a100": 2, "shard:a100": 78}, "gpu2": {"gpu:a100": 2, "shard:a100": 78}}
    found = by_name(replace(host(Role.CONTROLLER), offers=offers), share=True)
    assert "Gres=gpu:a100:2,shard:a100:78\n" in found["slurm.conf"].new
    bare = replace(host(Role.CONTROLLER), offers={"gpu1": {"gpu:a100": 2}})
    step = next(one for one in steps(bare, True) if one.path.name == "slurm.conf")
    assert "on the GPU nodes first" in step.problem and step.new == step.old


def test_one_box_needs_no_network() -> None:
    conf = "SlurmctldHost=host1\nNodeName=host1 Gres=gpu:a100:2\n"
    found = by_name(host(Role.CONTROLLER, Role.NODE, conf=conf))
    assert parse_config(tomllib.loads(found["coloc.toml"].new), "x").network.listen == ""


def test_another_slurm_user() -> None:
    conf = CONF.replace("SlurmUser=slurm", "SlurmUser=hpc")
    found = by_name(host(Role.CONTROLLER, conf=conf))
    assert parse_config(tomllib.loads(found["coloc.toml"].new), "x").daemon.slurm_user == "hpc"
    # Our units name slurm: with another user slurmctld would take colocd for a stranger's.
    made = [*steps(host(Role.CONTROLLER, Role.NODE, conf=conf), share=False)]
    units = {one.path.parent.name: one.new for one in made if one.called == "slurm-user.conf"}
    assert "[Service]\nUser=hpc\nGroup=\n" in units["slurm-coloc.service.d"]
    assert "\nEnvironment=COLOC_SLURM_USER=hpc\n" in units["slurm-coloc-agent.service.d"]
    assert not [one for one in made if one.called == "slurm-user.conf" and one.named_only]
    assert "slurm-user.conf" not in by_name(host(Role.CONTROLLER, Role.NODE))
    assert "slurm-user.conf" not in by_name(host(Role.LOGIN, conf=conf))


def test_nothing_is_due_where_all_is_done() -> None:
    first = host(Role.CONTROLLER)
    texts = dict(first.files) | {step.path: step.new for step in steps(first, False)}
    lines = tuple(texts[first.conf].splitlines())
    stack = tuple(texts[first.stack].splitlines())
    again = replace(first, files=texts, whole=lines, stack_lines=stack)
    assert not [step for step in steps(again, False) if step.due]


def test_the_commands_afterwards() -> None:
    made = list(steps(host(Role.CONTROLLER), False))
    assert afterwards(host(Role.CONTROLLER), made, False) == ["systemctl restart slurmctld"]
    node = host(Role.NODE)
    assert afterwards(node, list(steps(node, True)), True) == ["systemctl restart slurmd"]
    assert afterwards(node, list(steps(node, False)), False) == []


def test_shards_beside_mig_devices_are_a_person_s() -> None:
    """All GPUs' memory would be offered, the cut one's too, and slurmd would spread it."""
    there = replace(host(Role.NODE), cut=True)
    found = {step.path.name: step for step in steps(there, True)}
    for name in ("gres.conf", "slurm.conf"):
        assert "is in MIG mode" in found[name].problem and found[name].new == found[name].old
    assert not any(step.problem for step in steps(there, False)), "to observe it is enough"
