# SPDX-License-Identifier: Apache-2.0
"""What is installed on this node, for ``coloc doctor --rollout``: the agent's heartbeat carries it.

slurmctld drains a node whose slurmd offers less than slurm.conf wants. Before slurmctld reads the
shards it has no word for them, so the node itself must tell what its slurmd would offer.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import probe, slurmconf, slurmd
from slurm_coloc.errors import GpuError

AGAIN_S = 10.0  # at each heartbeat (20 s)
COUNTS_S = 600.0  # for a change of the cards themselves, which no file shows
HOOKS = "/usr/libexec/slurm-coloc"
PLUGIN_DIRS = "/usr/lib/*/slurm-wlm:/usr/lib64/slurm:/usr/lib/slurm:/usr/lib/*/slurm"


class NodeSetup:
    """Looks again when the last look is older than AGAIN_S."""

    def __init__(self, environ: Mapping[str, str], node: str) -> None:
        self._environ = environ
        self._node = node
        self._at_s = -AGAIN_S
        self._last: dict[str, Any] = {}
        self._counts = GresCounts(environ, node)

    def latest(self) -> dict[str, Any]:
        """The fields of the heartbeat's ``setup``; never raises."""
        if time.monotonic() - self._at_s >= AGAIN_S:
            try:
                self._last = examined(self._environ, self._node, self._counts)
            except Exception as err:  # a heartbeat must go whatever is wrong here
                self._last = {"why": f"{type(err).__name__}: {err}"[:200]}
            self._at_s = time.monotonic()
        return self._last


class GresCounts:
    """How much of each gres slurmd would offer. slurmd is asked again after a change of its files,
    after its start, and once in a while: it takes 0.02 s, and longer where it looks for cards."""

    def __init__(self, environ: Mapping[str, str], node: str) -> None:
        self._environ = environ
        self._node = node
        self._key = ""
        self._at_s = 0.0
        self._last: dict[str, int] = {}

    def latest(self, conf: Path, began_s: float | None) -> dict[str, int]:
        """``began_s``: slurmd's start. Raises GpuError."""
        key, now_s = slurmd.list_key(conf, began_s), time.monotonic()
        if not key or key != self._key or now_s - self._at_s >= COUNTS_S:
            self._key = ""
            self._last = slurmd.gres_counts(self._environ, self._node, conf)
            self._key, self._at_s = key, now_s
        return self._last


def examined(environ: Mapping[str, str], node: str, counts: GresCounts) -> dict[str, Any]:
    """``gres``: what slurmd would offer with the files that are there now; ``conf_s`` and
    ``slurmd_s``: when these files were changed last and when slurmd was started; ``stack_s``: when
    plugstack.conf was changed; ``plugin``: the
    release that coloc.so was built for, "" where it is not there; ``plugstack``: whether
    plugstack.conf names it; ``hooks``: whether the hooks' scripts can be run; ``why``: what could
    not be looked at."""
    conf = slurmconf.place(environ)
    began_s = slurmd.began_s(node)
    found: dict[str, Any] = {"gres": {}, "why": "", "slurmd_s": began_s}
    try:
        found["gres"] = counts.latest(conf, began_s)
    except GpuError as err:
        found["why"] = err.message[:200]
    changed = [_mtime(path) for path in (conf, conf.parent / "gres.conf")]
    found["conf_s"] = max((one for one in changed if one), default=None)
    return found | _plugin(conf)


def _mtime(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _plugin(conf: Path) -> dict[str, Any]:
    """The plugin's line, its file, and the hooks that it starts."""
    stack, folders = conf.parent / "plugstack.conf", PLUGIN_DIRS
    for line in probe.plugstack(conf):
        name, _, value = line.partition("=")
        if name.strip().lower() == "plugstackconfig":
            stack = Path(value.strip())
        elif name.strip().lower() == "plugindir":
            folders = value.strip()
    lines = [words for line in probe.plugstack(stack) if len(words := line.split()) >= 2]
    named = next((words for words in lines if "coloc" in Path(words[1]).name), [])
    plugin = _find(Path(named[1] if named else "coloc.so"), folders)
    built = probe.plugin_release(plugin) if plugin else None
    args = [word.removeprefix("hooks=") for word in named[2:] if word.startswith("hooks=")]
    where = args[-1] if args else HOOKS
    hooks = [os.access(f"{where}/coloc-{kind}", os.X_OK) for kind in ("prolog", "epilog")]
    return {
        "stack_s": _mtime(stack),
        "plugin": f"{built[0]}.{built[1]:02}" if built else "",
        "plugstack": bool(named),
        "hooks": where == "off" or all(hooks),
    }


def _find(plugin: Path, folders: str) -> Path | None:
    if plugin.is_absolute():
        return plugin if plugin.exists() else None
    for folder in folders.split(":"):
        base = Path("/")
        for found in sorted(base.glob(folder.lstrip("/"))):
            if (found / plugin).exists():
                return found / plugin
    return None
