# SPDX-License-Identifier: Apache-2.0
"""By the guide: in, run, off, out, while others go on submitting. In a wrong order our files drain
nothing, and what Slurm itself would drain is refused beforehand."""

import json
import re

import pytest

from tests.harness.answers import as_documented
from tests.rollout import guide
from tests.rollout.hosts import CONTROLLER, LOGIN, NODE, SITE, Hosts, until, with_ours

MODEL = "/stage/clone/etc/examples/resnet50_torchinfo.txt"
SHARE = (f"--coloc={MODEL}", "--gpus=1", "--mem=100")
STUB = "#!/bin/sh\necho 'no such command' >&2\nexit 2\n"
UP = ("idle", "mixed", "allocated", "completing", "planned")

# What of the new slurm.conf is refused after each step, until slurmctld may read it.
NEXT = {
    guide.copy_files: "step 2: agents on node",
    guide.start_daemons: "step 3 on node",
    guide.ready_nodes: "step 4: the lines",
    guide.ready_controller: "step 5",
    guide.ready_login: "step 5",
    guide.switch_on: "nothing: it is on",
}
REFUSED = {
    guide.copy_files: {"rollout-submit", "rollout-node"},
    guide.start_daemons: {"rollout-submit", "rollout-node"},
    guide.ready_nodes: {"rollout-submit"},
}

pytestmark = pytest.mark.timeout(900)


def shards(hosts: Hosts, job_id: int) -> bool:
    """Whether the job asks for shards."""
    text = json.dumps(hosts.job(job_id).get("tres_per_node", ""))
    return "shard" in text


def test_the_guides_order(hosts: Hosts) -> None:
    """Each step with its check, in the order of the guide, and out again."""
    new = "/root/slurm.conf.new"
    hosts.put(CONTROLLER, new, with_ours(SITE))
    for step in guide.STEPS:
        hosts.plain()
        step(hosts)
        hosts.plain()
        told = NEXT[step]
        until(lambda t=told: hosts.next_step().startswith(t), 60, f"{step.__name__}: {told}")
        assert hosts.rollout()[0] == 0, (step.__name__, hosts.rollout()[1])
        code, found = hosts.rollout(new)
        refused = {name for name, one in found.items() if one["status"] == "fail"}
        assert refused == REFUSED.get(step, set()), (step.__name__, found)
        assert code == bool(refused)
        assert hosts.state() in UP, (step.__name__, hosts.reason())
    share = hosts.sbatch(*SHARE)
    hosts.wait(share)
    assert shards(hosts, share)
    assert "GiB for this job" in hosts.output(share), hosts.output(share)
    leave(hosts)
    hosts.all_ran()


def leave(hosts: Hosts) -> None:
    """`coloc leave` by its own words, with shares that run, wait and are held."""
    go = "until [ -e /home/ada/go ]; do sleep 0.2; done\nhostname\n"
    running = [hosts.sbatch(*SHARE, script=f"#!/bin/sh\n{go}") for _ in range(2)]
    for job_id in running:
        hosts.wait(job_id, "RUNNING")
    waiting = [
        hosts.sbatch(*SHARE, "--hold"),
        hosts.sbatch(*SHARE, f"--dependency=afterany:{running[0]}"),
        hosts.sbatch(*SHARE, "--array=1-2", "--hold"),
    ]
    code, told = steps(hosts)
    assert (code, told["switch off"]["state"]) == (1, "next")
    code, told = steps(hosts, "--yes")
    assert told["switch off"]["state"] == "done" and told["running shares"]["state"] == "waits"
    assert told["waiting shares"]["state"] == "done", told
    assert not any(shards(hosts, job_id) for job_id in waiting)
    hosts.sbatch(*SHARE)  # goes as submitted
    hosts.plain()
    hosts.run(LOGIN, "touch", "/home/ada/go")
    told = until(lambda: clear(hosts), 90, "no job has shards")
    edit(hosts, CONTROLLER, "/etc/slurm/slurm.conf", told["controller"]["lines"])
    guide.restart_controller(hosts)
    hosts.plain()
    code, told = steps(hosts)
    assert (told["controller"]["state"], told["nodes"]["state"]) == ("done", "by hand"), told
    hosts.put(NODE, "/etc/slurm/gres.conf", "".join(
        f"{line}\n"
        for line in hosts.read(NODE, "/etc/slurm/gres.conf").splitlines()
        if "Name=shard" not in line
    ))  # fmt: skip
    hosts.put(NODE, "/etc/slurm/slurm.conf", hosts.read(CONTROLLER, "/etc/slurm/slurm.conf"))
    hosts.put(NODE, "/etc/slurm/plugstack.conf", "")
    hosts.daemon(NODE, "restart", "slurmd")
    hosts.daemon(NODE, "stop", "agent")
    until(lambda: hosts.state() in UP, 60, "the node is up")
    hosts.plain()
    hosts.put(LOGIN, "/etc/slurm/slurm.conf", hosts.read(CONTROLLER, "/etc/slurm/slurm.conf"))
    hosts.put(LOGIN, "/etc/slurm/plugstack.conf", "")
    hosts.daemon(CONTROLLER, "stop", "colocd")
    for job_id in waiting:
        hosts.run(CONTROLLER, "scontrol", "release", str(job_id), check=False)
    code, told = steps(hosts)
    assert code == 0, told
    assert hosts.state() in UP


def steps(hosts: Hosts, *words: str) -> tuple[int, dict[str, dict[str, object]]]:
    done = hosts.run(CONTROLLER, "coloc", "leave", "--json", *words, check=False)
    assert done.returncode in (0, 1), done.stderr
    answer = as_documented(["leave"], json.loads(done.stdout))
    return done.returncode, {one["name"]: one for one in answer["steps"]}


def clear(hosts: Hosts) -> dict[str, dict[str, object]] | None:
    told = steps(hosts, "--yes")[1]
    return told if told["controller"]["state"] == "by hand" else None


def edit(hosts: Hosts, host: str, path: str, lines: object) -> None:
    """Change a file by the lines OLD  ->  NEW."""
    text = hosts.read(host, path)
    assert isinstance(lines, list) and lines
    for line in lines:
        old, new = line.split("  ->  ")
        assert re.search(f"^{re.escape(old)}$", text, re.MULTILINE), (old, text)
        text = text.replace(f"{old}\n", "" if new.startswith("(out") else f"{new}\n")
    hosts.put(host, path, text)


def test_lines_before_files_drain_nothing(hosts: Hosts) -> None:
    """slurm.conf and plugstack.conf have our lines everywhere, and no host has our files."""
    hosts.put(CONTROLLER, "/etc/slurm/job_submit.lua",
              hosts.read(CONTROLLER, "/stage/clone/etc/job_submit.lua"))  # fmt: skip
    guide.ready_nodes(hosts)
    hosts.put(CONTROLLER, "/etc/slurm/slurm.conf", with_ours(SITE))
    guide.restart_controller(hosts)
    guide.ready_login(hosts)
    for _ in range(3):
        hosts.plain()
    hosts.all_ran()
    assert hosts.state() in UP and hosts.reason() == ""


def test_old_and_broken_files_drain_nothing(hosts: Hosts) -> None:
    """All is on; then a node's program is another one, or gone, or its scripts are."""
    guide.install(hosts)
    for breaking in (
        "rm /usr/bin/coloc",
        "rm -rf /usr/libexec/slurm-coloc",
        "chmod 600 /usr/lib/*/slurm-wlm/coloc.so; rm /usr/lib/*/slurm-wlm/coloc.so",
    ):
        hosts.sh(NODE, breaking)
        job_id = hosts.sbatch(*SHARE)
        hosts.wait(job_id)
        if "coloc.so" not in breaking:
            assert "this node was not set up" in hosts.output(job_id), breaking
        assert "told colocd nothing" in hosts.run(
            CONTROLLER, "coloc", "explain", str(job_id)
        ).stdout.replace("\n", " ")
        assert hosts.state() in UP and hosts.reason() == "", breaking
    hosts.put(NODE, "/usr/bin/coloc", STUB)
    hosts.plain()
    hosts.all_ran()
    assert hosts.state() in UP and hosts.reason() == ""


def test_shards_on_the_controller_first_are_refused(hosts: Hosts) -> None:
    """The node does not have them: doctor says so before slurmctld reads the file. Done all the
    same, Slurm drains the node, as doctor said."""
    guide.copy_files(hosts)
    guide.start_daemons(hosts)
    hosts.sh(CONTROLLER, "cp /stage/clone/etc/job_submit.lua /etc/slurm/")
    hosts.put(CONTROLLER, "/etc/slurm/slurm.conf", with_ours(SITE))
    code, found = hosts.rollout()
    assert code == 1 and "would drain it" in found["rollout-node"]["found"], found
    assert "would offer 0 shard:a100" in found["rollout-node"]["found"]
    hosts.daemon(CONTROLLER, "restart", "slurmctld")
    bad = ("drain", "inval")
    until(lambda: any(word in hosts.state() for word in bad), 90, "Slurm drains the node")
    assert "gres" in hosts.reason(), hosts.reason()
    # Back by the guide's order: the node's files, then slurmd.
    guide.ready_nodes_files(hosts)
    hosts.daemon(NODE, "restart", "slurmd")
    until(lambda: resumed(hosts), 60, "the node is up again")
    hosts.plain()
    hosts.all_ran()


def resumed(hosts: Hosts) -> bool:
    """Whether the node is up after an admin's RESUME; slurmctld refuses it before slurmd has
    registered with the shards."""
    hosts.run(CONTROLLER, "scontrol", "update", "NodeName=node", "State=RESUME", check=False)
    return hosts.state() in UP


def test_a_hook_without_its_script_is_refused(hosts: Hosts) -> None:
    guide.copy_files(hosts)
    guide.start_daemons(hosts)
    guide.ready_nodes(hosts)
    hosts.put(CONTROLLER, "/root/new.conf", with_ours(SITE))
    code, found = hosts.rollout("/root/new.conf")
    assert code == 1 and "does not start" in found["rollout-submit"]["found"], found


def test_shards_are_not_taken_from_jobs(hosts: Hosts) -> None:
    """The lines are taken out while jobs have shards: doctor refuses, and names them."""
    guide.install(hosts)
    # The first share after slurmctld has read slurm.conf may get a whole GPU (docs/limits.md).
    held = [hosts.sbatch(*SHARE, "--hold") for _ in range(2)][-1]
    assert shards(hosts, held)
    hosts.put(CONTROLLER, "/root/plain.conf", SITE)
    code, found = hosts.rollout("/root/plain.conf")
    assert code == 1 and str(held) in found["rollout-jobs"]["found"], found
    assert "coloc leave" in found["rollout-jobs"]["todo"]
    for job_id in (held - 1, held):
        hosts.run(CONTROLLER, "scontrol", "release", str(job_id))
    hosts.all_ran()
