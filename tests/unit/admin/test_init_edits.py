# SPDX-License-Identifier: Apache-2.0
"""Edits of Slurm's files: the lines that change, and back to the byte."""

import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_coloc.admin.init import edits
from slurm_coloc.admin.init.edits import Edit
from slurm_coloc.errors import ConfigError

ETC = Path(__file__).resolve().parents[3] / "etc"
CONF = """\
ClusterName=site
JobSubmitPlugins=cray # of the site
GresTypes=gpu
NodeName=n[1-2] CPUs=16 Gres=gpu:a100:2 State=UNKNOWN
NodeName=n3 CPUs=16 \\
    Gres=gpu:h100:1,nic:2
PartitionName=main Nodes=n[1-3]
"""
LUA = """\
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.account == "banned" then return slurm.ERROR end
  if job_desc.account == "early" then return end
  return slurm.SUCCESS
end
slurm_job_modify = function(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
"""


def changed(text: str, found: list[Edit]) -> str:
    """The text after the edits, which can all be taken back."""
    new = edits.apply(text, found)
    assert edits.undo(new, found) == (text, [])
    return new


def conf(text: str, words: dict[str, tuple[str, ...]], shards: dict[str, str]) -> str:
    return changed(text, list(edits.slurm_conf(text, text.splitlines(), words, shards)))


def test_a_list_has_what_it_had_and_ours() -> None:
    new = conf(CONF, {"JobSubmitPlugins": ("lua",), "GresTypes": ("gpu", "shard")}, {})
    assert "JobSubmitPlugins=cray,lua # of the site\n" in new
    assert "GresTypes=gpu,shard\n" in new
    assert conf(new, {"JobSubmitPlugins": ("lua",)}, {}) == new


def test_a_list_that_is_not_there_is_added_at_the_end() -> None:
    text = "ClusterName=site\n"
    assert conf(text, {"JobSubmitPlugins": ("lua",)}, {}) == f"{text}JobSubmitPlugins=lua\n"


def test_of_two_lines_the_last_is_slurms() -> None:
    text = "GresTypes=gpu\nGresTypes=gpu,nic\n"
    assert conf(text, {"GresTypes": ("shard",)}, {}) == "GresTypes=gpu\nGresTypes=gpu,nic,shard\n"


def test_shards_beside_the_gpus_of_each_line() -> None:
    shards = {"n1": "shard:a100:78", "n2": "shard:a100:78", "n3": "shard:h100:79"}
    new = conf(CONF, {}, shards)
    assert "NodeName=n[1-2] CPUs=16 Gres=gpu:a100:2,shard:a100:78 State=UNKNOWN\n" in new
    assert "    Gres=gpu:h100:1,nic:2,shard:h100:79\n" in new
    assert conf(new, {}, shards) == new


@pytest.mark.parametrize(
    ("text", "shards", "said"),
    [
        (CONF, {"n1": "shard:a100:78", "n2": "shard:a100:39"}, "different GPUs"),
        (CONF, {"n9": "shard:a100:78"}, "no NodeName line for n9"),
        ("NodeName=n1 CPUs=2\n", {"n1": "shard:4"}, "no Gres on this line"),
    ],
)
def test_what_only_a_person_can_change(text: str, shards: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        conf(text, {}, shards)


def test_a_list_in_an_included_file_is_left_to_a_person() -> None:
    text, whole = "Include more.conf\n", ["GresTypes=gpu"]
    with pytest.raises(ConfigError, match="included file"):
        list(edits.slurm_conf(text, whole, {"GresTypes": ("shard",)}, {}))


def test_gres_conf_of_equal_and_of_different_cards() -> None:
    text = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
    new = changed(text, list(edits.gres_conf(text.splitlines(), "n1", (39, 39))))
    assert new == f"{text}NodeName=n1 Name=shard Count=78\n"
    assert list(edits.gres_conf(new.splitlines(), "n1", (39, 39))) == []
    found = list(edits.gres_conf(["AutoDetect=nvml"], "n1", (39, 79)))
    assert [one.new for one in found] == [
        "Name=shard Count=39 File=/dev/nvidia0",
        "Name=shard Count=79 File=/dev/nvidia1",
    ]


def test_shards_of_another_node_are_not_ours() -> None:
    text = "NodeName=n2 Name=shard Count=39\n"
    assert [one.new for one in edits.gres_conf(text.splitlines(), "n1", (39,))] == [
        "NodeName=n1 Name=shard Count=39"
    ]


def test_plugstack_once() -> None:
    found = list(edits.plugstack([], ("ctl1:6824", "ctl2:6824")))
    assert [one.new for one in found] == ["optional coloc.so controllers=ctl1:6824,ctl2:6824"]
    assert list(edits.plugstack(["required /opt/coloc.so"], ())) == []
    (found,) = edits.plugstack([], ("ctl1:6824",), user="hpc")
    assert found.new == "optional coloc.so controllers=ctl1:6824 slurm_user=hpc"


def test_a_line_by_which_a_login_node_finds_no_colocd() -> None:
    """One file for all hosts, with the line that the controller wrote."""
    line = ["optional coloc.so"]
    with pytest.raises(ConfigError, match="names no colocd: add controllers=ctl1:6824"):
        list(edits.plugstack(line, ("ctl1:6824",), away=True))
    assert list(edits.plugstack(line, ("ctl1:6824",))) == []
    assert list(edits.plugstack(["optional coloc.so controllers=a:1"], ("b:1",), away=True)) == []


def test_a_file_without_its_last_newline() -> None:
    assert edits.apply("A=1", [Edit(None, "B=2")]) == "A=1\nB=2\n"


def test_lines_that_others_changed_since_are_told() -> None:
    found = list(edits.slurm_conf(CONF, CONF.splitlines(), {"GresTypes": ("shard",)}, {}))
    text = edits.apply(CONF, found).replace("GresTypes=gpu,shard", "GresTypes=gpu,shard,nic")
    assert edits.undo(text, found) == (text, found)


def test_local_functions_are_left_to_a_person() -> None:
    with pytest.raises(ConfigError, match="no global function slurm_job_submit"):
        list(edits.job_submit(f"local {LUA}", (ETC / "job_submit.lua").read_text()))


@pytest.mark.skipif(not shutil.which("lua5.1"), reason="no lua5.1 on this machine")
@pytest.mark.parametrize("ending", ["\nreturn slurm.SUCCESS\n", "\n"])
def test_the_sites_rules_come_first(tmp_path: Path, ending: str) -> None:
    """Run by Lua: a job that the site refuses never reaches colocd, any other does, at the end."""
    text = LUA.replace("\nreturn slurm.SUCCESS\n", ending)
    sample = (ETC / "job_submit.lua").read_text().replace(
        "/usr/libexec/slurm-coloc/", f"{tmp_path}/"
    )  # fmt: skip
    new = changed(text, list(edits.job_submit(text, sample)))
    (tmp_path / "coloc.lua").write_text("""
return { setup = function() end,
  submit = function(job) job.seen = true return 7 end,
  modify = function() return 8 end }
""")
    (tmp_path / "job_submit.lua").write_text(new)
    assert not list(edits.job_submit(new, sample))
    done = lua(
        tmp_path,
        """
local a, b = { account = "banned" }, { account = "good" }
print(slurm_job_submit(a, {}, 1), a.seen, slurm_job_submit(b, {}, 1), b.seen,
      slurm_job_modify({}, {}, {}, 1))
local early = { account = "early" }
print(slurm_job_submit(early, {}, 1), early.seen)
""",
    )
    assert done.split() == ["-1", "nil", "7", "true", "8", "7", "true"]
    (tmp_path / "coloc.lua").unlink()
    done = lua(tmp_path, "print(slurm_job_submit({}, {}, 1), slurm_job_modify({}, {}, {}, 1))")
    assert done.split() == ["0", "0"]


def lua(folder: Path, script: str) -> str:
    head = "slurm = { SUCCESS = 0, ERROR = -1, log_error = function() end }\n"
    run = f'{head}assert(loadfile("{folder}/job_submit.lua"))()\n{script}'
    done = subprocess.run(["lua5.1", "-"], input=run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
