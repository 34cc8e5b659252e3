# SPDX-License-Identifier: Apache-2.0
"""From the packages to the first observed job, to `on`, to the first shared pair, and out again: by
the commands of docs/admin/install.md, with slurm.conf byte for byte as it was."""

import json
import time
from pathlib import Path

import pytest

from tests.packages import figures
from tests.packages.faults import FAULTS, planted
from tests.packages.hosts import CONTROLLER, GRES, HOSTS, LOGIN, NODES, SITE, Hosts
from tests.packages.upgrade import upgrade
from tests.rollout.hosts import until

MODEL = "/usr/share/slurm-coloc/examples/resnet50_torchinfo.txt"
SHARE = f"--coloc={MODEL} --gpus=1 --mem=100"
UP = {"idle", "mixed", "allocated", "completing", "planned"}
DEB = "slurm-coloc_*.deb ./slurm-coloc-spank-*.deb ./slurm-coloc-"
GUIDE = (Path(__file__).resolve().parents[2] / "docs/admin/install.md").read_text()
#: sharing for one partition, natively; a busy machine of containers takes its time
ON = """
[estimate]
time_limit_ms = 2940

[sharing]
with = "anyone"
users = "all"

[placement]
idle_first = false

[[mode.rules]]
partition = "main"
mode = "on"
"""

pytestmark = pytest.mark.timeout(1200)


def install(part: str) -> str:
    return f"cd /root/packages && apt-get install -y ./{DEB}{part}_*.deb"


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
    upgrade(hosts, SHARE)
    report("upgrade", hosts, begin)
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
    """The packages, and no job changed."""
    hosts.guide(CONTROLLER, install("controller"))
    hosts.guide(CONTROLLER, "coloc init --apply --edit slurm.conf --edit plugstack.conf")
    hosts.guide(CONTROLLER, "systemctl restart slurmctld")
    for node in NODES:
        hosts.guide(node, install("node"))
    hosts.guide(LOGIN, f"{install('login')} && coloc init --apply --edit plugstack.conf")
    until(lambda: linked(hosts) == set(NODES), 60, "both agents are linked")
    job_id = hosts.sbatch(SHARE)
    hosts.wait(job_id, "COMPLETED")
    assert "shard" not in json.dumps(hosts.job(job_id).get("tres_per_node", ""))
    # The first one after slurmctld has read slurm.conf may find colocd without the cluster's shape.
    job_id = hosts.sbatch(SHARE)
    hosts.wait(job_id, "COMPLETED")
    told = json.loads(hosts.run(CONTROLLER, "coloc history --json").stdout)
    newest = told["observed"][0]
    # Natively nothing keeps other users off a GPU yet: the admin decides that before `on`.
    assert newest["memory_mib"] and newest["reason"] == "sharing-with", newest
    assert hosts.states() <= UP


def linked(hosts: Hosts) -> set[str]:
    done = hosts.run(CONTROLLER, "coloc gpus --json", check=False)
    rows = json.loads(done.stdout)["gpus"] if done.returncode == 0 else []
    return {row["node"] for row in rows}


def share(hosts: Hosts) -> None:
    """Shards, the nodes first; on for one partition; two jobs on one GPU."""
    early = hosts.run(
        CONTROLLER, "coloc init --share --json", check=False
    )  # the nodes offer nothing yet: there is nothing to write
    assert "shard:a100" not in early.stdout, early.stdout
    edits = "--edit gres.conf --edit slurm.conf --edit plugstack.conf"
    for node in NODES:
        hosts.guide(node, f"coloc init --share --apply {edits}")
        hosts.guide(node, "systemctl restart slurmd")
    until(lambda: offered(hosts), 90, "the agents tell of the shards, and slurmd has them")
    hosts.guide(CONTROLLER, "coloc init --share --apply --edit slurm.conf")
    hosts.guide(CONTROLLER, "systemctl restart slurmctld && scontrol reconfigure")
    until(lambda: hosts.states() <= UP and shards(hosts) == 156, 60, "156 shards")
    toml = hosts.read(CONTROLLER, "/etc/slurm-coloc/coloc.toml")
    hosts.put(CONTROLLER, "/etc/slurm-coloc/coloc.toml", toml + ON)
    hosts.guide(CONTROLLER, "systemctl reload slurm-coloc")
    said = hosts.run(CONTROLLER, "coloc doctor --rollout").stdout
    assert "nothing: it is on for partition main" in said, said
    hosts.wait(hosts.sbatch(SHARE), "COMPLETED")  # see observe()
    pair = [hosts.sbatch(SHARE, "nvidia-smi -L; sleep 20") for _ in range(2)]
    for job_id in pair:
        hosts.wait(job_id, "RUNNING", "COMPLETED")
        assert "shard" in json.dumps(hosts.job(job_id)["tres_per_node"]), hosts.output(job_id)
    for job_id in pair:
        hosts.wait(job_id, "COMPLETED")
        assert "GiB for this job" in hosts.output(job_id), hosts.output(job_id)


def offered(hosts: Hosts) -> bool:
    told = json.loads(hosts.run(CONTROLLER, "coloc init --share --json", check=False).stdout)
    return not told["refused"] and "shard:a100:78" in json.dumps(told["files"])


def shards(hosts: Hosts) -> int:
    done = hosts.run(CONTROLLER, "scontrol show node --json", check=False)
    nodes = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
    return sum(int(node["gres"].split("shard:a100:")[-1].split("(")[0].split(",")[0])
               for node in nodes if "shard:a100:" in node["gres"])  # fmt: skip


def leave(hosts: Hosts) -> None:
    """Back to plain Slurm, file by file."""
    early = hosts.run(CONTROLLER, "coloc leave --yes --edit slurm.conf", check=False)
    assert early.returncode == 1
    hosts.guide(CONTROLLER, "coloc leave --yes --wait --edit slurm.conf", code=1)
    assert hosts.read(CONTROLLER, "/etc/slurm/slurm.conf") == SITE
    hosts.guide(CONTROLLER, "systemctl restart slurmctld && scontrol reconfigure")
    edits = "--edit gres.conf --edit slurm.conf --edit plugstack.conf"
    for node in NODES:
        hosts.guide(node, f"coloc leave --yes {edits}", code=1)
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
