# SPDX-License-Identifier: Apache-2.0
"""What slurmd tells Prolog and Epilog in the environment, and the hooks' few settings.

Only SPANK_* comes from the user; it is asked for presence and never used as text. Everything else
is written by slurmd, yet each value is checked before use, because the work directory and the
log's pattern are the user's words.

Settings are read here without pydantic, whose import costs 100 to 150 ms before and after every
job; a unit test keeps the defaults equal to config's. A setting of the wrong type is refused.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.adapters.hookenv import cached_toml
from slurm_coloc.core.gpu.sharing import GPU_NAME, NODE_NAMES, Rule
from slurm_coloc.errors import ConfigError, UsageFault

DEFAULT_CONFIG = Path("/etc/slurm-coloc/coloc.toml")
MAX_GPUS = 64
MAX_PATH = 4096
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{8,80}")


class HookSettings(NamedTuple):
    """The part of the configuration that hooks and agent need (see config for the meaning)."""

    socket: Path = Path("/run/slurm-coloc/colocd.sock")
    slurm_user: str = "slurm"
    spool_dir: Path = Path("/var/spool/slurm-coloc")
    run_dir: Path = Path("/run/slurm-coloc-jobs")
    log_tail_kib: int = 256
    nvml: bool = True
    controllers: tuple[str, ...] = ()
    munge_socket: Path | None = None
    shard_mib: int = 1024
    method: str = "auto"
    rules: tuple[Rule, ...] = ()
    users: str = "one"
    several_gpus: str = "streams"
    thread_percentage: int = 0
    cgroup: str = "auto"
    frameworks: str = "known"
    mps_control: Path = Path("/usr/bin/nvidia-cuda-mps-control")
    sample: bool = True
    dcgmi: Path = Path("/usr/bin/dcgmi")
    job_stats: bool = False
    idle_after_s: int = 1800
    window_s: int = 90
    beat_s: int = 20
    job_mapping_dir: Path | None = None
    log_read_s: int = 0
    context_mib: int = 1900
    overrun: str = "tell"
    agent_port: int = 0
    address: str = "127.0.0.1"
    allow: tuple[str, ...] = ()
    token_file: Path | None = None
    names: tuple[str, ...] = ("coloc",)


# Every other field stands in [hooks].
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "daemon": ("socket", "slurm_user"),
    "network": ("controllers", "munge_socket"),
    "pool": ("shard_mib",),
    "sharing": (
        *("method", "rules", "users", "several_gpus", "thread_percentage", "cgroup"),
        *("frameworks", "mps_control"),
    ),
    "estimate": ("context_mib",),
    "fence": ("overrun",),
    "metrics": ("agent_port", "address", "allow", "token_file", "names"),
    "agent": (
        *("sample", "dcgmi", "job_stats", "idle_after_s", "window_s", "beat_s"),
        *("job_mapping_dir", "log_read_s"),
    ),
}
_SECTION = {name: section for section, names in _SECTIONS.items() for name in names}
_RANGES = {
    "log_tail_kib": (4, 16384),
    "shard_mib": (64, 65536),
    "thread_percentage": (0, 100),
    "idle_after_s": (0, 30 * 86400),
    "window_s": (1, 3600),
    "beat_s": (1, 30),
    "log_read_s": (0, 3600),
    "context_mib": (0, 65536),
    "agent_port": (0, 65535),
}
_WORDS = {
    "method": ("auto", "mps", "streams", "mig"),
    "users": ("one", "all"),
    "several_gpus": ("streams", "tasks"),
    "cgroup": ("auto", "off"),
    "frameworks": ("known", "always", "off"),
    "overrun": ("tell", "end"),
    "names": ("coloc", "slurm_job", "nvidia_gpu"),
}


def read_settings(environ: Mapping[str, str]) -> HookSettings:
    """The settings of $COLOC_CONFIG, else of /etc/slurm-coloc/coloc.toml, else the defaults.

    Raises ConfigError for a file that is named and missing, unreadable, or wrong in a field that
    the hooks use. `coloc config check` judges the whole file.
    """
    named = environ.get("COLOC_CONFIG")
    path = Path(named) if named else DEFAULT_CONFIG
    try:
        data = cached_toml.read(path)
    except FileNotFoundError:
        if named:
            raise ConfigError(f"{path}: no such file") from None
        return HookSettings()
    except (OSError, ValueError) as err:
        raise ConfigError(f"{path}: cannot be read: {err}") from err
    values: dict[str, object] = {}
    for name in HookSettings._fields:
        section = data.get(_SECTION.get(name, "hooks"), {})
        if not isinstance(section, dict) or name not in section:
            continue
        try:
            values[name] = _setting(name, section[name])
        except ConfigError as err:
            raise ConfigError(f"{path}: {name}: {err.message}") from None
    return HookSettings(**values)  # type: ignore[arg-type]


def _setting(name: str, value: object) -> object:
    """A value of the file, as the type of its default is; raises ConfigError."""
    if name == "rules":
        return _rules(value)
    default = HookSettings._field_defaults[name]
    # TOML has lists and strings; an optional setting is a path.
    kind = {tuple: list, bool: bool, int: int}.get(type(default), str)
    if type(value) is not kind:
        raise ConfigError(f"must be {kind.__name__}")
    if isinstance(value, list):
        if not all(isinstance(item, str) for item in value):
            raise ConfigError("must be a list of strings")
        if name in _WORDS and not set(value) <= set(_WORDS[name]):
            raise ConfigError(f"must be of {', '.join(_WORDS[name])}")
        return tuple(value)
    if isinstance(value, int) and name in _RANGES:
        least, most = _RANGES[name]
        if not least <= value <= most:
            raise ConfigError(f"must be {least} to {most}")
    if name in _WORDS and isinstance(value, str) and value not in _WORDS[name]:
        raise ConfigError(f"must be one of {', '.join(_WORDS[name])}")
    return Path(str(value)) if default is None or isinstance(default, Path) else value


def _rules(value: object) -> tuple[Rule, ...]:
    """[[sharing.rules]]; raises ConfigError."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ConfigError("must be an array of tables")
    found = []
    for one in value:
        if not one.keys() <= {"node", "gpu", "method"}:
            raise ConfigError("unknown key")
        if not all(isinstance(each, str) for each in one.values()):
            raise ConfigError("must be strings")
        if one.get("method") not in ("mps", "streams"):
            raise ConfigError("method: must be one of mps, streams")
        if "gpu" in one and not re.fullmatch(GPU_NAME, one["gpu"]):
            raise ConfigError("gpu: neither a number nor a UUID")
        if "node" in one and not re.fullmatch(NODE_NAMES, one["node"]):
            raise ConfigError("node: no list of nodes")
        found.append(Rule(one["method"], one.get("node"), one.get("gpu")))
    return tuple(found)


class HookJob(NamedTuple):
    """The job of this call, checked. ``stdout`` and ``stderr`` are patterns, None = not given.

    ``numbers`` are those of SLURM_JOB_GPUS (places in the list of ``slurmd -G``), ``uuids`` what
    CUDA_VISIBLE_DEVICES holds from 25.11 on. ``exit_code`` and ``signal`` are None in the
    Prolog. ``batch`` is false for salloc and srun, which have no log of their own.
    """

    job_id: int
    restart: int
    cluster: str
    node: str
    uid: int
    gid: int
    user: str
    work_dir: str
    batch: bool
    stdout: str | None
    stderr: str | None
    numbers: tuple[int, ...]
    uuids: tuple[str, ...]
    exit_code: int | None
    signal: int | None


class HookCall(NamedTuple):
    """One call of the Prolog or Epilog: its job, the settings, and the environment of both."""

    job: HookJob
    settings: HookSettings
    environ: Mapping[str, str]


def read_call(environ: Mapping[str, str]) -> HookCall:
    """Raises UsageFault for the environment, ConfigError for the settings."""
    return HookCall(read_job(environ), read_settings(environ), environ)


def read_job(environ: Mapping[str, str]) -> HookJob:
    """Check the environment of a Prolog or Epilog; raises UsageFault naming the bad variable."""
    numbers, uuids = _gpus(environ)
    exit_code, signal = _exit(environ.get("SLURM_JOB_EXIT_CODE2", ""))
    return HookJob(
        job_id=_number(environ, "SLURM_JOB_ID", 1),
        restart=_number(environ, "SLURM_JOB_RESTART_COUNT", 0, missing=0),
        cluster=_word(environ, "SLURM_CLUSTER_NAME", ""),
        node=_word(environ, "SLURMD_NODENAME", os.uname().nodename),
        uid=_number(environ, "SLURM_JOB_UID", 0),
        gid=_number(environ, "SLURM_JOB_GID", 0),
        user=_word(environ, "SLURM_JOB_USER", ""),
        work_dir=_path(environ, "SLURM_JOB_WORK_DIR") or "/",
        batch=_is_batch(environ),
        stdout=_path(environ, "SLURM_JOB_STDOUT"),
        stderr=_path(environ, "SLURM_JOB_STDERR"),
        numbers=numbers,
        uuids=uuids,
        exit_code=exit_code,
        signal=signal,
    )


def _is_batch(environ: Mapping[str, str]) -> bool:
    """22.05 and 24.11 set SLURM_JOB_STDIN for a batch job and only for one (tried)."""
    # The user's word can only deny: then no log is read.
    interactive = environ.get("SPANK_COLOC_KIND") in ("salloc", "srun")
    return "SLURM_JOB_STDIN" in environ and not interactive


def _number(environ: Mapping[str, str], name: str, least: int, missing: int | None = None) -> int:
    text = environ.get(name, "")
    if not text and missing is not None:
        return missing
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) < 2**32 - 1:
        raise UsageFault(f"{name} is not a number of {least} or more")
    return int(text)


def _word(environ: Mapping[str, str], name: str, missing: str) -> str:
    text = environ.get(name) or missing
    # A user name may hold more (a domain's backslash, an @) but never a slash or a blank.
    if not re.fullmatch(r"[^\s/\x00-\x1f\x7f]{0,255}", text) or text in (".", ".."):
        raise UsageFault(f"{name} is not one plain word")
    return text


def _path(environ: Mapping[str, str], name: str) -> str | None:
    """A path as the user wrote it: any character, bounded. Opened later with the user's rights."""
    text = environ.get(name)
    if text and len(os.fsencode(text)) > MAX_PATH:
        raise UsageFault(f"{name} is longer than {MAX_PATH} bytes")
    return text or None


def _gpus(environ: Mapping[str, str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    # Only where slurmd finds MIG devices by itself does it write their UUIDs (24.11: as text);
    # else CUDA's numbers are no better than its own.
    mig = environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-")
    names = ("SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
    for name in reversed(names) if mig else names:
        items = [item.strip() for item in environ.get(name, "").split(",", MAX_GPUS)]
        items = [item for item in items if item]
        if not items or items == ["NoDevFiles"]:
            continue
        if len(items) > MAX_GPUS:
            raise UsageFault(f"{name} lists more than {MAX_GPUS} GPUs")
        if all(re.fullmatch(r"[0-9]{1,4}", item) for item in items):
            return tuple(int(item) for item in items), ()
        if all(_UUID.fullmatch(item) for item in items):
            return (), tuple(items)
        raise UsageFault(f"{name} is neither a list of numbers nor of GPU UUIDs")
    return (), ()


def _exit(text: str) -> tuple[int | None, int | None]:
    """SLURM_JOB_EXIT_CODE2 is "exit:signal"; absent where slurmd does not know them."""
    hit = re.fullmatch(r"([0-9]{1,3}):([0-9]{1,3})", text)
    return (int(hit.group(1)), int(hit.group(2))) if hit else (None, None)
