# SPDX-License-Identifier: Apache-2.0
"""From the packages to the first observed job, to `on`, to the first shared pair, and out again: by
the commands of docs/admin/install.md, with slurm.conf byte for byte as it was."""

import json
import time
from pathlib import Path

import pytest

from tests.packages import figures, guide
from tests.packages.faults import FAULTS, planted
from tests.packages.guide import EDITS, SHARE, UP
from tests.packages.hosts import CONTROLLER, GRES, HOSTS, LOGIN, NODES, SITE, Hosts
from tests.rollout.hosts import until

GUIDE = (Path(__file__).resolve().parents[2] / "docs/admin/install.md").read_text()

pytestmark = pytest.mark.timeout(1200)


def test_in_and_out_again(hosts: Hosts) -> None:
    before = {}
    packages = figures.installed(hosts)
    for host in HOSTS:
        hosts.run(host, "apt-get -qq update")
        before[host] = hosts.files(host)
    plain = hosts.sbatch("--gres=gpu:1", user="ben")
    begin = time.monotonic()
    observe(hosts)
    report("observe", hosts, begin)
    begin = time.monotonic()
    share(hosts)
    report("share", hosts, begin)
    print(f"the node's part:\n{figures.lines_of(hosts, packages)}")
    found, missed = planted(hosts)
    print(f"doctor: {found} of {len(FAULTS)} planted faults found")
    assert not missed, "\n".join(missed)
    assert found >= 40
    begin = time.monotonic()
    leave(hosts)
    report("leave", hosts, begin)
    purged(hosts, before)
    hosts.wait(plain, "COMPLETED")


def report(what: str, hosts: Hosts, begin: float) -> None:
    """The commands of a part, which the guide has as they are."""
    for _, command, _ in hosts.given if what in ("observe", "share") else ():
        for line in command.split(" && coloc"):
            assert line.removeprefix("coloc") in GUIDE, command
    print(f"\n{what}: {len(hosts.given)} commands, {time.monotonic() - begin:.0f} s")
    for host, command, seconds in hosts.given:
        print(f"  {host:<10} {seconds:5.1f} s  {command}")
    hosts.given.clear()


def observe(hosts: Hosts) -> None:
    guide.observe(hosts)
    job_id = hosts.sbatch(SHARE)
    hosts.wait(job_id, "COMPLETED")
    assert "shard" not in json.dumps(hosts.job(job_id).get("tres_per_node", ""))
    guide.settled(hosts)
    told = json.loads(hosts.run(CONTROLLER, "coloc history --json").stdout)
    newest = told["observed"][0]
    # Natively nothing keeps other users off a GPU yet: the admin decides that before `on`.
    assert newest["memory_mib"] and newest["reason"] == "sharing-with", newest
    assert hosts.states() <= UP


def share(hosts: Hosts) -> None:
    """Sharing, and two jobs on one GPU."""
    early = hosts.run(
        CONTROLLER, "coloc init --share --json", check=False
    )  # the nodes offer nothing yet: there is nothing to write
    assert "shard:a100" not in early.stdout, early.stdout
    guide.share(hosts)
    said = hosts.run(CONTROLLER, "coloc doctor --rollout").stdout
    assert "nothing: it is on for partition main" in said, said
    guide.settled(hosts)
    pair = [hosts.sbatch(SHARE, "nvidia-smi -L; sleep 20") for _ in range(2)]
    for job_id in pair:
        hosts.wait(job_id, "RUNNING", "COMPLETED")
        assert "shard" in json.dumps(hosts.job(job_id)["tres_per_node"]), hosts.output(job_id)
    for job_id in pair:
        hosts.wait(job_id, "COMPLETED")
        assert "GiB for this job" in hosts.output(job_id), hosts.output(job_id)


def leave(hosts: Hosts) -> None:
    """Back to plain Slurm, file by file."""
    early = hosts.run(CONTROLLER, "coloc leave --yes --edit slurm.conf", check=False)
    assert early.returncode == 1
    hosts.guide(CONTROLLER, "coloc leave --yes --wait --edit slurm.conf", code=1)
    assert hosts.read(CONTROLLER, "/etc/slurm/slurm.conf") == SITE
    hosts.guide(CONTROLLER, "systemctl restart slurmctld && scontrol reconfigure")
    for node in NODES:
        hosts.guide(node, f"coloc leave --yes {EDITS}", code=1)
        hosts.guide(node, "systemctl restart slurmd && systemctl stop slurm-coloc-agent")
        assert hosts.read(node, "/etc/slurm/slurm.conf") == SITE
        assert hosts.read(node, "/etc/slurm/gres.conf") == GRES
    hosts.guide(LOGIN, "coloc leave --yes --edit plugstack.conf", code=1)
    hosts.guide(CONTROLLER, "coloc leave --yes --edit job_submit.lua --edit plugstack.conf", code=1)
    hosts.guide(CONTROLLER, "systemctl disable --now slurm-coloc")
    hosts.guide(CONTROLLER, "coloc leave")
    until(lambda: hosts.states() <= UP, 60, "the nodes are up")
    after = hosts.sbatch("--gres=gpu:1", user="ben")
    hosts.wait(after, "COMPLETED")


def purged(hosts: Hosts, before: dict[str, set[str]]) -> None:
    """apt purge leaves nothing but the database."""
    for host in HOSTS:
        hosts.run(host, "apt-get purge -y 'slurm-coloc*' && apt-get autoremove --purge -y")
        left = hosts.files(host) - before[host]
        ours = {path for path in left if "coloc" in path}
        wanted = {"/var/lib/slurm-coloc"} if host == CONTROLLER else set()
        assert {path for path in ours if not path.startswith("/var/lib/slurm-coloc/")} == wanted, (
            host, ours)  # fmt: skip
        lost = before[host] - hosts.files(host)
        assert not lost, (host, lost)
    hosts.run(CONTROLLER, "systemctl restart slurmctld")
    until(lambda: hosts.states() <= UP, 60, "the nodes are up")
