# SPDX-License-Identifier: Apache-2.0
"""Slurm 24.11 to 26.05 below slurm-coloc, with jobs in every state: slurmctld first and back again,
as after an upgrade that failed, then for good, then the login node and one node after the other."""

import json
import os

import pytest

from tests.packages import guide
from tests.packages.faults import DOCTOR, ask, bad
from tests.packages.hosts import CONTROLLER, HOSTS, LOGIN, NODES, Hosts
from tests.packages.jobs import all_end, every_state, together
from tests.rollout.hosts import until

#: the suite with the newer Slurm beside the host's own, from which nothing comes unasked
SOURCES = """
sed -n 's/ trixie / sid /p' /etc/apt/sources.list >/etc/apt/sources.list.d/sid.list
printf 'Package: *\\nPin: release n=sid\\nPin-Priority: 100\\n' >/etc/apt/preferences.d/sid
apt-get -qq update
"""
SLURM = "$(dpkg-query -W -f '${source:Package} ${Package}\\n' | sed -n 's/^slurm-wlm //p')"
KEEP = "-o Dpkg::Options::=--force-confold"
FORWARD = f"apt-get install -y {KEEP} -t sid {SLURM} /root/sid/slurm-coloc-spank-slurm26.05_*.deb"
BACKWARD = (
    f"apt-get install -y {KEEP} --allow-downgrades"
    " $(for p in PACKAGES; do echo $p/trixie; done)"
    " /root/packages/slurm-coloc-spank-slurm24.11_*.deb"
).replace("PACKAGES", SLURM)
STATE = "/var/lib/slurm/slurmctld"

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.environ.get("SLURM", "trixie") != "trixie", reason="from trixie to sid"),
]


def release(hosts: Hosts, host: str) -> str:
    return hosts.run(host, "scontrol --version").stdout.split()[-1]


def slurmctld(hosts: Hosts) -> str:
    shown = hosts.run(CONTROLLER, "scontrol show config | grep SLURM_VERSION", check=False).stdout
    return shown.split()[-1] if shown else ""


def sound(hosts: Hosts, host: str) -> bool:
    return not bad(ask(hosts, host))


def test_from_24_11_to_26_05(hosts: Hosts) -> None:
    for host in HOSTS:
        hosts.run(host, "apt-get -qq update")
    guide.observe(hosts)
    guide.share(hosts)
    guide.settled(hosts)
    for host in HOSTS:
        hosts.run(host, f"{SOURCES}\ncp /usr/bin/coloc {DOCTOR}")
    life = every_state(hosts, 200)

    # slurmctld alone, which does not work out, and back
    hosts.guide(CONTROLLER, f"systemctl stop slurmctld && cp -a {STATE} /root/slurmctld.before")
    hosts.guide(CONTROLLER, FORWARD)
    hosts.guide(CONTROLLER, "systemctl restart slurmctld")
    until(lambda: slurmctld(hosts).startswith("26.05"), 60, "slurmctld 26.05")
    hosts.guide(CONTROLLER, "systemctl stop slurmctld")
    hosts.guide(CONTROLLER, BACKWARD)
    hosts.guide(CONTROLLER, f"rm -r {STATE} && cp -a /root/slurmctld.before {STATE}")
    hosts.guide(CONTROLLER, "systemctl restart slurmctld")
    until(lambda: slurmctld(hosts).startswith("24.11"), 60, "slurmctld 24.11 again")
    until(lambda: hosts.states() <= guide.UP, 60, f"the nodes are up: {hosts.states()}")
    for job_id in (*life.running, life.whole):
        assert hosts.job(job_id)["job_state"] == ["RUNNING"], hosts.job(job_id)
    guide.settled(hosts)
    until(lambda: sound(hosts, CONTROLLER), 60, "the controller is sound")

    # for good
    hosts.guide(CONTROLLER, FORWARD)
    hosts.guide(CONTROLLER, "systemctl restart slurmctld")
    until(lambda: slurmctld(hosts).startswith("26.05"), 60, "slurmctld 26.05")
    until(lambda: hosts.states() <= guide.UP, 60, f"the nodes are up: {hosts.states()}")
    guide.settled(hosts)
    together(hosts, NODES[1], 140)  # plugin, sbatch and slurmd are of 24.11
    for host in (NODES[0], LOGIN):
        hosts.guide(host, FORWARD)
        assert release(hosts, host).startswith("26.05")
    until(lambda: hosts.states() <= guide.UP, 60, f"the nodes are up: {hosts.states()}")
    together(hosts, NODES[0], 141)
    together(hosts, NODES[1], 142)  # slurmd and plugin of 24.11, sbatch of 26.05
    hosts.guide(NODES[1], FORWARD)
    until(lambda: hosts.states() <= guide.UP, 60, f"the nodes are up: {hosts.states()}")
    together(hosts, NODES[1], 143)
    for job_id in (*life.running, life.whole):
        shown = hosts.job(job_id)
        assert shown["job_state"][0] in ("RUNNING", "COMPLETED"), json.dumps(shown)
    all_end(hosts, life, 600)
    for host in (CONTROLLER, LOGIN, *NODES):
        until(lambda h=host: sound(hosts, h), 90, f"{host} is sound")  # type: ignore[misc]
    for host, command, seconds in hosts.given:
        print(f"  {host:<10} {seconds:5.1f} s  {command}")
