# SPDX-License-Identifier: Apache-2.0
"""Faults that an admin meets, each planted on a sound host, found by `coloc doctor`, and mended."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tests.packages.hosts import CONTROLLER, LOGIN, NODES, Hosts
from tests.rollout.hosts import until

NODE = NODES[0]
TOML = "/etc/slurm-coloc/coloc.toml"
STACK = "/etc/slurm/plugstack.conf"
LIB = "/usr/libexec/slurm-coloc"
SO = "/usr/lib/*/slurm-wlm/coloc.so"
#: a copy of the program, for the faults that hit the program itself
DOCTOR = "/root/doctor"
#: what is true of this site and no fault of its admin's: Slurm 24.11's backfill
TRUE_HERE = {"slurm-backfill"}


@dataclass(frozen=True, slots=True)
class Fault:
    """``check``: what must not be ok afterwards; ``keep``: files that are put back as they were."""

    host: str
    what: str
    check: str
    plant: str
    keep: Sequence[str] = ()
    mend: str = ""
    wait_s: float = 0.0


def _toml(what: str, check: str, edit: str, host: str = CONTROLLER, mend: str = "") -> Fault:
    return Fault(host, what, check, f"{edit} {TOML}", (TOML,), mend)


def _gone(host: str, path: str, check: str) -> Fault:
    return Fault(host, f"{path} is gone", check, f"rm {path}", (path,))


FAULTS = (
    # the program and its services
    Fault(CONTROLLER, "/usr/bin/coloc is gone", "program", "rm /usr/bin/coloc",
          ("/usr/bin/coloc",)),
    Fault(CONTROLLER, "SlurmUser cannot read the program", "program",
          "chmod 700 /usr/lib/slurm-coloc", mend="chmod 755 /usr/lib/slurm-coloc"),
    Fault(CONTROLLER, "colocd is stopped", "service", "systemctl stop slurm-coloc",
          mend="systemctl start slurm-coloc"),
    Fault(CONTROLLER, "colocd does not answer", "colocd", "systemctl stop slurm-coloc",
          mend="systemctl start slurm-coloc"),
    Fault(CONTROLLER, "colocd does not start at boot", "service",
          "systemctl disable --quiet slurm-coloc", mend="systemctl enable --quiet slurm-coloc"),
    Fault(NODE, "the agent is stopped", "service", "systemctl stop slurm-coloc-agent",
          mend="systemctl start slurm-coloc-agent"),
    _gone(NODE, "/usr/bin/coloc", "program"),
    # coloc.toml
    _toml("an unknown key", "configuration", r"sed -i '/^listen/a listn = 1'"),
    _toml("no TOML", "configuration", "sed -i 's/^listen = /listen /'"),
    _toml("an address that is none", "configuration", "sed -i 's/:6824/:port/'"),
    _toml("a rule for no partition", "partitions", "sed -i 's/\"main\"/\"maain\"/'"),
    _toml("a pool of no partition", "partitions",
          r"sed -i '$a [pool]\npartitions = [\"gpus\"]'"),
    _toml("a rule for no user", "mode-rules", r"sed -i '$a [[mode.rules]]\nuser = \"nobdy\"\nmode = \"on\"'"),
    _toml("an estimator that is none", "estimator", r"sed -i 's/^\[estimate\]/&\nestimator = \"guess\"/'"),
    _toml("another SlurmUser", "slurm-user", r"sed -i '$a [daemon]\nslurm_user = \"daemon\"'"),
    _toml("users are kept apart by nothing", "sharing-with", "sed -i 's/\"anyone\"/\"user\"/'"),
    _toml("a database that is not there", "state-dir", r"sed -i '$a [daemon]\nstate_dir = \"/var/lib/nowhere\"'"),
    # files and folders of colocd
    Fault(CONTROLLER, "the off file was forgotten", "off-switch", "touch /etc/slurm-coloc/off",
          mend="rm /etc/slurm-coloc/off"),
    Fault(CONTROLLER, "others may read the database", "state-dir", "chmod 755 /var/lib/slurm-coloc",
          mend="chmod 700 /var/lib/slurm-coloc"),
    Fault(CONTROLLER, "the database is root's", "state-dir", "chown root /var/lib/slurm-coloc",
          mend="chown slurm /var/lib/slurm-coloc"),
    Fault(CONTROLLER, "users cannot reach colocd", "socket", "chmod 600 /run/slurm-coloc/colocd.sock",
          mend="chmod 666 /run/slurm-coloc/colocd.sock"),
    Fault(CONTROLLER, "users may replace colocd's socket", "socket", "chmod 777 /run/slurm-coloc",
          mend="chmod 755 /run/slurm-coloc"),
    Fault(CONTROLLER, "users can reach the hook's socket", "hook-socket",
          "chmod 755 /run/slurm-coloc/hook", mend="chmod 700 /run/slurm-coloc/hook"),
    # the hook
    Fault(CONTROLLER, "job_submit.lua does not call coloc", "job-submit-lua",
          "sed -i '/coloc.submit/d' /etc/slurm/job_submit.lua", ("/etc/slurm/job_submit.lua",)),
    Fault(CONTROLLER, "job_submit.lua names the users' socket", "job-submit-lua",
          "sed -i 's#hook/colocd.sock#colocd.sock#' /etc/slurm/job_submit.lua",
          ("/etc/slurm/job_submit.lua",)),
    Fault(CONTROLLER, "lua-posix is gone", "lua-posix",
          "mv /usr/lib/x86_64-linux-gnu/lua/5.1/posix /root/posix; mv /usr/share/lua/5.1/posix /root/posix-lua;"
          " ls /usr/lib/x86_64-linux-gnu/lua/5.1/posix_c.so && mv /usr/lib/x86_64-linux-gnu/lua/5.1/posix_c.so /root; true",
          mend="mv /root/posix /usr/lib/x86_64-linux-gnu/lua/5.1/posix; mv /root/posix-lua /usr/share/lua/5.1/posix;"
          " test -e /root/posix_c.so && mv /root/posix_c.so /usr/lib/x86_64-linux-gnu/lua/5.1/; true"),
    # the plugin
    _gone(CONTROLLER, SO, "spank-plugin"),
    _gone(NODE, SO, "spank-plugin"),
    _gone(LOGIN, SO, "spank-plugin"),
    Fault(NODE, "plugstack.conf names no plugin", "spank-plugin", f": >{STACK}", (STACK,)),
    Fault(LOGIN, "plugstack.conf names no plugin", "spank-plugin", f": >{STACK}", (STACK,)),
    Fault(NODE, "a plugin that is required", "spank-plugin", f"sed -i s/optional/required/ {STACK}",
          (STACK,)),
    Fault(NODE, "a plugin that is none", "spank-plugin", f"echo broken >$(echo {SO})", (SO,)),
    _gone(CONTROLLER, f"{LIB}/coloc-ticket", "tickets"),
    _gone(LOGIN, f"{LIB}/coloc-ticket", "tickets"),
    Fault(LOGIN, "the plugin knows no controller", "tickets", f"sed -i 's/ controllers=.*//' {STACK}",
          (STACK,)),
    Fault(LOGIN, "tickets are switched off", "tickets", f"sed -i 's/$/ ticket=off/' {STACK}", (STACK,)),
    # Prolog and Epilog
    _gone(NODE, f"{LIB}/coloc-prolog", "prolog"),
    _gone(NODE, f"{LIB}/coloc-epilog", "epilog"),
    Fault(NODE, "a hook that cannot be run", "epilog", f"chmod 644 {LIB}/coloc-epilog",
          mend=f"chmod 755 {LIB}/coloc-epilog"),
    Fault(NODE, "hooks are off, and the site's Prolog does nothing", "prolog",
          f"sed -i 's/$/ hooks=off/' {STACK}", (STACK,)),
    # the network
    _toml("the wrong port", "network-answer", "sed -i s/6824/6825/", host=NODE),
    _toml("the wrong port", "network-answer", "sed -i s/6824/6825/", host=LOGIN),
    Fault(NODE, "no munged", "munge", "systemctl stop munge", mend="systemctl start munge"),
    Fault(CONTROLLER, "no slurmctld", "slurm", "systemctl stop slurmctld",
          mend="systemctl start slurmctld; until scontrol ping | grep -q UP; do sleep 0.2; done"),
    _toml("another munged", "munge", r"sed -i 's#^.network.$#&\nmunge_socket = \"/run/none\"#'", host=NODE),
    _toml("another SlurmUser", "slurm-user", r"sed -i '$a [daemon]\nslurm_user = \"daemon\"'", host=NODE),
    # other hosts, as their agents tell
    Fault(CONTROLLER, "a node whose hooks are gone", "node-files",
          "true", wait_s=90.0),
)  # fmt: skip


def ask(hosts: Hosts, host: str) -> dict[str, list[str]]:
    """Each check's statuses by `coloc doctor` there."""
    done = hosts.run(host, f"{DOCTOR} doctor --json", check=False)
    found: dict[str, list[str]] = {}
    for one in json.loads(done.stdout)["checks"]:
        found.setdefault(one["check"], []).append(one["status"])
    return found


def bad(found: dict[str, list[str]]) -> set[str]:
    return {check for check, all_ in found.items() if {"warn", "fail"} & set(all_)} - TRUE_HERE


def planted(hosts: Hosts) -> tuple[int, list[str]]:
    """How many faults were found, and those that were not; then every host is sound again."""
    for host in (CONTROLLER, LOGIN, NODE):
        hosts.run(host, f"cp /usr/bin/coloc {DOCTOR}")
    for host in (CONTROLLER, LOGIN, NODE):
        assert not bad(ask(hosts, host)), (host, bad(ask(hosts, host)))
    missed = [text for fault in FAULTS if (text := _missed(hosts, fault))]
    for host in (CONTROLLER, LOGIN, NODE):
        until(lambda h=host: not bad(ask(hosts, h)), 90, f"{host} is sound")  # type: ignore[misc]
    for host in (CONTROLLER, LOGIN, NODE):
        hosts.run(host, f"rm -rf {DOCTOR} /root/kept")
    return len(FAULTS) - len(missed), missed


def _missed(hosts: Hosts, fault: Fault) -> str:
    """Plant it, ask, mend it; "" where it was found."""
    keep = "".join(f"cp -a --parents {path} /root/kept; " for path in fault.keep)
    script = f"rm -rf /root/kept; mkdir -p /root/kept; {keep}{fault.plant}"
    if (done := hosts.run(fault.host, script, check=False)).returncode:
        return f"{fault.host}: {fault.what}: not planted: {done.stderr}"
    if fault.check == "node-files":
        hosts.run(NODE, f"chmod 644 {LIB}/coloc-prolog")
    try:
        found = ask(hosts, fault.host)
        if fault.wait_s:
            until(lambda: fault.check in bad(ask(hosts, fault.host)), fault.wait_s, fault.what)
            return ""
        if fault.check in bad(found):
            return ""
        return (
            f"{fault.host}: {fault.what}: {fault.check} is {found.get(fault.check)}; {bad(found)}"
        )
    finally:
        hosts.run(fault.host, f"cp -a /root/kept/. / ; {fault.mend or 'true'}")
        if fault.check == "node-files":
            hosts.run(NODE, f"chmod 755 {LIB}/coloc-prolog")
