# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: is this machine, this Slurm and this configuration fit for slurm-coloc?

It works while colocd is dead. A check that cannot be made here is not-applicable, with the reason.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from slurm_coloc.admin.doctor import (
    colocd,
    gpus,
    hooks,
    host,
    metrics,
    mig,
    network,
    placement,
    slurm,
    tickets,
)
from slurm_coloc.admin.init.plan import Role
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.config import DEFAULT_PATH, Config, config_path, load_config
from slurm_coloc.errors import ConfigError, SlurmError


def examine(path: Path | None) -> Iterator[Finding]:
    """All checks, in the order in which an admin would correct things."""
    try:
        config = load_config(path)
    except ConfigError as err:
        todo = "correct the file, then run coloc doctor again"
        yield Finding("configuration", Status.FAIL, err.message, todo)
        config = Config()
    else:
        where = path or config_path()
        text = str(where) if where.exists() else f"{where} is not there: built-in defaults"
        yield Finding("configuration", Status.OK, text)
        yield from colocd.settings(config)
    config = network.found_colocd(config)
    here = host.roles_here(dict(os.environ))
    installed = (path or config_path()) == DEFAULT_PATH
    yield from host.checks(config, here, installed=installed)
    status = colocd.read_status(config)
    if network.colocd_on_another_host(config):
        text = f"on another host: {', '.join(config.network.controllers)}; see network-answer"
        yield Finding("colocd", Status.NA, text)
    else:
        yield from colocd.daemon(config, status)
        yield colocd.state_folder(config)
    found = None
    try:
        found = slurm.read(config)
    except SlurmError as err:
        todo = "start slurmctld; check munged and the PATH"
        yield Finding("slurm", Status.FAIL, err.message, todo)
        yield Finding("slurm-conf", Status.NA, "Slurm does not answer")
    else:
        yield from slurm.checks(config, found)
    yield host.lua_posix(here)
    if found:
        yield from hooks.checks(config, found, here)
        yield from host.mode_rules(config, found.shape)
        yield from host.nodes(status, found.shape)
        yield tickets.check(config, found)
    shape = found.shape if found else None
    yield from network.checks(config, status, shape)
    if found:
        yield from mig.checks(found.shape, found.conf)
        if Role.CONTROLLER in here:  # colocd goes by the coloc.toml of its own host
            yield from placement.checks(config, found.conf, found.shape, found.limits)
    yield from metrics.checks(config, here)
    yield from colocd.unfit_gpus(status)
    yield from gpus.sharing(config, shape)
    yield gpus.memory(config, shape)
    yield gpus.accounting(config)
