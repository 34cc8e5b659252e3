# SPDX-License-Identifier: Apache-2.0
"""From one release of the packages to the next while jobs run, wait and are held."""

from tests.packages.hosts import CONTROLLER, LOGIN, NODES, Hosts
from tests.rollout.hosts import until

#: The packages of this tree under the next number, in /root/next: what differs is the number alone.
NEXT = """
rm -rf /root/next && mkdir /root/next && cd /root/packages
for deb in *.deb; do
  dpkg-query -W "${deb%%_*}" >/dev/null 2>&1 || continue
  rm -rf /tmp/deb && dpkg-deb -R "$deb" /tmp/deb
  sed -i 's/0\\.1\\.0~/0.1.1~/g' /tmp/deb/DEBIAN/control
  dpkg-deb -b /tmp/deb "/root/next/${deb/0.1.0/0.1.1}" >/dev/null
done
"""
INSTALL = "apt-get install -y /root/next/*.deb"


def upgrade(hosts: Hosts, share: str) -> None:
    """By the page: slurmctld's host, login nodes, nodes. No job is lost, no node drained."""
    running = [hosts.sbatch(share, "sleep 30") for _ in range(2)]
    for job_id in running:
        hosts.wait(job_id, "RUNNING")
    held = hosts.sbatch(f"{share} --hold")
    for host in (CONTROLLER, LOGIN, *NODES):
        hosts.run(host, NEXT)
        hosts.guide(host, INSTALL)
        version = hosts.run(host, "dpkg-query -W -f '${Version}' slurm-coloc").stdout
        assert version.startswith("0.1.1"), version
    between = hosts.sbatch(share)  # whatever was just restarted
    hosts.run(CONTROLLER, f"scontrol release {held}")
    for job_id in (*running, held, between):
        hosts.wait(job_id, "COMPLETED")
    until(lambda: hosts.ended({*running, held}), 60, "colocd has recorded their ends")
    assert hosts.states() <= {"idle", "mixed", "allocated", "completing", "planned"}
