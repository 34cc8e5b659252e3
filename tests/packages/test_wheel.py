# SPDX-License-Identifier: Apache-2.0
"""The same from the wheel: observe, and out again with nothing left."""

import json
import time

import pytest

from tests.packages.guide import SHARE, UP, linked
from tests.packages.hosts import CONTROLLER, HOSTS, LOGIN, NODES, SITE, Hosts
from tests.packages.test_install import report
from tests.rollout.hosts import until

COLOC = "/opt/slurm-coloc/bin/coloc"
INSTALL = (
    "python3 -m venv /opt/slurm-coloc"
    " && /opt/slurm-coloc/bin/pip install /root/packages/slurm_coloc-*.whl"
)
NEEDS = "apt-get -qq update && apt-get -qq install -y python3-venv make gcc libslurm-dev zlib1g-dev"
#: of the summary that the job names
MODEL = "/home/resnet50.txt"

pytestmark = pytest.mark.timeout(1200)


def test_observe_from_the_wheel_and_out_again(hosts: Hosts) -> None:
    before = {}
    for host in HOSTS:
        hosts.run(host, NEEDS)
        before[host] = hosts.files(host)
    hosts.given.clear()
    begin = time.monotonic()
    hosts.guide(CONTROLLER, INSTALL)
    hosts.guide(CONTROLLER, f"{COLOC} init --apply --edit slurm.conf --edit plugstack.conf")
    hosts.guide(CONTROLLER, "systemctl restart slurmctld")
    for node in NODES:
        hosts.guide(node, INSTALL)
        hosts.guide(node, f"{COLOC} init --apply")
    hosts.guide(LOGIN, f"{INSTALL} && {COLOC} init --apply --edit plugstack.conf")
    report("leave", hosts, begin)
    until(lambda: linked(hosts) == set(NODES), 60, "both agents are linked")
    replaced(hosts)
    hosts.put(LOGIN, MODEL, hosts.model())
    for _ in range(2):  # see test_install.observe
        job_id = hosts.sbatch(SHARE.replace(SHARE.split()[0], f"--coloc={MODEL}"))
        hosts.wait(job_id, "COMPLETED")
    newest = json.loads(hosts.run(CONTROLLER, "coloc history --json").stdout)["observed"][0]
    assert newest["memory_mib"], newest

    hosts.guide(CONTROLLER, "coloc leave --yes --edit slurm.conf", code=1)
    hosts.guide(CONTROLLER, "systemctl restart slurmctld")
    for node in NODES:
        hosts.guide(node, "systemctl disable --now slurm-coloc-agent")
        hosts.guide(node, "coloc leave --yes --program", code=1)
    hosts.guide(LOGIN, "coloc leave --yes --edit plugstack.conf --program", code=1)
    hosts.guide(CONTROLLER, "systemctl disable --now slurm-coloc")
    hosts.guide(
        CONTROLLER, "coloc leave --yes --edit job_submit.lua --edit plugstack.conf --program"
    )
    report("leave", hosts, begin)
    for host in HOSTS:
        assert hosts.read(host, "/etc/slurm/slurm.conf") == SITE
        hosts.run(host, "rm -r /opt/slurm-coloc /etc/slurm-coloc")
        left = {path for path in hosts.files(host) - before[host] if "coloc" in path}
        kept = {"/var/lib/slurm-coloc", "/var/spool/slurm-coloc"}
        assert {p for p in left if not p.startswith("/var/lib/slurm-coloc/")} <= kept, (host, left)
    until(lambda: hosts.states() <= UP, 60, "the nodes are up")


def replaced(hosts: Hosts) -> None:
    """As after `pip install` of a newer wheel: `coloc init` replaces what the older one left."""
    for host, name in ((CONTROLLER, "coloc.lua"), (NODES[0], "coloc-prolog")):
        path = f"/usr/libexec/slurm-coloc/{name}"
        hosts.run(host, f"cp {path} /root/{name} && echo >> {path}")
        hosts.run(host, f"{COLOC} init --apply && cmp {path} /root/{name} && rm /root/{name}")
