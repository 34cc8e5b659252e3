# SPDX-License-Identifier: Apache-2.0
"""`coloc limits --apply` and `--undo`: what was set is written down, and that alone is taken back.

On a real slurmdbd in tests/compose; here a dictionary stands for it."""

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.admin import limits, limits_applied
from slurm_coloc.config import Config, load_config
from slurm_coloc.core.slurm.billing import parse_weights
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.core.slurm.qos_limits import LimitOwner, SiteLimits, parse_counts
from slurm_coloc.errors import ColocError, SlurmError

WEIGHTS = "GRES/gpu=39,GRES/shard=1"
SHAPE = ClusterShape(
    "c",
    (24, 11, 5),
    (NodeShape("g1", ("main",), (), "a100", 4, 156),),
    (PartitionShape("main", default=True),),
)

Qos = dict[str, dict[str, dict[str, int]]]


class Dbd:
    """The limits of QOS, and `sacctmgr modify qos` of them."""

    def __init__(self, **qos: dict[str, dict[str, int]]) -> None:
        self.qos: Qos = qos
        self.refuses = ""
        self.names = ["c"]

    async def clusters(self) -> list[str]:
        return self.names

    async def shape(self) -> ClusterShape:
        return SHAPE

    async def billing_weights(self) -> dict[str, str]:
        return {"main": WEIGHTS}

    async def limits(self, cluster: str) -> SiteLimits:
        found = {name: LimitOwner(qos=name, limits=all_) for name, all_ in self.qos.items()}
        return SiteLimits(found, (), {"main": parse_weights(WEIGHTS)})

    async def set_limit(self, *command: str) -> None:
        name = command[4].removeprefix("name=")
        if self.refuses == name:
            raise SlurmError("not an operator", "slurm-refused")
        option, _, values = command[6].partition("=")
        for item in values.split(","):
            tres, _, count = item.rpartition("=")
            if count == "-1":
                self.qos[name][option].pop(tres, None)
            else:
                self.qos[name][option] |= parse_counts(item)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "coloc.toml"
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    path.write_text(
        f'version = 1\n[daemon]\nstate_dir = "{state}"\n'
        f'slurm_user = "{pwd.getpwuid(os.geteuid()).pw_name}"\n'
    )
    return load_config(path)


@pytest.fixture
def dbd(monkeypatch: pytest.MonkeyPatch) -> Dbd:
    """One QOS that the site limited itself just as the rule does, and one that it did not."""
    found = Dbd(
        theirs={"MaxTRESPerUser": {"gres/gpu": 2, "billing": 78}, "MinTRESPerJob": {"billing": 1}},
        few={"MaxTRESPerUser": {"gres/gpu": 1}, "MinTRESPerJob": {"gres/gpu": 1}},
    )
    monkeypatch.setattr(limits, "connect", lambda daemon, briefly: found)
    return found


def run(config: Config, *, back: bool = False) -> limits.Found:
    """`coloc limits --apply --yes`, with --undo."""
    found = limits.read(config, back=back)
    if found.plan.changes or back:
        limits.apply(config, found, lambda line: None, back=back)
    return found


def copy(dbd: Dbd) -> Any:
    return json.loads(json.dumps(dbd.qos))


def record(config: Config) -> Path:
    return config.daemon.state_dir / limits_applied.NAME


def test_what_the_site_set_itself_stays(config: Config, dbd: Dbd) -> None:
    before = copy(dbd)
    run(config)
    assert dbd.qos["few"]["MaxTRESPerUser"] == {"gres/gpu": 1, "billing": 39}
    assert dbd.qos["few"]["MinTRESPerJob"] == {"billing": 1}
    assert record(config).stat().st_mode & 0o777 == 0o600
    run(config)  # nothing more to do, and nothing is forgotten
    run(config, back=True)
    assert copy(dbd) == before
    again = run(config, back=True)
    assert not again.plan.changes and copy(dbd) == before


def test_without_a_record_nothing_is_undone(config: Config, dbd: Dbd) -> None:
    before = copy(dbd)
    found = run(config, back=True)
    assert copy(dbd) == before
    assert "no record" in found.plan.notes[0] and str(record(config)) in found.plan.notes[0]


def test_what_was_changed_since_is_left(config: Config, dbd: Dbd) -> None:
    run(config)
    dbd.qos["few"]["MaxTRESPerUser"]["billing"] = 100
    found = run(config, back=True)
    assert dbd.qos["few"]["MaxTRESPerUser"] == {"gres/gpu": 1, "billing": 100}
    assert dbd.qos["few"]["MinTRESPerJob"] == {"gres/gpu": 1}
    assert "QOS few, MaxTRESPerUser: was changed since" in found.plan.notes[0]
    assert limits_applied.read(config, SHAPE.name) == (), "it is the site's: `coloc leave` may end"


def test_a_qos_holds_on_other_clusters_too(config: Config, dbd: Dbd) -> None:
    """Their prices are not this cluster's: billing=39 may be 39 CPUs there."""
    dbd.names = ["c", "other"]
    before = copy(dbd)
    found = run(config)
    assert copy(dbd) == before and not found.plan.changes
    assert any("holds on all 2 clusters" in note for note in found.plan.notes)


def test_a_second_apply_adds_to_the_record(config: Config, dbd: Dbd) -> None:
    run(config)
    dbd.qos["more"] = {"GrpTRES": {"gres/gpu": 4}}
    run(config)
    assert dbd.qos["more"]["GrpTRES"]["billing"] == 156
    run(config, back=True)
    assert dbd.qos["more"] == {"GrpTRES": {"gres/gpu": 4}}
    assert dbd.qos["few"] == {"MaxTRESPerUser": {"gres/gpu": 1}, "MinTRESPerJob": {"gres/gpu": 1}}


def test_a_refused_change_is_not_ours(config: Config, dbd: Dbd) -> None:
    dbd.refuses = "few"
    with pytest.raises(SlurmError):
        run(config)
    dbd.refuses = ""
    dbd.qos["few"]["MaxTRESPerUser"]["billing"] = 39  # the admin does it by hand
    run(config, back=True)
    assert dbd.qos["few"]["MaxTRESPerUser"]["billing"] == 39


def test_what_cannot_be_written_down_is_not_set(config: Config, dbd: Dbd) -> None:
    before = copy(dbd)
    config.daemon.state_dir.chmod(0o777)  # a folder that others may write in is not taken
    found = limits.read(config)
    with pytest.raises(ColocError):
        limits.apply(config, found, lambda line: None)
    assert copy(dbd) == before


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": 1, "cluster": "other", "set": []}',
     '{"schema": 9, "cluster": "c", "set": []}',
     '{"schema": 1, "cluster": "c", "set": [{"qos": "few"}]}'],
)  # fmt: skip
def test_a_record_that_is_none_is_told(config: Config, dbd: Dbd, text: str) -> None:
    before = copy(dbd)
    record(config).write_text(text)
    record(config).chmod(0o600)
    for back in (False, True):
        with pytest.raises(ColocError) as caught:
            run(config, back=back)
        assert caught.value.code == "bad-file"
    assert copy(dbd) == before
