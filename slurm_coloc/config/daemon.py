# SPDX-License-Identifier: Apache-2.0
"""colocd itself: where it listens and writes, what it may change, which hosts it talks to."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from slurm_coloc.config.base import Section
from slurm_coloc.core.slurm.hosts import address

Mode = Literal["on", "observe", "off"]


class DaemonConfig(Section):
    """[daemon] where colocd listens, writes and logs."""

    socket: Path = Field(
        Path("/run/slurm-coloc/colocd.sock"),
        description="Unix socket of colocd for users, nodes and admins. The peer's uid decides what"
        " it may ask.",
    )
    hook_socket: Path | None = Field(
        None,
        description="Unix socket of colocd for slurmctld's hook alone (job_submit.lua names it), in"
        " a folder that colocd makes for SlurmUser (0700). None: hook/colocd.sock beside `socket`.",
    )
    state_dir: Path = Field(
        Path("/var/lib/slurm-coloc"),
        description="Folder of the SQLite database. It must be on a local disk.",
    )
    off_file: Path = Field(
        Path("/etc/slurm-coloc/off"),
        description="While this file exists nothing is rewritten or requeued, with colocd or"
        " without.",
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
        10.0,
        gt=0,
        description="Seconds between two polls of Slurm after a submission, until Slurm shows the"
        " job.",
    )
    idle_s: float = Field(
        60.0,
        gt=0,
        description="Seconds between two polls of the jobs that colocd follows otherwise. After an"
        " Epilog's report colocd polls that job at once.",
    )
    command_timeout_s: float = Field(
        10.0, gt=0, description="Seconds after which a Slurm command is given up."
    )
    history_days: float = Field(
        400.0, gt=0, description="Days after which ended jobs leave the history."
    )
    slurm_client: Literal["auto", "commands", "pyslurm"] = Field(
        "auto",
        description="How colocd talks to Slurm. auto: pyslurm where it loads and is of slurmctld's"
        " release, else Slurm's commands; pyslurm: an error where it cannot be used.",
    )
    command_dir: Path | None = Field(
        None, description="Folder of Slurm's commands; none: those found on PATH."
    )

    @property
    def hook_path(self) -> Path:
        """The socket of slurmctld's hook."""
        return self.hook_socket or self.socket.parent / "hook" / "colocd.sock"


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


class NetworkConfig(Section):
    """[network] nodes and login nodes to colocd, where they are other hosts than slurmctld's."""

    listen: str = Field(
        "",
        description='Address on which colocd listens for nodes: "host:port" or ":6824"; empty:'
        " nowhere, the Unix socket alone.",
    )
    controllers: tuple[str, ...] = Field(
        (),
        description="host:port of each colocd, the primary slurmctld's first. Hooks, agents and"
        " users connect to it where there is no Unix socket.",
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
