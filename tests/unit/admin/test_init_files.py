# SPDX-License-Identifier: Apache-2.0
"""Files of the site: written only where named, never through a link, and put back to the byte."""

from dataclasses import astuple, replace
from pathlib import Path

import pytest

from slurm_coloc.adapters import sitefile
from slurm_coloc.admin import init
from slurm_coloc.admin.init.edits import Edit, apply
from slurm_coloc.admin.init.plan import FileStep
from slurm_coloc.admin.leave import undo
from slurm_coloc.admin.leave.plan import Facts, Shares
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.errors import ConfigError, UsageFault

OLD = "ClusterName=site\nGresTypes=gpu\n"
EDITS = (Edit("GresTypes=gpu", "GresTypes=gpu,shard"), Edit(None, "JobSubmitPlugins=lua"))
SHAPE = ClusterShape(name="site", release=(24, 11), nodes=(), partitions=())
FREE = Facts(off=True, off_file="/x", work=0, shares=Shares(), shape=SHAPE)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "before"
    for name in ("changes", "keep", "before", "forget"):
        made = getattr(sitefile, name)
        monkeypatch.setattr(made, "__defaults__", (folder,))
    return folder


def step(path: Path, edits: tuple[Edit, ...] = EDITS) -> FileStep:
    old = sitefile.text_of(path)
    return FileStep(path, old, apply(old, edits), "a test", edits)


def test_only_what_is_named(tmp_path: Path) -> None:
    conf, own = tmp_path / "slurm.conf", tmp_path / "coloc.toml"
    conf.write_text(OLD)
    conf.chmod(0o640)
    found = [FileStep(own, "", "version = 1\n", "ours"), step(conf)]
    done, left = init.apply(found, [])
    assert [one.path for one in done] == [own] and "--edit slurm.conf" in left[0]
    assert conf.read_text() == OLD
    done, left = init.apply(found[1:], ["slurm.conf"])
    assert conf.read_text() == apply(OLD, EDITS) and not left
    assert conf.stat().st_mode & 0o777 == 0o640
    kept = [path.stat().st_mode & 0o777 for path in (tmp_path / "before").iterdir()]
    assert kept == [0o600, 0o600]  # the first text, and what was done
    with pytest.raises(UsageFault, match="not fstab"):
        init.apply(found, ["fstab"])


@pytest.mark.parametrize("name", ["slurm.conf", "gres.conf", "plugstack.conf"])
def test_a_file_of_slurms_that_is_not_there_has_to_be_named_too(tmp_path: Path, name: str) -> None:
    found = [step(tmp_path / name, EDITS[1:])]
    assert init.apply(found, [])[0] == [] and not (tmp_path / name).exists()
    assert init.apply(found, [name])[1] == [] and (tmp_path / name).exists()


def test_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    real = tmp_path / "shared" / "slurm.conf"
    real.write_text(OLD)
    (tmp_path / "slurm.conf").symlink_to(real)
    (tmp_path / "etc").symlink_to(tmp_path / "shared")
    for path in (tmp_path / "slurm.conf", tmp_path / "etc" / "slurm.conf"):
        done, left = init.apply([step(path)], ["slurm.conf"])
        assert not done and "symbolic link" in left[0]
    assert real.read_text() == OLD


def test_not_where_it_came_configless(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "slurm" / "conf"
    folder.mkdir(parents=True)
    (folder / "slurm.conf").write_text(OLD)
    done, left = init.apply([step(folder / "slurm.conf")], ["slurm.conf"])
    assert not done and "configless" in left[0]


def test_a_script_that_lua_cannot_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "job_submit.lua"
    path.write_text("x = 1\n")
    found = [FileStep(path, "x = 1\n", "function (\n", "a test", EDITS)]
    done, left = init.apply(found, ["job_submit.lua"])
    if left:  # without lua5.1 it cannot be known
        assert not done and "would be broken" in left[0]


def test_back_to_the_byte_after_two_rounds(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(OLD + "# no newline at the end")
    was = conf.read_bytes()
    for edits in (EDITS[:1], EDITS[1:]):
        assert init.apply([step(conf, edits)], ["slurm.conf"])[1] == []
    assert list(undo.take_back(["slurm.conf"], FREE)) == [
        (True, f"{conf}: byte for byte as it was before coloc init")
    ]
    assert conf.read_bytes() == was and sitefile.changes() == {}


def test_what_the_site_changed_since_stays(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(OLD)
    init.apply([step(conf)], ["slurm.conf"])
    conf.write_text(conf.read_text() + "MaxJobCount=7\n")
    ((done, said),) = undo.take_back(["slurm.conf"], FREE)
    assert done and "others changed" in said
    assert conf.read_text() == OLD + "MaxJobCount=7\n"


def test_a_change_between_two_rounds_is_kept(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(OLD)
    init.apply([step(conf, EDITS[:1])], ["slurm.conf"])
    conf.write_text(conf.read_text() + "MaxJobCount=7\n")
    init.apply([step(conf, EDITS[1:])], ["slurm.conf"])
    assert next(iter(undo.take_back(["slurm.conf"], FREE)))[0]
    assert conf.read_text() == OLD + "MaxJobCount=7\n"


def test_lines_that_are_no_longer_ours_are_told(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(OLD)
    init.apply([step(conf)], ["slurm.conf"])
    text = conf.read_text().replace("GresTypes=gpu,shard", "GresTypes=gpu,shard,nic")
    conf.write_text(text)
    ((done, said),) = undo.take_back(["slurm.conf"], FREE)
    assert not done and "by hand: GresTypes=gpu,shard" in said
    assert conf.read_text() == text


def test_a_file_that_init_made_goes(tmp_path: Path) -> None:
    stack = tmp_path / "plugstack.conf"
    init.apply([step(stack, EDITS[1:])], ["plugstack.conf"])
    assert next(iter(undo.take_back(["plugstack.conf"], FREE)))[0]
    assert not stack.exists()


@pytest.mark.parametrize("name", ["slurm.conf", "plugstack.conf"])
def test_not_before_its_turn(tmp_path: Path, name: str) -> None:
    conf = tmp_path / name
    conf.write_text(OLD)
    init.apply([step(conf)], [name])
    busy = Facts(
        off=False, off_file="/x", work=0, shares=Shares(), shape=SHAPE, in_force=("78 shards",)
    )
    ((done, said),) = undo.take_back([name], busy)
    assert not done and "first the steps before" in said
    assert conf.read_text() == apply(OLD, EDITS)


def test_the_script_goes_after_slurmctld_let_go_of_it(tmp_path: Path) -> None:
    script = tmp_path / "job_submit.lua"
    init.apply([FileStep(script, "", "x = 1\n", "ours")], [])
    facts = Facts(
        off=True, off_file="/x", work=0, shares=Shares(), shape=SHAPE,
        hook_in_force=True, script_is_ours=True,
    )  # fmt: skip
    assert not next(iter(undo.take_back(["job_submit.lua"], facts)))[0] and script.exists()
    assert next(iter(undo.take_back(["job_submit.lua"], FREE)))[0] and not script.exists()


def test_a_broken_record_is_an_error_and_loses_nothing(tmp_path: Path, kept: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(OLD)
    sitefile.keep(conf, OLD, OLD, [astuple(one) for one in EDITS], "slurm.conf")
    (kept / sitefile.RECORD).write_text("{")
    with pytest.raises(ConfigError, match=r"changes\.json"):
        list(undo.take_back(["slurm.conf"], FREE))


def test_a_site_s_file_of_another_name_is_slurm_s_too(tmp_path: Path, kept: Path) -> None:
    """PlugStackConfig=/etc/slurm/spank.conf."""
    path = tmp_path / "spank.conf"
    path.write_text(OLD)
    one = replace(step(path), name="plugstack.conf")
    assert init.apply([one], []) == ([], [f"{path}: only with --edit plugstack.conf"])
    assert path.read_text() == OLD
    assert init.apply([one], ["plugstack.conf"]) == ([one], [])
    assert path.read_text() != OLD
    ((done, _),) = undo.take_back(["plugstack.conf"], FREE)
    assert done and path.read_text() == OLD
