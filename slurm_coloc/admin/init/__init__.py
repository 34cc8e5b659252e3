# SPDX-License-Identifier: Apache-2.0
"""``coloc init``: set this host up, file by file. ``coloc leave --edit`` takes it back.

It reads Slurm's files and, on slurmctld's host, what the agents say of their nodes. It writes files
of our own, and of the site's those that are named. It restarts nothing of Slurm's: an admin does.
"""

import os
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from slurm_coloc.adapters import probe, programfiles, sitefile, slurmconf, units
from slurm_coloc.adapters.nvml import Missing, Nvml
from slurm_coloc.adapters.nvml.mig import Mig
from slurm_coloc.admin.doctor import rollout
from slurm_coloc.admin.doctor.colocd import read_status
from slurm_coloc.admin.init.drop_ins import drop_ins
from slurm_coloc.admin.init.plan import (
    SITE_FILES,
    FileStep,
    Host,
    Role,
    afterwards,
    roles,
    steps,
)
from slurm_coloc.admin.rules.conf_file import parse_conf
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.config import Config, config_path
from slurm_coloc.core.gpu.cards import shards_of
from slurm_coloc.errors import ColocError, ConfigError, UsageFault

#: where our samples are: by a package, in a wheel or a checkout
SAMPLES = (Path("/usr/share/slurm-coloc"), programfiles.SOURCES / "etc")

#: where programs have their folders, and a file of Slurm's own plugins by which theirs is known
PLUGINS, SELECT = Path("/usr/lib"), "select_cons_tres.so"

__all__ = ["FileStep", "Result", "Role", "apply", "run"]


def read(config: Config, given: Collection[Role] = ()) -> Host:
    """What this host is. ``given``: what it is to be taken for. Raises ConfigError."""
    conf = _slurm_conf()
    whole = tuple(probe.plugstack(conf))
    parsed = parse_conf(whole)
    name = probe.short_host_name()
    found, node = roles(parsed, os.environ.get("COLOC_NODE") or name)
    found = frozenset(given) or found
    stack = Path(parsed.value("PlugStackConfig") or conf.parent / "plugstack.conf")
    host = Host(
        name=name,
        roles=found,
        conf=conf,
        stack=stack,
        files={},
        whole=whole,
        toml=config_path(),
        node=node,
        cards=_cards(config) if Role.NODE in found else (),
        cut=Role.NODE in found and _is_cut(),
        offers=_offers(config) if Role.CONTROLLER in found else {},
        sample=_sample("job_submit.lua"),
    )
    services = [path for path, _ in drop_ins(host.units, parsed.value("SlurmUser") or "root")]
    paths = (host.conf, host.stack, host.gres, host.submit, host.toml, *services)
    return replace(
        host,
        files={path: sitefile.text_of(path) for path in paths},
        gres_lines=tuple(probe.plugstack(host.gres)),
        stack_lines=tuple(probe.plugstack(host.stack)),
    )


def _slurm_conf() -> Path:
    found = slurmconf.find(os.environ)
    if found is None:
        text = f"no slurm.conf in {', '.join(slurmconf.PLACES)}: SLURM_CONF names another"
        raise ConfigError(text)
    return found


def _sample(name: str) -> str:
    for folder in SAMPLES:
        if (path := folder / name).is_file():
            return sitefile.text_of(path)
    raise ConfigError(f"{name}: no sample in {' or '.join(map(str, SAMPLES))}")


def _cards(config: Config) -> tuple[int, ...]:
    """Shards of each GPU of this host, by minor number; () where the driver does not answer."""
    try:
        with Nvml() as lib:
            gpus = lib.all()
    except ColocError:
        return ()
    pool = config.pool
    by_minor = sorted(gpus, key=lambda gpu: 0 if isinstance(gpu.minor, Missing) else gpu.minor)
    return tuple(shards_of(gpu.total_mib, pool.shard_mib, pool.margin_mib) for gpu in by_minor)


def _is_cut() -> bool:
    """Whether a GPU of this host is in MIG mode."""
    try:
        with Nvml() as lib:
            return bool(Mig(lib).gpus())
    except ColocError:
        return False


def _offers(config: Config) -> dict[str, dict[str, int]]:
    """What slurmd of each node would offer, as its agent tells; {} without colocd."""
    status = read_status(config)
    links = [] if isinstance(status, ColocError) else status.get("links", [])
    setups = {row["node"]: row.get("setup") for row in links if row["linked"]}
    return {
        node: dict(setup.get("gres", {}))
        for node, setup in setups.items()
        if isinstance(setup, dict)
    }


def refused(config: Config, host: Host, found: Sequence[FileStep]) -> list[Finding]:
    """What of the new slurm.conf would drain a node or keep slurmctld from starting; only on its
    host, and only where it changes."""
    conf = next((step for step in found if step.path == host.conf and step.old != step.new), None)
    if conf is None or Role.CONTROLLER not in host.roles:
        return []
    # Beside the file itself: includes are found from there.
    with tempfile.NamedTemporaryFile("w", dir=host.conf.parent, prefix=".coloc-init.") as file:
        file.write(conf.new)
        file.flush()
        bad = [one for one in rollout.examine(config, Path(file.name)) if one.status is Status.FAIL]
    # init itself writes it before slurm.conf.
    return [one for one in bad if one.check != "rollout-submit" or host.files.get(host.submit)]


@dataclass(frozen=True, slots=True)
class Result:
    """What there was to do, and what was done. ``program``: files of the program that a package
    would have brought, put there or missing; ``left``: what is not done, and why; ``commands``: of
    an admin, for afterwards."""

    host: Host
    found: Sequence[FileStep]
    done: Sequence[FileStep]
    program: Sequence[Path]
    refused: Sequence[Finding]
    left: Sequence[str]
    commands: Sequence[str]


def run(
    config: Config, *, share: bool, write: bool, named: Collection[str], given: Collection[Role]
) -> Result:
    """Look at this host and, with ``write``, set it up. ``named``: files of Slurm's that may be
    changed. Raises ConfigError, UsageFault."""
    host = read(config, given)
    found = list(steps(host, share))
    refusals, program = refused(config, host, found), lacking(host)
    done: list[FileStep] = []
    left = [f"{path}: a file of slurm-coloc" for path in program]
    left += [f"{step.path}: {step.problem or step.why}" for step in found if step.due]
    if write and not refusals:
        program = bring(host) if program else []
        done, left = apply(found, named)
        if program or any(step.called not in SITE_FILES for step in done):
            left += units.restart(host.units)
    commands = afterwards(host, done if write else found, share)
    return Result(host, found, done, program, refusals, left, commands)


def lacking(host: Host) -> list[Path]:
    """Files of the program that a package would have brought to this host."""
    return programfiles.missing(host.roles, _plugin_dir(host))


def bring(host: Host) -> list[Path]:
    """Put them there; raises ConfigError."""
    return programfiles.install(host.roles, _plugin_dir(host))


def _plugin_dir(host: Host) -> Path:
    """Where Slurm has its plugins: by slurm.conf, else where packages have them."""
    named = host.parsed.value("PluginDir").split(":")[0]
    if named:
        return Path(named)
    debian = [*sorted(PLUGINS.glob("*/slurm-wlm")), *sorted(PLUGINS.glob("*/slurm"))]
    usual = [*debian, PLUGINS.parent / "lib64/slurm", PLUGINS.parent / "local/lib/slurm"]
    return next((one for one in usual if (one / SELECT).exists()), PLUGINS / "slurm")


def apply(found: Sequence[FileStep], named: Collection[str]) -> tuple[list[FileStep], list[str]]:
    """Write what is to be written: files of our own, and those of the site that are named. What was
    done, and why the rest was not. Raises UsageFault for a name that is none, ConfigError."""
    if unknown := sorted(set(named) - set(SITE_FILES)):
        raise UsageFault(f"--edit takes {', '.join(SITE_FILES)}, not {', '.join(unknown)}")
    done, left = [], []
    for step in found:
        if not step.due:
            continue
        if step.problem:
            left.append(f"{step.path}: {step.problem}")
        elif step.named_only and step.called not in named:
            left.append(f"{step.path}: only with --edit {step.called}")
        elif why := sitefile.refusal(step.path):
            left.append(why)
        elif why := _broken(step):
            left.append(f"{step.path} would be broken: {why}")
        else:
            if step.called in SITE_FILES:
                lines = [astuple(one) for one in step.edits]
                sitefile.keep(step.path, step.old, step.new, lines, step.called)
            sitefile.replace(step.path, step.new)
            done.append(step)
    return done, left


def _broken(step: FileStep) -> str:
    """Whether Lua can read a script that we would write; slurmctld does not start without."""
    if step.path.suffix != ".lua":
        return ""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(step.new)
        file.flush()
        return probe.lua_broken(Path(file.name))
