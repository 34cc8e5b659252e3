# SPDX-License-Identifier: Apache-2.0
"""From an older commit's packages to these, host by host with jobs in every state; the parts of
both beside each other; then an upgrade that fails, and the way back."""

import pytest

from tests.packages import guide
from tests.packages.hosts import CONTROLLER, HOSTS, LOGIN, NODES, Hosts
from tests.packages.jobs import all_end, every_state, together
from tests.rollout.hosts import until

N1, N2 = NODES
OLDER = "apt-get install -y --allow-downgrades /root/older/{parts}"
#: These packages under the next number and with one more layout of the database, in /root/next.
NEXT = """
rm -rf /root/next && mkdir /root/next && cd /root/packages
for deb in *.deb; do
  dpkg-query -W "${deb%%_*}" >/dev/null 2>&1 || continue
  rm -rf /tmp/deb && dpkg-deb -R "$deb" /tmp/deb
  sed -i 's/0\\.1\\.0~/0.1.1~/g' /tmp/deb/DEBIAN/control
  find /tmp/deb -name schema.py -path '*store*' -exec python3 -c '
import pathlib, sys
path = pathlib.Path(sys.argv[1])
head, found, tail = path.read_text().partition("\\n)\\n\\n\\ndef migrate")
assert found
path.write_text(head + "\\n    (\\"CREATE TABLE later (x INTEGER)\\",)," + found + tail)
' {} ';'
  dpkg-deb -b /tmp/deb "/root/next/${deb/0.1.0/0.1.1}" >/dev/null
done
"""
INSTALL = "cd /root/packages && apt-get install -y ./slurm-coloc*.deb"
DB = "/var/lib/slurm-coloc"

pytestmark = pytest.mark.timeout(1200)


def version(hosts: Hosts, host: str) -> str:
    return hosts.run(host, "dpkg-query -W -f '${Version}' slurm-coloc").stdout


def upgrade(hosts: Hosts, host: str, folder: str = "packages") -> None:
    """The page's command: the packages that the host has."""
    part = {CONTROLLER: "controller", LOGIN: "login"}.get(host, "node")
    hosts.guide(host, f"{guide.install(part, folder)} --allow-downgrades")


def test_host_by_host(hosts: Hosts) -> None:
    for host in HOSTS:
        hosts.run(host, "apt-get -qq update")
    guide.observe(hosts, "older")
    guide.share(hosts)
    guide.settled(hosts)
    assert version(hosts, CONTROLLER).startswith("0.0.9")
    life = every_state(hosts, 60)
    upgrade(hosts, CONTROLLER)
    hosts.run(CONTROLLER, "touch /etc/slurm/job_submit.lua")
    until(lambda: guide.linked(hosts) == set(NODES), 60, "older agents and a newer colocd")
    guide.settled(hosts)
    together(hosts, N2, 130)
    upgrade(hosts, LOGIN)
    upgrade(hosts, N1)
    until(lambda: guide.linked(hosts) == set(NODES), 60, "an older agent and a newer one")
    together(hosts, N1, 131)
    together(hosts, N2, 132)
    upgrade(hosts, N2)
    all_end(hosts, life, 120)
    assert all(version(hosts, host).startswith("0.1.0") for host in HOSTS)


def test_the_wrong_order(hosts: Hosts) -> None:
    """A newer node, login node and Epilog with an older colocd: what was shared goes on."""
    life = every_state(hosts, 40)
    upgrade(hosts, CONTROLLER, "older")
    back(hosts)
    until(lambda: guide.linked(hosts) == set(NODES), 60, "newer agents and an older colocd")
    hosts.run(CONTROLLER, "touch /etc/slurm/job_submit.lua")
    guide.settled(hosts)
    together(hosts, N1, 133)
    upgrade(hosts, CONTROLLER)
    hosts.run(CONTROLLER, "touch /etc/slurm/job_submit.lua")
    all_end(hosts, life, 120)


def test_a_failed_upgrade(hosts: Hosts) -> None:
    """The newer colocd changes the database's layout; the older one refuses it with a clear word,
    jobs go as submitted meanwhile, and the copy brings it back."""
    guide.settled(hosts)
    life = every_state(hosts, 60)
    hosts.run(CONTROLLER, NEXT)
    hosts.guide(CONTROLLER, "apt-get install -y /root/next/*.deb")
    assert version(hosts, CONTROLLER).startswith("0.1.1")
    until(lambda: guide.linked(hosts) == set(NODES), 60, "colocd of the next release")
    between = hosts.sbatch(guide.SHARE, "sleep 30")
    hosts.wait(between, "RUNNING")
    upgrade(hosts, CONTROLLER)
    said = hosts.run(CONTROLLER, "journalctl -q --no-pager -n 20 -u slurm-coloc").stdout
    assert "written by a newer slurm-coloc" in said, said
    assert "put its copy from before the upgrade back" in said, said
    meanwhile = hosts.sbatch(guide.SHARE)  # no colocd: as submitted
    assert back(hosts)
    until(lambda: guide.linked(hosts) == set(NODES), 60, "colocd as before")
    guide.settled(hosts)
    for job_id in (between, meanwhile):
        hosts.wait(job_id, "COMPLETED")
    all_end(hosts, life, 120)
    until(lambda: hosts.ended({between}), 60, "what was decided by the next release is known")


def back(hosts: Hosts) -> bool:
    """The page's commands where colocd says that its database is of a newer release; whether it
    did."""
    if hosts.run(CONTROLLER, "systemctl is-active slurm-coloc", check=False).returncode == 0:
        return False
    # The older one of these tests does not name the copy yet.
    copy = hosts.run(CONTROLLER, f"ls -t {DB}/coloc.db.layout-* | head -n 1").stdout.strip()
    hosts.guide(CONTROLLER, "systemctl stop slurm-coloc")
    hosts.guide(CONTROLLER, f"mv {copy} {DB}/coloc.db && rm -f {DB}/coloc.db-wal {DB}/coloc.db-shm")
    hosts.guide(CONTROLLER, "systemctl start slurm-coloc")
    return True
