# SPDX-License-Identifier: Apache-2.0
"""coloc doctor --rollout without Slurm: what it refuses, and the order of the steps."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_coloc.adapters import probe, slurmd
from slurm_coloc.admin.rules import rollout
from slurm_coloc.admin.rules.conf_file import ConfFile, parse_conf
from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.admin.rules.rollout import NodeSays, Site
from slurm_coloc.core.slurm.cluster import NodeShape
from slurm_coloc.errors import GpuError
from slurm_coloc.flow.measure.node_setup import COUNTS_S, GresCounts, NodeSetup, examined
from slurm_coloc.flow.nodes.node_setup import read_setup

BEFORE = ["GresTypes=gpu", "SelectType=select/cons_tres", "NodeName=n[1-2] CPUs=8 Gres=gpu:a100:4"]
AFTER = [
    "JobSubmitPlugins=lua",
    "GresTypes=gpu,shard",
    "SelectType=select/cons_tres",
    "NodeName=n[1-2] CPUs=8 Gres=gpu:a100:4,shard:a100:156 State=UNKNOWN",
]
OLD = {"gpu:a100": 4}
NEW = {"gpu:a100": 4, "shard:a100": 156}


def node(name: str, **says: object) -> NodeSays:
    """A node that is ready for shards, but for ``says``."""
    shape = NodeShape(name, ("main",), (), "a100", 4, 0)
    ready = NodeSays(
        *(shape, True, True, NEW, 100.0, 200.0, 100.0),
        plugin="24.11",
        plugstack=True,
        hooks=True,
    )
    return replace(ready, **says)  # type: ignore[arg-type]


def site(*nodes: NodeSays, **says: object) -> Site:
    return replace(Site("24.11", nodes, script="text"), **says)  # type: ignore[arg-type]


def failed(lines: list[str], one: Site) -> dict[str, str]:
    """Check and text of all that refuse the file."""
    found = rollout.checks(parse_conf(lines), one)
    return {each.check: each.found for each in found if each.status is Status.FAIL}


def next_of(lines: list[str], one: Site) -> str:
    return rollout.next_step(parse_conf(lines), one).found


def test_a_file_without_shards_is_always_taken() -> None:
    assert not failed(BEFORE, site(node("n1", linked=False, told=False), node("n2", gres=OLD)))


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"linked": False}, "its agent says nothing"),
        ({"told": False}, "an older one"),
        ({"gres": OLD}, "would offer 0 shard:a100, wanted are 156"),
        ({"gres": {"gpu:a100": 4, "shard:a100": 155}}, "155 shard:a100, wanted are 156"),
        ({"gres": {"gpu:h100": 4, "shard:h100": 156}}, "0 gpu:a100, wanted are 4"),
        ({"why": "slurmd -G: exit 1"}, "not known: slurmd -G: exit 1"),
        ({"slurmd_s": None}, "no slurmd runs"),
        ({"slurmd_s": 50.0}, "started before they were changed"),
    ],
)
def test_a_node_that_slurm_would_drain(says: dict[str, object], words: str) -> None:
    found = failed(AFTER, site(node("n1"), node("n2", **says)))
    assert set(found) == {"rollout-n2"}
    assert words in found["rollout-n2"] and "would drain it" in found["rollout-n2"]


def test_all_nodes_are_ready() -> None:
    assert not failed(AFTER, site(node("n1"), node("n2")))
    # A node that offers more than is wanted is not drained; untyped wishes count all types.
    more = {"gpu:a100": 4, "shard:a100": 160}
    assert not failed(AFTER, site(node("n1", gres=more)))
    plain = [line.replace("shard:a100:156", "shard:156") for line in AFTER]
    assert not failed(plain, site(node("n1", gres={"gpu:a100": 4, "shard:a100": 156})))


def test_shards_in_force_are_not_asked_for_again() -> None:
    shape = replace(node("n1").shape, shards=156)
    assert not failed(AFTER, site(NodeSays(shape)))
    down = replace(shape, usable=False)
    assert "rollout-n1" in failed(AFTER, site(NodeSays(down)))


def test_what_slurmctld_does_not_start_with() -> None:
    ready = site(node("n1"))
    assert "does not start" in failed(AFTER, replace(ready, script=None))["rollout-submit"]
    assert "line 3" in failed(AFTER, replace(ready, broken="line 3"))["rollout-submit"]
    tres = [*AFTER, "AccountingStorageTRES=gres/gpu,gres/shard"]
    assert set(failed(tres, ready)) == {"rollout-tres"}
    assert not failed([*tres, "AccountingStorageType=accounting_storage/slurmdbd"], ready)
    types = [line.replace("gpu,shard", "gpu") for line in AFTER]
    assert "GresTypes has not" in failed(types, ready)["rollout-gres"]
    linear = [line.replace("cons_tres", "linear") for line in AFTER]
    assert "cons_tres" in failed(linear, ready)["rollout-gres"]


def test_a_prolog_line_that_names_our_file() -> None:
    lines = [*AFTER, "Prolog=/etc/slurm/prolog.d/*", "Epilog=/usr/libexec/slurm-coloc/coloc-epilog"]
    found = failed(lines, site(node("n1")))
    assert set(found) == {"rollout-prolog"} and "drained" in found["rollout-prolog"]


def test_shards_are_not_taken_from_jobs() -> None:
    shape = replace(node("n1").shape, shards=156)
    with_jobs = site(replace(node("n1"), shape=shape), shares=("7", "9_[1-3]"))
    found = failed(BEFORE, with_jobs)
    assert set(found) == {"rollout-jobs"} and "7, 9_[1-3]" in found["rollout-jobs"]
    line = [*AFTER[:3], "NodeName=n1 Gres=gpu:a100:4"]
    assert "takes the shards of n1" in failed(line, with_jobs)["rollout-jobs"]
    assert not failed(AFTER, with_jobs)
    assert not failed(BEFORE, replace(with_jobs, shares=()))


def test_the_order_of_the_steps() -> None:
    silent = site(node("n1", linked=False), node("n2"))
    assert next_of(BEFORE, silent).startswith("step 2: agents on n1,")
    bare = site(node("n1", gres=OLD), node("n2", plugstack=False))
    assert next_of(BEFORE, bare).startswith("step 3 on n1, n2: ")
    ready = site(node("n1"), node("n2"), mode="observe")
    assert next_of(BEFORE, ready).startswith("step 4: the lines")
    assert next_of(AFTER, ready).startswith("step 4: restart slurmctld")
    force = replace(ready, types_in_force=frozenset({"gpu", "shard"}), submit_in_force=True)
    assert next_of(AFTER, force).startswith("step 5")
    assert next_of(AFTER, replace(force, mode="on")).startswith("nothing")
    some = replace(force, mode="observe", on_for=("partition gpu",))
    assert next_of(AFTER, some) == "nothing: it is on for partition gpu"
    assert "away" in next_of(AFTER, replace(force, mode=""))


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"plugin": ""}, "coloc.so is not there"),
        ({"plugin": "22.05"}, "is for Slurm 22.05"),
        ({"plugstack": False}, "does not name coloc.so"),
        ({"hooks": False}, "missing or cannot be run"),
        ({"stack_s": 300.0}, "restart it"),
        ({}, ""),
    ],
)
def test_what_a_share_would_lack(says: dict[str, object], words: str) -> None:
    found = rollout.lacks(node("n1", **says), "24.11")
    assert words in found and bool(words) == bool(found)
    warned = list(rollout.checks(parse_conf(AFTER), site(node("n1", **says))))
    by_check = {one.check: one.status for one in warned}
    assert by_check["rollout-files"] is (Status.WARN if words else Status.OK)
    assert Status.FAIL not in by_check.values()


def test_parse_conf(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("GresTypes=gpu,shard\n")
    (tmp_path / "slurm.conf").write_text(
        "gresTYPES=gpu # not this\nNodeName=DEFAULT Gres=gpu:2 CPUs=2\nNodeName=a[1-3]\n"
        'NodeName=b1 \\\n  Gres="gpu:1,shard:39"\nPartitionName=main Nodes=ALL\nInclude more.conf\n'
    )
    conf: ConfFile = parse_conf(probe.plugstack(tmp_path / "slurm.conf"))
    assert conf.words("GresTypes") == {"gpu", "shard"}
    assert (conf.gres("a2"), conf.gres("b1"), conf.gres("c")) == ("gpu:2", "gpu:1,shard:39", None)
    assert conf.value("PartitionName") == ""


def test_what_slurmd_prints() -> None:
    text = (
        "slurmd: Gres Name=shard Type=a100 Count=39 ID=1918986455 File=/dev/nvidia0 (null)\n"
        "slurmd: Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)\n"
        "slurmd: Gres Name=shard Type=a100 Count=39 ID=1918986455 File=/dev/nvidia1 (null)\n"
        "slurmd: Gres Name=gpu Type=(null) Count=2 ID=7696487 File=/dev/nvidia[1-2] (null)\n"
        "slurmd: error: Ignoring gres.conf record, invalid name: shard\n"
    )
    assert slurmd.parse_counts(text) == {"shard:a100": 78, "gpu:a100": 1, "gpu": 2}


def test_the_agent_tells_what_is_there(tmp_path: Path) -> None:
    """Nothing is there: it says so, and colocd takes it."""
    (tmp_path / "slurm.conf").write_text(
        f"ClusterName=x\nPlugStackConfig={tmp_path}/stack.conf\nPluginDir={tmp_path}\n"
    )
    (tmp_path / "stack.conf").write_text(f"optional coloc.so hooks={tmp_path}\n")
    environ = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    counts = GresCounts(environ, "n1")
    found = examined(environ, "n1", counts)
    assert (found["plugin"], found["plugstack"], found["hooks"]) == ("", True, False)
    assert found["conf_s"] and found["stack_s"]
    for kind in ("prolog", "epilog"):
        (tmp_path / f"coloc-{kind}").write_text("#!/bin/sh\n")
        (tmp_path / f"coloc-{kind}").chmod(0o755)
    assert examined(environ, "n1", counts)["hooks"]
    told = read_setup(NodeSetup(environ, "n1").latest())
    assert told is not None and told["plugstack"]


def test_an_agent_asks_slurmd_again_where_its_answer_may_be_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    now_s = 1000.0
    answers: list[dict[str, int] | None] = [OLD]

    def gres_counts(environ: object, node: str, conf: Path) -> dict[str, int]:
        asked.append(conf)
        if answers[0] is None:
            raise GpuError("slurmd -G: exit 1")
        return answers[0]

    monkeypatch.setattr("slurm_coloc.adapters.slurmd.gres_counts", gres_counts)
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    conf = tmp_path / "slurm.conf"
    conf.write_text("Include nodes.conf\n")
    counts = GresCounts({}, "n1")
    assert [counts.latest(conf, 5.0) for _ in range(3)] == [OLD] * 3 and len(asked) == 1
    answers[0] = None
    (tmp_path / "gres.conf").write_text("Name=shard Count=156\n")
    for _ in range(2):  # no old answer for new files
        with pytest.raises(GpuError, match="exit 1"):
            counts.latest(conf, 5.0)
    answers[0] = NEW
    assert counts.latest(conf, 5.0) == NEW and len(asked) == 4
    counts.latest(conf, 6.0)  # slurmd was started again
    assert len(asked) == 5
    now_s += COUNTS_S
    counts.latest(conf, 6.0)
    assert len(asked) == 6
    counts.latest(conf, None)  # no slurmd runs
    counts.latest(conf, None)
    assert len(asked) == 8


@pytest.mark.parametrize(
    "told",
    [None, 7, {"gres": {"x\n": 1}}, {"gres": {"gpu": -1}}, {"why": "x" * 300}, {"conf_s": "nan"}],
)
def test_what_an_agent_may_not_tell(told: object) -> None:
    assert read_setup(told) is None


@pytest.mark.skipif(not shutil.which("lua5.1"), reason="no lua5.1 on this machine")
@pytest.mark.parametrize(
    ("text", "broken"), [("return 0\n", ""), ("function (\n", "expected near")]
)
def test_a_script_is_read_by_lua(tmp_path: Path, text: str, broken: str) -> None:
    path = tmp_path / "job_submit.lua"
    path.write_text(text)
    said = probe.lua_broken(path)
    assert broken in said and bool(broken) == bool(said)
