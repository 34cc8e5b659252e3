# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: the configuration, and colocd on this host."""

import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import probe
from slurm_coloc.adapters.store.localdisk import NETWORK, file_system
from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.config import Config
from slurm_coloc.errors import ColocError, ConfigError
from slurm_coloc.estimate.api import AUTO, registry
from slurm_coloc.flow.client.request import call_socket
from slurm_coloc.flow.estimators.calibrations import load_stacks

ANSWER_S = 3.0
SHOWN = 3  # nodes with what was wrong there
#: What the colocd of this host says of itself, or why it does not.
Answer = dict[str, Any] | ColocError


def read_status(config: Config) -> Answer:
    """Ask the colocd of this host."""
    try:
        return call_socket(config.daemon.socket, "status", deadline_s=ANSWER_S)
    except ColocError as err:
        return err


def settings(config: Config) -> Iterator[Finding]:
    """The configuration against what is installed, the accounts and the off switch."""
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
    modes = ", ".join(sorted({rule.mode for rule in config.mode.rules}))
    text = f"default {config.mode.default}" + (f", rules for {modes}" if modes else "")
    yield judge(
        "mode-rules",
        not unknown,
        f"unknown users: {', '.join(unknown)}" if unknown else text,
        "the rules match nobody: correct the names in mode.rules",
        Status.WARN,
    )
    off = config.daemon.off_file
    thrown = probe.check(off) is not None
    text = f"{off} {'exists: slurm-coloc does nothing' if thrown else 'is not there'}"
    todo = f"rm {off} when slurm-coloc is to work again"
    yield judge("off-switch", not thrown, text, todo, Status.WARN)


def _calibrations(config: Config) -> Finding:
    name = "calibration"
    try:
        found = load_stacks(config.estimate).by_type
    except ConfigError as err:
        return Finding(name, Status.FAIL, err.message, "correct the file, or run coloc calibrate")
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


def daemon(config: Config, status: Answer) -> Iterator[Finding]:
    """Whether colocd answers, at a socket that nobody else can have made."""
    socket = config.daemon.socket
    uid = _uid(config)
    if uid is None:
        text = f"no user {config.daemon.slurm_user!r}"
        yield Finding("slurm-user", Status.FAIL, text, "set daemon.slurm_user to SlurmUser")
    if isinstance(status, ColocError):
        todo = "systemctl start slurm-coloc; journalctl -u slurm-coloc"
        yield Finding("colocd", Status.FAIL, status.message, todo)
    else:
        text = "mode {mode}, {gpus} GPUs, {shards} shards"
        shown = {key: status.get(key) for key in ("mode", "gpus", "shards")}
        yield Finding("colocd", Status.OK, text.format(**shown))
    found, folder = probe.check(socket), probe.check(socket.parent)
    if found is None or folder is None:
        yield Finding("socket", Status.NA, f"{socket} is not there")
        return
    trusted = {0, uid}
    wrong = []
    if not found.is_socket:
        wrong.append("is not a socket")
    if found.mode & 0o666 != 0o666:
        wrong.append(f"mode {found.mode:04o}: users cannot reach colocd")
    if found.uid not in trusted:
        wrong.append(f"belongs to uid {found.uid}")
    if folder.uid not in trusted or folder.mode & 0o022:
        wrong.append(f"others may write in {socket.parent}")
    todo = "let colocd make it, in a folder that only SlurmUser may write"
    yield judge("socket", not wrong, f"{socket}: {'; '.join(wrong) or 'ok'}", todo)
    yield _hook_socket(config.daemon.hook_path, trusted)


def _hook_socket(socket: Path, trusted: set[int | None]) -> Finding:
    """Whether slurmctld's hook has a socket that no user can reach."""
    check, folder = "hook-socket", probe.check(socket.parent)
    if folder is None:
        text = f"{socket.parent} is not there: an older colocd, or none, runs"
        return Finding(check, Status.WARN, text, "systemctl restart slurm-coloc")
    good = folder.uid in trusted and not folder.mode & 0o077
    text = f"{socket.parent}: uid {folder.uid}, mode {folder.mode:04o}"
    return judge(check, good, text, f"rm -r {socket.parent}; systemctl restart slurm-coloc")


def state_folder(config: Config) -> Finding:
    """daemon.state_dir: on a local disk, and SlurmUser's alone."""
    uid = _uid(config)
    state = config.daemon.state_dir
    found = probe.check(state)
    kind = file_system(state)
    if found is None:
        text = f"{state} is not there or cannot be seen"
        return Finding("state-dir", Status.FAIL, text, f"install -d -o SlurmUser -m 0700 {state}")
    if kind in NETWORK:
        todo = "the database needs a local disk: set daemon.state_dir"
        return Finding("state-dir", Status.FAIL, f"{state} is on {kind}", todo)
    if found.uid != uid or found.mode & 0o077:
        text = f"{state}: uid {found.uid}, mode {found.mode:04o}"
        todo = f"chown {config.daemon.slurm_user} {state}; chmod 0700 {state}"
        return Finding("state-dir", Status.FAIL, text, todo)
    return Finding("state-dir", Status.OK, f"{state} on {kind or 'a local disk'}")


def unfit_gpus(status: Answer) -> Iterator[Finding]:
    """Nodes where jobs were put back for their GPU; none where colocd does not tell this user."""
    unfit = None if isinstance(status, ColocError) else status.get("unfit")
    if not isinstance(unfit, list):
        return  # only root and SlurmUser are told
    check = "unfit-gpus"
    if not unfit:
        yield Finding(check, Status.OK, "no job was put back for its GPU in the last hour")
        return
    shown = "; ".join(f"{one['node']} ({one['runs']}): {one['why']}" for one in unfit[:SHOWN])
    more = f"; and {len(unfit) - SHOWN} nodes more" if len(unfit) > SHOWN else ""
    todo = "see which process uses the GPU there (nvidia-smi): users must reach it by Slurm only"
    yield Finding(check, Status.WARN, f"jobs put back in the last hour: {shown}{more}", todo)
