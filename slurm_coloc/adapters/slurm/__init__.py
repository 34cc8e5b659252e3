# SPDX-License-Identifier: Apache-2.0
"""Slurm behind one client: by its commands, as every release has them, or by pyslurm where that is
installed for slurmctld's release."""

from importlib.util import find_spec

from slurm_coloc.adapters.slurm.bindings import SlurmBindings
from slurm_coloc.adapters.slurm.commands import SlurmCommands
from slurm_coloc.config import DaemonConfig

#: what colocd asks Slurm with
SlurmClient = SlurmCommands


def connect(daemon: DaemonConfig, *, briefly: bool = False) -> SlurmClient:
    """The client that this site chose; asks nothing yet. ``briefly``: for a few questions, for
    which no child process is worth its start."""
    forced = daemon.slurm_client == "pyslurm"
    wanted = forced or (daemon.slurm_client == "auto" and find_spec("pyslurm") is not None)
    if briefly or not wanted:
        return SlurmCommands(daemon.command_timeout_s, daemon.command_dir)
    return SlurmBindings(daemon.command_timeout_s, daemon.command_dir, forced)
