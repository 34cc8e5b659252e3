# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: is this machine, this Slurm and this configuration fit for slurm-coloc?

Works while colocd is dead; whatever cannot be looked at is not-applicable with the reason.
"""

import asyncio
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_coloc.adapters import probe
from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.adapters.slurm import connect
from slurm_coloc.adapters.store.localdisk import NETWORK, file_system
from slurm_coloc.admin.doctor_mig import mig_devices
from slurm_coloc.admin.doctor_network import colocd_is_elsewhere, network
from slurm_coloc.admin.doctor_nodes import nodes
from slurm_coloc.admin.doctor_placement import placement
from slurm_coloc.admin.doctor_sharing import sharing
from slurm_coloc.admin.rules import releases, slurm_conf
from slurm_coloc.admin.rules.limit_plan import plan
from slurm_coloc.admin.rules.slurm_conf import Finding, Status
from slurm_coloc.config import Config, config_path, load_config
from slurm_coloc.core.gpu.cards import shards_of
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.errors import ColocError, ConfigError, SlurmError
from slurm_coloc.estimate.api import AUTO, registry
from slurm_coloc.flow.client.request import ask_socket as ask
from slurm_coloc.flow.estimators.calibrations import load_stacks

ANSWER_S = 3.0
WITH_GPU = "GPUs of this host"


@dataclass(frozen=True, slots=True)
class Slurm:
    """What slurmctld answered."""

    conf: dict[str, str]
    shape: ClusterShape
    weights: dict[str, str]
    limits: SiteLimits | str  # or why they are not known


def examine(path: Path | None) -> Iterator[Finding]:
    """All checks, in the order in which an admin would mend things."""
    try:
        config = load_config(path)
    except ConfigError as err:
        yield Finding("configuration", Status.FAIL, err.message, "mend the file, then run again")
        config = Config()
    else:
        where = path or config_path()
        text = str(where) if where.exists() else f"{where} is not there: built-in defaults"
        yield Finding("configuration", Status.OK, text)
        yield from _settings(config)
    if colocd_is_elsewhere(config):
        text = f"of another host: {', '.join(config.network.controllers)}; see network-answer"
        yield Finding("colocd", Status.NA, text)
    else:
        yield from _daemon(config)
        yield from _files(config)
    slurm = None
    try:
        slurm = asyncio.run(_ask_slurm(config))
    except SlurmError as err:
        yield Finding(
            "slurm", Status.FAIL, err.message, "start slurmctld; check munge and the PATH"
        )
    yield from _slurm(config, slurm)
    yield from _lua(slurm)
    yield from _spank(slurm)
    yield from _hooks(slurm)
    yield from network(config, slurm.shape if slurm else None)
    yield from mig_devices(slurm.shape, slurm.conf) if slurm else ()
    yield from placement(config, slurm.conf, slurm.shape, slurm.limits) if slurm else ()
    yield from nodes(config)
    yield from sharing(config, slurm.shape if slurm else None)
    yield _gpus(config, slurm)
    yield _accounting(config)


# configuration and colocd


def _settings(config: Config) -> Iterator[Finding]:
    known = [AUTO, *sorted(registry())]
    if config.estimate.estimator not in known:
        yield Finding(
            "estimator",
            Status.FAIL,
            f"estimate.estimator = {config.estimate.estimator!r}",
            f"choose one of {', '.join(known)}",
        )
    yield _calibrations(config)
    unknown = [rule.user for rule in config.mode.rules if rule.user and not _exists(rule.user)]
    if unknown:
        yield Finding(
            "mode-rules",
            Status.WARN,
            f"unknown users: {', '.join(unknown)}",
            "the rules match nobody: correct the names in mode.rules",
        )
    else:
        modes = ", ".join(sorted({rule.mode for rule in config.mode.rules}))
        text = f"default {config.mode.default}" + (f", rules for {modes}" if modes else "")
        yield Finding("mode-rules", Status.OK, text)
    off = config.daemon.off_file
    thrown = probe.look(off) is not None
    yield Finding(
        "off-switch",
        Status.WARN if thrown else Status.OK,
        f"{off} {'exists: slurm-coloc does nothing' if thrown else 'is not there'}",
        f"rm {off} when you want it back" if thrown else "",
    )


def _calibrations(config: Config) -> Finding:
    name = "calibration"
    try:
        found = load_stacks(config.estimate).by_type
    except ConfigError as err:
        return Finding(name, Status.FAIL, err.message, "mend the file, or run coloc calibrate")
    if found:
        text = ", ".join(f"{kind} {one.context_mib} MiB" for kind, one in found.items())
        return Finding(name, Status.OK, f"context of {text}; others {config.estimate.context_mib}")
    text = f"none in {config.estimate.stacks_dir}: context {config.estimate.context_mib} MiB"
    return Finding(name, Status.NA, f"{text}; coloc calibrate on a GPU node measures it")


def _exists(user: str) -> bool:
    if user.isascii() and user.isdigit():
        return True
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _uid(config: Config) -> int | None:
    try:
        return pwd.getpwnam(config.daemon.slurm_user).pw_uid
    except KeyError:
        return None


def _daemon(config: Config) -> Iterator[Finding]:
    socket = config.daemon.socket
    uid = _uid(config)
    if uid is None:
        text = f"no user {config.daemon.slurm_user!r}"
        yield Finding("slurm-user", Status.FAIL, text, "set daemon.slurm_user to SlurmUser")
    try:
        told = ask(socket, "status", deadline_s=ANSWER_S)
        text = f"mode {told.get('mode')}, {told.get('gpus')} GPUs, {told.get('shards')} shards"
        yield Finding("colocd", Status.OK, text)
    except ColocError as err:
        todo = "systemctl start slurm-coloc; journalctl -u slurm-coloc"
        yield Finding("colocd", Status.FAIL, err.message, todo)
    found, folder = probe.look(socket), probe.look(socket.parent)
    if found is None or folder is None:
        yield Finding("socket", Status.NA, f"{socket} is not there")
        return
    trusted = {0, uid}
    wrong = []
    if not found.is_socket:
        wrong.append("is no socket")
    if found.mode & 0o666 != 0o666:
        wrong.append(f"mode {found.mode:04o}: users cannot ask")
    if found.uid not in trusted:
        wrong.append(f"belongs to uid {found.uid}")
    if folder.uid not in trusted or folder.mode & 0o022:
        wrong.append(f"others may write in {socket.parent}")
    yield Finding(
        "socket",
        Status.FAIL if wrong else Status.OK,
        f"{socket}: {'; '.join(wrong) or 'ok'}",
        "let colocd make it, in a folder that only SlurmUser may write" if wrong else "",
    )


def _files(config: Config) -> Iterator[Finding]:
    uid = _uid(config)
    state = config.daemon.state_dir
    found = probe.look(state)
    kind = file_system(state)
    if found is None:
        text = f"{state} is not there or cannot be seen"
        yield Finding("state-dir", Status.FAIL, text, f"install -d -o SlurmUser -m 0700 {state}")
    elif kind in NETWORK:
        todo = "the database needs a local disk: set daemon.state_dir"
        yield Finding("state-dir", Status.FAIL, f"{state} is on {kind}", todo)
    elif found.uid != uid or found.mode & 0o077:
        text = f"{state}: uid {found.uid}, mode {found.mode:04o}"
        todo = f"chown {config.daemon.slurm_user} {state}; chmod 0700 {state}"
        yield Finding("state-dir", Status.FAIL, text, todo)
    else:
        yield Finding("state-dir", Status.OK, f"{state} on {kind or 'a local disk'}")


# Slurm


async def _ask_slurm(config: Config) -> Slurm:
    slurm = connect(config.daemon, briefly=True)
    shape = await slurm.shape()
    limits: SiteLimits | str
    try:
        limits = await slurm.limits(shape.name)
    except SlurmError as err:
        limits = "no slurmdbd" if err.code == "no-accounting" else err.message
    return Slurm(await slurm.config(), shape, await slurm.billing_weights(), limits)


def _slurm(config: Config, slurm: Slurm | None) -> Iterator[Finding]:
    if slurm is None:
        yield Finding("slurm-conf", Status.NA, "Slurm does not answer")
        return
    user = slurm_conf.value(slurm.conf, "SlurmUser").split("(")[0]
    same = user == config.daemon.slurm_user
    yield Finding(
        "slurm-user",
        Status.OK if same else Status.FAIL,
        f"SlurmUser={user}, daemon.slurm_user={config.daemon.slurm_user}",
        "" if same else f'coloc.toml: [daemon] slurm_user = "{user}"',
    )
    for check in (*releases.RELEASE_CHECKS, *slurm_conf.SLURM_CHECKS):
        found = check(slurm.conf)
        if found.check == "priority-type" and config.recovery.raise_by != "priority":
            continue
        yield found
    yield slurm_conf.shard_counts(slurm.shape, config.pool.shard_mib)
    lines = probe.plugstack(Path(slurm_conf.value(slurm.conf, "SLURM_CONF")))
    yield slurm_conf.shard_types(slurm.conf, lines)
    shared = {part for node in slurm.shape.nodes if node.shards for part in node.partitions}
    if config.pool.partitions:
        shared &= set(config.pool.partitions)
    yield slurm_conf.suspending(slurm.shape, shared)
    yield slurm_conf.enforced(slurm.conf)
    yield slurm_conf.billing(slurm.conf, slurm.shape, slurm.weights, shared)
    yield slurm_conf.typed_tres(slurm.conf, slurm.weights)
    yield _limits(config, slurm)


def _limits(config: Config, slurm: Slurm) -> Finding:
    if isinstance(slurm.limits, str):
        return Finding("gpu-limits", Status.NA, slurm.limits)
    return slurm_conf.gpu_limits(plan(slurm.limits, slurm.shape, config.pool.partitions))


def _lua(slurm: Slurm | None) -> Iterator[Finding]:
    there, text = probe.lua_posix()
    yield Finding(
        "lua-posix",
        Status.NA if there is None else Status.OK if there else Status.FAIL,
        text,
        "" if there is not False else "apt-get install lua-posix on the slurmctld host",
    )
    if slurm is None:
        return
    script = Path(slurm_conf.value(slurm.conf, "SLURM_CONF")).parent / "job_submit.lua"
    source = probe.text_of(script)
    if source is None:
        text = f"{script} cannot be read on this host"
        yield Finding("job-submit-lua", Status.NA, text, "run coloc doctor on the slurmctld host")
    elif _calls_coloc(source):
        yield Finding("job-submit-lua", Status.OK, f"{script} calls coloc.submit")
    else:
        text = f"{script} does not call coloc.submit"
        todo = "end slurm_job_submit with: return coloc.submit(job_desc, part_list, submit_uid)"
        yield Finding("job-submit-lua", Status.FAIL, text, todo)


def _calls_coloc(source: str) -> bool:
    code = "\n".join(line.split("--", 1)[0] for line in source.splitlines())
    return "coloc.lua" in code and re.search(r"\.submit\s*\(", code) is not None


def _spank(slurm: Slurm | None) -> Iterator[Finding]:
    if slurm is None:
        return
    path = Path(slurm_conf.value(slurm.conf, "PlugStackConfig") or "/etc/slurm/plugstack.conf")
    plugins = [
        parts[1]
        for line in probe.plugstack(path)
        if len(parts := line.split()) >= 2 and "coloc" in Path(parts[1]).name
    ]
    if not plugins:
        todo = f"{path}: optional coloc.so (make -C spank install)"
        yield Finding("spank-plugin", Status.FAIL, f"{path} names no coloc plugin", todo)
        return
    plugin = Path(plugins[0])
    if not plugin.is_absolute():
        folders = [Path(one) for one in slurm_conf.value(slurm.conf, "PluginDir").split(":")]
        plugin = next((f / plugin for f in folders if probe.look(f / plugin)), folders[0] / plugin)
    if probe.look(plugin) is None:
        todo = "install it on every host where jobs are submitted or run"
        yield Finding("spank-plugin", Status.FAIL, f"{plugin} is not there", todo)
        return
    built, runs = probe.plugin_release(plugin), slurm.shape.release
    if built is None:
        todo = "rebuild it: make -C spank"
        yield Finding("spank-plugin", Status.WARN, f"{plugin}: no Slurm release found in it", todo)
        return
    text = f"{plugin} built for {built[0]}.{built[1]:02}, Slurm is {runs[0]}.{runs[1]:02}"
    good = built[:2] == runs[:2]
    yield Finding(
        "spank-plugin",
        Status.OK if good else Status.FAIL,
        text,
        "" if good else "rebuild it against this release: make -C spank clean all install",
    )


def _hooks(slurm: Slurm | None) -> Iterator[Finding]:
    if slurm is None:
        return
    for kind in ("Prolog", "Epilog"):
        name = kind.lower()
        told = slurm_conf.values(slurm.conf, kind)
        todo = f"slurm.conf: {kind}=<folder of slurm-coloc's {name} script>, see {name}/README.md"
        if not told:
            yield Finding(name, Status.FAIL, f"no {kind} is configured", todo)
            continue
        paths = [Path(one) for one in told]
        files = [file for path in paths for file in sorted(path.parent.glob(path.name))]
        texts = [text for file in files if (text := probe.text_of(file)) is not None]
        if not texts:
            text = f"{', '.join(told)} cannot be read on this host"
            yield Finding(name, Status.NA, text, "run coloc doctor on a GPU node")
        elif any("coloc" in text for text in texts):
            yield Finding(name, Status.OK, ", ".join(told))
        else:
            text = f"{', '.join(told)}: does not run slurm-coloc's"
            yield Finding(name, Status.FAIL, text, todo)


# GPUs


def _gpus(config: Config, slurm: Slurm | None) -> Finding:
    name = "gpu-memory"
    try:
        with Nvml() as nvml:
            gpus = nvml.all()
    except ColocError as err:
        return Finding(name, Status.NA, f"{WITH_GPU}: {err.message}")
    pool = config.pool
    offers = [shards_of(gpu.total_mib, pool.shard_mib, pool.margin_mib) for gpu in gpus]
    text = ", ".join(f"{gpu.name}: {count} shards" for gpu, count in zip(gpus, offers, strict=True))
    host = probe.short_host_name()
    node = next((n for n in slurm.shape.nodes if n.name == host), None) if slurm else None
    if node is None or not offers:
        return Finding(name, Status.NA, f"{text or 'no GPU'}; no node of Slurm is called {host}")
    good = node.shards_per_gpu <= min(offers)
    return Finding(
        name,
        Status.OK if good else Status.FAIL,
        f"{text}; Slurm has {node.shards_per_gpu} a GPU",
        "" if good else f"more shards than memory: shard count {min(offers) * node.gpus}",
    )


def _accounting(config: Config) -> Finding:
    name = "gpu-accounting"
    if not config.estimate.history:
        return Finding(name, Status.NA, "estimate.history = false: no peaks are measured")
    try:
        with Nvml() as nvml:
            silent = nvml.not_accounted()
    except ColocError as err:
        return Finding(name, Status.NA, f"{WITH_GPU}: {err.message}")
    if not silent:
        return Finding(name, Status.OK, "peaks of the jobs that have a GPU to themselves are kept")
    todo = "nvidia-smi -am 1 (as root, with persistence mode, whenever the driver is loaded)"
    text = f"accounting mode is off on {', '.join(silent)}: no peaks are measured"
    return Finding(name, Status.WARN, text, todo)
