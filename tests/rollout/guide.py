# SPDX-License-Identifier: Apache-2.0
"""The steps of docs/admin/install-by-hand.md, as the admin of these hosts takes them."""

from tests.rollout.hosts import (
    CONTROLLER,
    GPUS,
    HOSTS,
    LOGIN,
    NODE,
    SHARDS,
    SITE,
    TOML,
    Hosts,
    until,
    with_ours,
)

PROGRAM = """
cp -a /stage/opt/slurm-coloc /opt/
ln -sfn /opt/slurm-coloc/bin/coloc /usr/bin/coloc
install -d /etc/slurm-coloc
"""
# What systemd makes for the units: State-, Runtime- and a spool directory.
FOLDERS = """
install -d -m 755 -o slurm -g slurm /run/slurm-coloc
install -d -m 700 -o slurm -g slurm /var/lib/slurm-coloc /var/spool/slurm-coloc
"""
UP = ("idle", "mixed", "allocated", "completing", "planned")
TICKET = "/usr/libexec/slurm-coloc/coloc-ticket"
# The line for hosts that submit from elsewhere; a busy machine of containers may take its time.
LOGIN_LINE = "s/^optional coloc.so$/& controllers=controller:6824 ticket_ms=10000/"
PLUGIN = 'cp -a /stage/usr/lib/*/slurm-wlm/coloc.so "$(echo /usr/lib/*/slurm-wlm)/"'


def copy_files(hosts: Hosts) -> None:
    """Step 1: what the table has for each host; nothing takes effect."""
    for host in HOSTS:
        hosts.sh(host, PROGRAM)
        hosts.sh(host, PLUGIN)
        hosts.put(host, "/etc/slurm-coloc/coloc.toml", TOML.replace("MODE", "observe"))
        hosts.run(host, "coloc", "config", "check")
    for host in (CONTROLLER, NODE):
        hosts.sh(
            host, "install -d /usr/libexec && cp -a /stage/usr/libexec/slurm-coloc /usr/libexec/"
        )
        hosts.sh(host, FOLDERS)
    hosts.sh(LOGIN, f"install -D -t /usr/libexec/slurm-coloc /stage{TICKET}")


def start_daemons(hosts: Hosts) -> None:
    """Step 2: colocd, observing, and the agents."""
    hosts.daemon(CONTROLLER, "start", "colocd")
    until(lambda: hosts.status().get("gpu_nodes") == 1, 60, "colocd knows the node")
    hosts.daemon(NODE, "start", "agent")
    until(lambda: hosts.status().get("linked_nodes") == 1, 60, "the agent is linked")


def ready_nodes(hosts: Hosts) -> None:
    """Step 3: plugin line, gres.conf and slurm.conf with shards; one restart of slurmd."""
    ready_nodes_files(hosts)
    hosts.daemon(NODE, "restart", "slurmd")
    until(lambda: hosts.state() in UP, 60, "the node is up")


def ready_nodes_files(hosts: Hosts) -> None:
    hosts.sh(NODE, "grep -v '^#' /stage/clone/etc/plugstack.conf >>/etc/slurm/plugstack.conf")
    hosts.put(NODE, "/etc/slurm/gres.conf", GPUS + SHARDS)
    hosts.put(NODE, "/etc/slurm/slurm.conf", with_ours(SITE))


def ready_controller(hosts: Hosts) -> None:
    """Step 4: the hook's script first, then slurm.conf, then slurmctld."""
    lua = hosts.read(CONTROLLER, "/stage/clone/etc/job_submit.lua")
    # A busy machine of containers may take longer than 200 ms.
    lua = lua.replace("-- deadline_ms = 200,", "deadline_ms = 3000, --")
    hosts.put(CONTROLLER, "/etc/slurm/job_submit.lua", lua)
    hosts.put(CONTROLLER, "/etc/slurm/slurm.conf", with_ours(SITE))
    restart_controller(hosts)


def restart_controller(hosts: Hosts) -> None:
    hosts.daemon(CONTROLLER, "restart", "slurmctld")
    until(lambda: " is UP" in hosts.run(LOGIN, "scontrol", "ping", check=False).stdout, 60, "ping")
    hosts.run(CONTROLLER, "scontrol", "reconfigure")
    until(lambda: hosts.state() in UP, 60, "the node is up")


def ready_login(hosts: Hosts) -> None:
    """Step 5: the plugin's line on the login nodes, and the new slurm.conf."""
    hosts.put(LOGIN, "/etc/slurm/slurm.conf", with_ours(SITE))
    line = f"grep -v '^#' /stage/clone/etc/plugstack.conf | sed '{LOGIN_LINE}'"
    hosts.sh(LOGIN, f"{line} >>/etc/slurm/plugstack.conf")


def switch_on(hosts: Hosts) -> None:
    """Step 6: mode on, and colocd reads it again."""
    hosts.put(CONTROLLER, "/etc/slurm-coloc/coloc.toml", TOML.replace("MODE", "on"))
    pid = hosts.run(CONTROLLER, "daemon", "status", "colocd").stdout.strip()
    hosts.run(CONTROLLER, "kill", "-HUP", pid)
    until(lambda: hosts.status().get("mode") == "on", 30, "colocd is on")
    until(lambda: hosts.status().get("shards") == 78, 30, "colocd has seen the shards")


STEPS = (copy_files, start_daemons, ready_nodes, ready_controller, ready_login, switch_on)


def install(hosts: Hosts) -> None:
    """All of it."""
    for step in STEPS:
        step(hosts)
