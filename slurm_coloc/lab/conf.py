# SPDX-License-Identifier: Apache-2.0
"""The text of every file that a lab's daemons read: pure functions of specification and site."""

from dataclasses import dataclass
from pathlib import Path

from slurm_coloc.config.toml import toml_value
from slurm_coloc.core.slurm.gres import device_types
from slurm_coloc.core.slurm.releases import CGROUP_DISABLED, SEVERAL_GPUS
from slurm_coloc.lab import parts
from slurm_coloc.lab.registry import CAPS
from slurm_coloc.lab.spec import LabSpec


@dataclass(frozen=True)
class Site:
    """What a lab found out about its machine before it writes the files."""

    hostname: str
    release: tuple[int, int]
    slurm_user: str
    ctld_port: int
    node_ports: tuple[int, ...]
    #: colocd's, for nodes and login; 0 where they use its Unix socket
    link_port: int
    #: of MariaDB and slurmdbd, where there is accounting
    db_port: int = 0
    dbd_port: int = 0


def slurm_conf(spec: LabSpec, site: Site) -> str:
    """slurm.conf. Choices that a test relies on carry their reason."""
    d = spec.folder
    select = "CR_Core_Memory" + (",LL_SHARED_GRES" if spec.least_loaded else "")
    if spec.multi_gpu and SEVERAL_GPUS.holds(site.release):
        select += ",MULTIPLE_SHARING_GRES_PJ"
    cards = spec.cards
    shards = cards.gpus * cards.shards_per_gpu(spec.shard_mib)
    gpus, feature = [cards.gres], ""
    if spec.steered:
        feature = cards.gpu_type
        gpus = [f"gpu:{kind}:1" for kind in device_types(feature, cards.gpus)]
    lines = [
        f"ClusterName=coloc-{spec.name}",
        f"SlurmctldHost={site.hostname}(127.0.0.1)",
        f"SlurmUser={site.slurm_user}",
        f"SlurmctldPort={site.ctld_port}",
        f"AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={d}/munge/socket",
        f"StateSaveLocation={d}/state",
        f"SlurmdSpoolDir={d}/nodes/%n/spool",
        f"SlurmctldPidFile={d}/log/slurmctld.pid\nSlurmdPidFile={d}/nodes/%n/slurmd.pid",
        f"SlurmctldLogFile={d}/log/slurmctld.log\nSlurmdLogFile={d}/log/slurmd-%n.log",
        "SlurmctldSyslogDebug=quiet\nSlurmdSyslogDebug=quiet",
        "SlurmctldDebug=verbose\nSlurmdDebug=verbose",
        # No cgroups in a container without privileges; memory is then watched once a second.
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=1",
        "JobAcctGatherParams=OverMemoryKill",
        f"JobCompType=jobcomp/filetxt\nJobCompLoc={d}/log/jobcomp",
        "GresTypes=gpu,shard\nSlurmdParameters=config_overrides",
        f"SelectType=select/cons_tres\nSelectTypeParameters={select}",
        # With priority/basic a job starts near 2^32 and a raised priority of 100000 would be the
        # lowest of all; multifactor gives every job here 1000 (age would need slurmdbd).
        "PriorityType=priority/multifactor\nPriorityWeightPartition=1000",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1,"
        "default_queue_depth=1000",
        "MpiDefault=none\nJobRequeue=1\nPrologFlags=Alloc\nReturnToService=2",
        "MinJobAge=300\nKillWait=5\nInactiveLimit=0\nMessageTimeout=20\nSlurmdTimeout=300",
        f"TaskProlog={d}/hooks/task_prolog",
        f"PlugStackConfig={d}/plugstack.conf",
    ]
    if site.dbd_port:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={site.dbd_port}",
            f"AccountingStoragePass={d}/munge/socket",  # the way to munged, no password
            "AccountingStorageTRES=gres/gpu,gres/shard",
            "AccountingStorageEnforce=associations,limits,qos",
        ]
    if not spec.coloc:
        lines.append(f"Prolog={d}/hooks/prolog\nEpilog={d}/hooks/epilog")
    if spec.coloc:
        lines.append("JobSubmitPlugins=lua")
        if spec.cli_filter:
            lines.append("CliFilterPlugins=lua")
    for name, port in zip(spec.node_names, site.node_ports, strict=True):
        lines.append(
            f"NodeName={name} NodeHostname={site.hostname} NodeAddr=127.0.0.1 Port={port}"
            f" CPUs={spec.cpus} RealMemory={spec.memory_mib} State=UNKNOWN"
            f" Gres={','.join(gpus)},shard:{shards}" + (f" Feature={feature}" if feature else "")
        )
    lines.append(
        "PartitionName=main Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=01:00:00"
        " DefMemPerCPU=1000 PriorityJobFactor=1 State=UP"
        + (" ExclusiveUser=YES" if spec.exclusive_user else "")
    )
    return "\n".join(lines) + "\n" + spec.slurm_conf_extra.rstrip("\n") + "\n"


def gres_conf(spec: LabSpec) -> str:
    """gres.conf: device files for the GPUs, one count of shards a node, no detection.

    A MIG device stands by the device file of its compute instance alone: 22.05 takes each file of
    MultipleFiles for a GPU of its own, and jobs start without any (tried; 24.11 takes both).
    """
    cards = spec.cards
    shards = cards.gpus * cards.shards_per_gpu(spec.shard_mib)
    last = f"[0-{cards.gpus - 1}]" if cards.gpus > 1 else "0"
    lines = ["AutoDetect=off"]
    for name in spec.node_names:
        if spec.steered:
            for minor, kind in enumerate(device_types(cards.gpu_type, cards.gpus)):
                lines.append(f"NodeName={name} Name=gpu Type={kind} File=/dev/nvidia{minor}")
        else:
            lines.append(f"NodeName={name} Name=gpu Type={cards.gpu_type} File=/dev/nvidia{last}")
        for one in cards.slices:
            file = f"{CAPS}{one.cap}"
            lines.append(f"NodeName={name} Name=gpu Type={one.gpu_type} File={file}")
        where = f" File=/dev/nvidia{last}" if cards.slices else ""
        lines.append(f"NodeName={name} Name=shard Count={shards}{where}")
    return "\n".join(lines) + "\n"


def cgroup_conf(site: Site) -> str:
    """cgroup.conf: Slurm 23.11 and later want the plugin disabled where cgroups cannot be made."""
    disabled = CGROUP_DISABLED.holds(site.release)
    return "CgroupPlugin=disabled\n" if disabled else "CgroupAutomount=no\n"


def plugstack_conf(spec: LabSpec, site: Site) -> str:
    """plugstack.conf; ``optional`` so that a plugin of another release harms nobody."""
    if not spec.coloc:
        return "# no SPANK plugin\n"
    d = spec.folder
    words = [
        f"optional {d}/spank/coloc.so",
        f"run_dir={d}/nodes/%n/jobs",
        f"hooks={d}/hooks",
        f"ticket={d}/spank/coloc-ticket",
        f"ticket_ms={min(5 * spec.deadline_ms, 10_000)}",
    ]
    if site.link_port:  # no Unix socket for users, as on a login node
        words.append(f"socket={d}/not-on-this-host.sock controllers=127.0.0.1:{site.link_port}")
        words.append(f"slurm_user={site.slurm_user} munge_socket={d}/munge/socket")
    else:
        words.append(f"socket={d}/coloc/colocd.sock")
    return " ".join(words) + "\n"


def job_submit_lua(spec: LabSpec) -> str:
    """The site's job_submit.lua as the project's documentation shows it: ours called last."""
    d = spec.folder
    steered = f',\n  steered = "{spec.cards.gpu_type}"' if spec.steered else ""
    return f"""-- SPDX-License-Identifier: Apache-2.0
local coloc = dofile("{d}/etc/coloc.lua")
coloc.setup{{
  socket = "{d}/coloc/hook/colocd.sock",
  off_file = "{d}/coloc/off",
  deadline_ms = {spec.deadline_ms}{steered}
}}

function slurm_job_submit(job_desc, part_list, submit_uid)
  return coloc.submit(job_desc, part_list, submit_uid)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return coloc.modify(job_desc, job_rec, part_list, modify_uid)
end

return slurm.SUCCESS
"""


def coloc_settings(spec: LabSpec, site: Site) -> dict[str, dict[str, object]]:
    """coloc.toml of the lab, with the settings of the specification laid over it."""
    d = spec.folder
    base: dict[str, dict[str, object]] = {
        "daemon": {
            "socket": f"{d}/coloc/colocd.sock",
            "state_dir": f"{d}/coloc/state",
            "off_file": f"{d}/coloc/off",
            "slurm_user": site.slurm_user,
            "refresh_s": 2.0,
            "reconcile_s": 1.0,
        },
        "mode": {"default": spec.mode},
        "pool": {"shard_mib": spec.shard_mib},
        "estimate": {"time_limit_ms": min(10 * spec.deadline_ms, 60_000)},
        "hooks": {"spool_dir": f"{d}/coloc/spool"},
        "sharing": {"mps_control": f"{d}/bin/nvidia-cuda-mps-control"},
        "agent": {"dcgmi": f"{d}/bin/dcgmi"},
    }
    if not spec.exclusive_user and not spec.steered:
        base["sharing"]["with"] = "anyone"
    if site.link_port:
        where = f"127.0.0.1:{site.link_port}"
        munge = f"{d}/munge/socket"
        base["network"] = {"listen": where, "controllers": [where], "munge_socket": munge}
    for table, values in spec.settings.items():
        base.setdefault(table, {}).update(values)
    return base


def node_settings(
    spec: LabSpec, settings: dict[str, dict[str, object]], node: str
) -> dict[str, dict[str, object]]:
    """coloc.toml of one node; with a network it has no Unix socket and a spool of its own."""
    own: dict[str, object] = {"run_dir": f"{spec.folder}/nodes/{node}/jobs"}
    if not spec.network:
        return settings | {"hooks": settings["hooks"] | own}
    own["spool_dir"] = f"{spec.folder}/nodes/{node}/reports"
    return login_settings(spec, settings) | {"hooks": settings["hooks"] | own}


def login_settings(
    spec: LabSpec, settings: dict[str, dict[str, object]]
) -> dict[str, dict[str, object]]:
    """coloc.toml of a login node: with a network it has no Unix socket."""
    if not spec.network:
        return settings
    there = {"socket": f"{spec.folder}/not-on-this-host.sock"}
    return settings | {"daemon": settings["daemon"] | there}


def toml(settings: dict[str, dict[str, object]]) -> str:
    """Tables of plain values as TOML (strings, numbers, booleans, lists of these)."""
    out = ["version = 1"]
    for table, values in settings.items():
        out.append(f"\n[{table}]")
        out.extend(f"{key} = {toml_value(value)}" for key, value in values.items())
    return "\n".join(out) + "\n"


def hook_wrapper(spec: LabSpec, script: Path) -> str:
    """What the plugin starts in slurmd's Prolog or Epilog: gives the real hook its node's GPUs and
    configuration. Without slurm-coloc it is slurm.conf's own Prolog or Epilog, and does nothing.

    slurmd starts hooks without PATH and without the environment of a node that has a driver.
    """
    d = spec.folder
    body = f'exec "{script}"' if spec.coloc else "exit 0"
    return f"""#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
node="${{SLURMD_NODENAME:-n1}}"
export PATH="{d}/bin:{parts.path_of(spec.slurm)}"
export LD_LIBRARY_PATH="{d}/lib"
export COLOC_EMU_LEDGER="{d}/nodes/$node/ledger"
export COLOC_CONFIG="{d}/nodes/$node/coloc.toml"
export COLOC_PROGRAM="{d}/bin/coloc"
export SLURM_CONF="{d}/slurm.conf"
{body}
"""


def task_prolog(spec: LabSpec) -> str:
    """TaskProlog: what a job finds on a real node by default paths, and whose job it is.

    SLURM_CONF stands for /etc/slurm/slurm.conf, the ledger for the hardware; COLOC_LAB_JOB lets
    `coloc lab down` find what a job left behind.
    """
    d = spec.folder
    return f"""#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
echo "export SLURM_CONF={d}/slurm.conf"
echo "export COLOC_LAB_JOB={d}"
echo "export COLOC_EMU_LEDGER={d}/nodes/$SLURMD_NODENAME/ledger"
"""


def env_sh(env: dict[str, str]) -> str:
    """A file to source in a shell that wants to use the lab."""
    lines = ["# SPDX-License-Identifier: Apache-2.0", "# source this to use the lab"]
    for key, value in env.items():
        lines.append(f'export {key}="{value}"')
    return "\n".join(lines) + "\n"
