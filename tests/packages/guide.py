# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/admin/install.md, in its order, from plain Slurm to sharing."""

import json

from tests.harness.answers import as_documented
from tests.packages.hosts import CONTROLLER, LOGIN, NODES, Hosts
from tests.rollout.hosts import until

MODEL = "/usr/share/slurm-coloc/examples/resnet50_torchinfo.txt"
SHARE = f"--coloc={MODEL} --gpus=1 --mem=100"
UP = {"idle", "mixed", "allocated", "completing", "planned"}
DEB = "slurm-coloc_*.deb ./slurm-coloc-spank-*.deb ./slurm-coloc-"
TOML = "/etc/slurm-coloc/coloc.toml"
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
EDITS = "--edit gres.conf --edit slurm.conf --edit plugstack.conf"


def install(part: str, folder: str = "packages") -> str:
    """The command that installs a host's packages from a folder of root's."""
    return f"cd /root/{folder} && apt-get install -y ./{DEB}{part}_*.deb"


def observe(hosts: Hosts, folder: str = "packages") -> None:
    """The packages, and no job changed."""
    hosts.guide(CONTROLLER, install("controller", folder))
    hosts.guide(CONTROLLER, "coloc init --apply --edit slurm.conf --edit plugstack.conf")
    hosts.guide(CONTROLLER, "systemctl restart slurmctld")
    for node in NODES:
        hosts.guide(node, install("node", folder))
    hosts.guide(LOGIN, f"{install('login', folder)} && coloc init --apply --edit plugstack.conf")
    until(lambda: linked(hosts) == set(NODES), 60, "both agents are linked")


def share(hosts: Hosts) -> None:
    """Shards, the nodes first; on for one partition."""
    for node in NODES:
        hosts.guide(node, f"coloc init --share --apply {EDITS}")
        hosts.guide(node, "systemctl restart slurmd")
    until(lambda: offered(hosts), 90, "the agents tell of the shards, and slurmd has them")
    hosts.guide(CONTROLLER, "coloc init --share --apply --edit slurm.conf")
    hosts.guide(CONTROLLER, "systemctl restart slurmctld && scontrol reconfigure")
    until(lambda: hosts.states() <= UP and shards(hosts) == 156, 60, "156 shards")
    hosts.put(CONTROLLER, TOML, hosts.read(CONTROLLER, TOML) + ON)
    hosts.guide(CONTROLLER, "systemctl reload slurm-coloc")


def settled(hosts: Hosts) -> None:
    """Once colocd knows the cluster as slurmctld has just read it: the first job after slurmctld
    has read slurm.conf may find colocd without the cluster's shape."""
    hosts.wait(hosts.sbatch(SHARE), "COMPLETED")


def linked(hosts: Hosts) -> set[str]:
    """The nodes whose agents colocd hears."""
    done = hosts.run(CONTROLLER, "coloc gpus --json", check=False)
    rows = json.loads(done.stdout)["gpus"] if done.returncode == 0 else []
    return {row["node"] for row in rows}


def offered(hosts: Hosts) -> bool:
    """Whether init on the controller would write the shards now."""
    done = hosts.run(CONTROLLER, "coloc init --share --json", check=False)
    told = as_documented(["init"], json.loads(done.stdout))
    return not told["refused"] and "shard:a100:78" in json.dumps(told["files"])


def shards(hosts: Hosts) -> int:
    """What the nodes have, as slurmctld shows it."""
    done = hosts.run(CONTROLLER, "scontrol show node --json", check=False)
    nodes = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
    return sum(int(node["gres"].split("shard:a100:")[-1].split("(")[0].split(",")[0])
               for node in nodes if "shard:a100:" in node["gres"])  # fmt: skip
