# SPDX-License-Identifier: Apache-2.0
"""The one configuration file: /etc/slurm-coloc/coloc.toml, or the file that $COLOC_CONFIG names.

Every field carries its unit and a description, so `coloc config show --reference` writes the
reference from this file. An unknown key is an error: a typing mistake must not change a cluster.

Longer than 400 lines because it is all settings in one place, and most of its lines explain them.
"""

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from slurm_coloc.core.hosts import address
from slurm_coloc.core.optimizers import Optimizer
from slurm_coloc.errors import ConfigError

DEFAULT_PATH = Path("/etc/slurm-coloc/coloc.toml")

Mode = Literal["on", "observe", "off"]


class Section(BaseModel):
    """A table of the file: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DaemonConfig(Section):
    """[daemon] where colocd listens, writes and logs."""

    socket: Path = Field(
        Path("/run/slurm-coloc/colocd.sock"),
        description="Unix socket of colocd. The peer's uid decides what it may ask.",
    )
    state_dir: Path = Field(
        Path("/var/lib/slurm-coloc"),
        description="Folder of the SQLite database. It must be on a local disk.",
    )
    off_file: Path = Field(
        Path("/etc/slurm-coloc/off"),
        description="When this file exists nothing is rewritten or requeued, colocd alive or not.",
    )
    slurm_user: str = Field(
        "slurm", description="SlurmUser of slurm.conf: colocd runs as this user."
    )
    log_format: Literal["logfmt", "json"] = Field(
        "logfmt", description="One line per decision, as key=value or as JSON."
    )
    refresh_s: float = Field(
        120.0, gt=0, description="Seconds between two reads of the cluster's shape from Slurm."
    )
    reconcile_s: float = Field(
        10.0, gt=0, description="Seconds between two looks while a submission was not seen yet."
    )
    idle_s: float = Field(
        60.0,
        gt=0,
        description="Seconds between two looks at the jobs that colocd follows otherwise; the"
        " Epilog's report brings a look at its job at once.",
    )
    command_timeout_s: float = Field(
        10.0, gt=0, description="Seconds after which a Slurm command is given up."
    )
    history_days: float = Field(
        400.0, gt=0, description="Days after which ended jobs leave the history."
    )
    slurm_client: Literal["auto", "commands", "pyslurm"] = Field(
        "auto",
        description="How Slurm is asked. auto: pyslurm where it loads and is of slurmctld's"
        " release, else Slurm's commands; pyslurm: an error where it cannot be used.",
    )
    command_dir: Path | None = Field(
        None, description="Folder of Slurm's commands; none: those found on PATH."
    )


class ModeRule(Section):
    """[[mode.rules]] the first rule whose fields all match decides the mode of a job."""

    partition: str | None = Field(None, description="Partition name; none matches any.")
    account: str | None = Field(None, description="Account name; none matches any.")
    user: str | None = Field(None, description="User name or uid; none matches any.")
    mode: Mode = Field(description="on, observe or off for the jobs that match.")


class ModeConfig(Section):
    """[mode] what colocd may change."""

    default: Mode = Field(
        "observe",
        description="observe decides and records and changes nothing; on acts; off ignores.",
    )
    rules: tuple[ModeRule, ...] = Field((), description="Exceptions, the first match wins.")


class PoolConfig(Section):
    """[pool] which GPUs are shared and how they are cut."""

    partitions: tuple[str, ...] = Field(
        (), description="Partitions whose GPUs may be shared; empty: every one that has shards."
    )
    shard_mib: int = Field(1024, ge=64, le=65536, description="MiB of GPU memory in one shard.")
    margin_mib: int = Field(
        512, ge=0, description="MiB of each GPU that are never handed out as shards."
    )
    max_jobs_per_gpu: int = Field(
        8,
        ge=1,
        le=48,
        description="At most so many collocated jobs on a GPU (MPS itself serves 48 clients).",
    )
    compute_budget: float = Field(
        1.7,
        gt=0,
        le=4.0,
        description="Bound on the sum of solo SM activities on one GPU (ratio); used with"
        " size_by_smact where an estimator tells the SM activity.",
    )
    size_by_smact: bool = Field(
        False,
        description="Reserve at least the part of a GPU's shards that the predicted SM activity has"
        " in compute_budget, whatever the memory. Predictions were compared with an A100-40GB"
        " alone.",
    )


class EstimateConfig(Section):
    """[estimate] how the GPU memory of a job is estimated."""

    estimator: str = Field(
        "auto",
        description="Name of the estimator that decides. auto: what `coloc summarize` recorded,"
        " where the summary has it, else text.",
    )
    default_optimizer: Optimizer = Field("adam", description="Assumed where the user names none.")
    default_precision: Literal["fp32", "amp", "bf16"] = Field(
        "fp32", description="Assumed where the user names none."
    )
    default_seq_len: int = Field(
        512, ge=1, description="Tokens assumed for a Transformer summary that shows no shapes."
    )
    context_mib: int = Field(
        1900,
        ge=0,
        description="MiB of the CUDA context and libraries of one process, on GPU types that were"
        " not calibrated. 544 to 1900 were measured, depending on card and stack; the default is"
        " the safe end. `coloc calibrate` measures a type.",
    )
    stacks_dir: Path = Field(
        Path("/etc/slurm-coloc/stacks"),
        description="Folder of the calibrations, TYPE.toml for each GPU type, read at colocd's"
        " start.",
    )
    level: float = Field(
        0.99,
        ge=0.5,
        le=0.999,
        description="Probability that a job stays below what is reserved for it, 0.5 to 0.999.",
    )
    history: bool = Field(
        True,
        description="Correct estimates by the measured peaks of the user's own earlier runs of the"
        " same model, or of the same script (--coloc=auto). Peaks are measured where the GPUs'"
        " accounting mode is on (nvidia-smi -am 1).",
    )
    history_min_run_s: float = Field(
        60.0,
        ge=0,
        description="Seconds that a run must have lasted for its peak to count as its whole need.",
    )


class RecoveryConfig(Section):
    """[recovery] what happens after a GPU out-of-memory."""

    enabled: bool = Field(True, description="Requeue a collocated job that ran out of GPU memory.")
    max_per_job: int = Field(1, ge=0, description="Recoveries of one job.")
    max_per_user_day: int = Field(50, ge=0, description="Recoveries of one user in 24 hours.")
    max_per_day: int = Field(500, ge=0, description="Recoveries of the whole cluster in 24 hours.")
    resize_siblings: bool = Field(
        True,
        description="After a task of an array ran out of GPU memory its waiting siblings ask for a"
        " whole GPU too. The caps do not bound it: it prevents failures.",
    )
    raise_by: Literal["priority", "nice", "qos", "none"] = Field(
        "priority", description="How the requeued job is preferred."
    )
    priority: int = Field(
        100_000, ge=1, description="Priority set with raise_by = priority (Slurm's own scale)."
    )
    nice: int = Field(
        -10_000, le=0, description="Nice adjustment set with raise_by = nice; negative prefers."
    )
    start_after_s: int = Field(
        5,
        ge=2,
        le=120,
        description="Seconds before a requeued job may start. A start in the second of its last"
        " end meets a revoked credential and fails; allow for the clocks of the nodes.",
    )
    qos: str | None = Field(None, description="QOS set with raise_by = qos.")

    @model_validator(mode="after")
    def _qos_named(self) -> "RecoveryConfig":
        if self.raise_by == "qos" and not self.qos:
            raise ValueError('raise_by = "qos" needs a qos')
        return self


class HooksConfig(Section):
    """[hooks] Prolog and Epilog on the GPU nodes."""

    spool_dir: Path = Field(
        Path("/var/spool/slurm-coloc"),
        description="Where the Epilog keeps reports that colocd has not taken yet.",
    )
    run_dir: Path = Field(
        Path("/run/slurm-coloc-jobs"), description="State of the jobs that run on this node."
    )
    log_tail_kib: int = Field(
        256, ge=4, le=16384, description="KiB of the end of each log that the Epilog reads."
    )
    nvml: bool = Field(True, description="Ask NVML for UUIDs and free memory in the Prolog.")


class SharingConfig(Section):
    """[sharing] how jobs share a GPU on the node, and what fences their memory."""

    method: Literal["auto", "mps", "streams", "mig"] = Field(
        "auto",
        description="auto: MPS where it is, else streams (turns); a MIG device for jobs that fit 1g"
        " or find no shards. mig: one for all jobs that fit. mps, streams (no MPS at all): none.",
    )
    users: Literal["one", "all"] = Field(
        "one",
        description="Who has MPS on a GPU. one: the first user there, as long as a job of theirs"
        " runs on it; jobs of others take turns with it. all: one server for all users (Volta and"
        " later), in which a fault of one client ends all of them.",
    )
    thread_percentage: int = Field(
        0,
        ge=0,
        le=100,
        description="Share of the SMs that one job may fill (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE);"
        " 0: no limit.",
    )
    cgroup: Literal["auto", "off"] = Field(
        "auto",
        description="auto: where the driver knows limits of cgroups (r615, CUDA 13.4; cgroup v2, no"
        " MIG), the kernel holds a job's memory, in addition to MPS.",
    )
    frameworks: Literal["known", "always", "off"] = Field(
        "known",
        description="PyTorch's and JAX's own limits where nothing stronger holds a job. known: in"
        " steps whose program is a Python with a PyTorch that takes one (2.10); always: in all"
        " tasks (no PyTorch before 2.10 is in use here); off: never.",
    )
    mps_control: Path = Field(
        Path("/usr/bin/nvidia-cuda-mps-control"), description="The MPS control program."
    )


class GateConfig(Section):
    """[gate] a look at the GPUs before a job starts on them."""

    enabled: bool = Field(
        True,
        description="Put a job back into the queue where its GPUs have less free memory than it was"
        " promised, or a process of no job. It has not begun then, and no node is drained.",
    )
    require_fence: bool = Field(
        False,
        description="Put a job on a share back, too, where neither MPS nor the kernel would hold"
        " its memory: another user has MPS on the GPU, or the node has none.",
    )
    slack_mib: int = Field(
        512, ge=0, description="So much less free memory (MiB) than promised will do."
    )
    wait_s: float = Field(
        60.0,
        ge=1,
        description="Seconds before a job that was put back is tried again; they double each time.",
    )
    longest_wait_s: float = Field(600.0, ge=1, description="The longest such wait.")
    exclude_s: float = Field(
        300.0,
        ge=0,
        description="Seconds for which such a job avoids the node, where another could take it.",
    )
    max_per_job: int = Field(
        20, ge=0, description="How often one job is put back; then it starts and takes its chance."
    )


class AgentConfig(Section):
    """[agent] what `coloc agent` measures on a GPU node, each second."""

    sample: bool = Field(True, description="Measure what each job uses; false: a link alone.")
    dcgmi: Path = Field(
        Path("/usr/bin/dcgmi"),
        description="DCGM's program, for SM activity and the other profiling counters. Where it is"
        " missing they come from NVML (GPM, Hopper and later).",
    )
    idle_after_s: int = Field(
        1800,
        ge=0,
        le=30 * 86400,
        description="Seconds without SM activity after which a GPU is held idle; 0: never.",
    )
    job_mapping_dir: Path | None = Field(
        None,
        description="Folder of dcgm-exporter's --hpc-job-mapping-dir, to be filled; none: not.",
    )


class NetworkConfig(Section):
    """[network] nodes and login nodes to colocd, where they are other hosts than slurmctld's."""

    listen: str = Field(
        "",
        description='Where colocd listens for nodes: "host:port" or ":6824"; empty: nowhere, the'
        " Unix socket alone.",
    )
    controllers: tuple[str, ...] = Field(
        (),
        description="host:port of each colocd, the primary slurmctld's first: whom hooks, agents"
        " and people ask where there is no Unix socket.",
    )
    munge_socket: Path | None = Field(
        None, description="munged's socket, as AuthInfo of slurm.conf; none: the library's own."
    )

    @model_validator(mode="after")
    def _addresses(self) -> "NetworkConfig":
        for text in (*self.controllers, *([self.listen] if self.listen else [])):
            address(text)
        if any(not address(text)[0] for text in self.controllers):
            raise ValueError("controllers: a host is missing")
        return self


class Config(Section):
    """The whole file."""

    version: Literal[1] = Field(1, description="Version of this file's layout.")
    daemon: DaemonConfig = DaemonConfig()
    mode: ModeConfig = ModeConfig()
    pool: PoolConfig = PoolConfig()
    estimate: EstimateConfig = EstimateConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    hooks: HooksConfig = HooksConfig()
    sharing: SharingConfig = SharingConfig()
    gate: GateConfig = GateConfig()
    agent: AgentConfig = AgentConfig()
    network: NetworkConfig = NetworkConfig()


def config_path() -> Path:
    """The file in force: $COLOC_CONFIG, else /etc/slurm-coloc/coloc.toml."""
    named = os.environ.get("COLOC_CONFIG")
    return Path(named) if named else DEFAULT_PATH


def parse_config(data: dict[str, Any], where: str) -> Config:
    """Check a parsed TOML document; raises ConfigError naming every wrong key of ``where``."""
    try:
        return Config.model_validate(data)
    except ValidationError as err:
        lines = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in err.errors()
        )
        raise ConfigError(f"{where}: {lines}") from err


def load_config(path: Path | None = None) -> Config:
    """Read the configuration.

    With no ``path`` and no file at the default place the built-in defaults are in force (mode
    observe). A file that was named must exist. Raises ConfigError.
    """
    chosen = path or config_path()
    try:
        text = chosen.read_bytes().decode("utf-8")
    except FileNotFoundError:
        if path is None and "COLOC_CONFIG" not in os.environ:
            return Config()
        raise ConfigError(f"{chosen}: no such file") from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{chosen}: cannot be read: {err}") from err
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(f"{chosen}: not TOML: {err}") from err
    return parse_config(data, str(chosen))
