# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: job_submit.lua, the SPANK plugin, Prolog and Epilog."""

import re
from collections.abc import Iterator
from pathlib import Path

from slurm_coloc.adapters import probe
from slurm_coloc.admin.doctor.slurm import Slurm
from slurm_coloc.admin.rules import slurm_conf
from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.config import Config


def checks(config: Config, slurm: Slurm) -> Iterator[Finding]:
    """Whether Slurm runs what slurm-coloc hooks into it, as far as this host can tell."""
    yield _job_submit(config, slurm)
    yield _spank(slurm)
    yield from _hooks(slurm)


def lua_posix() -> Finding:
    """Whether the Lua of slurmctld can reach colocd."""
    there, text = probe.lua_posix()
    return Finding(
        "lua-posix",
        Status.NA if there is None else Status.OK if there else Status.FAIL,
        text,
        "" if there is not False else "apt-get install lua-posix on the slurmctld host",
    )


def _job_submit(config: Config, slurm: Slurm) -> Finding:
    script = Path(slurm_conf.value(slurm.conf, "SLURM_CONF")).parent / "job_submit.lua"
    source = probe.text_of(script)
    if source is None:
        text = f"{script} cannot be read on this host"
        return Finding("job-submit-lua", Status.NA, text, "run coloc doctor on the slurmctld host")
    code = "\n".join(line.split("--", 1)[0] for line in source.splitlines())
    if _calls_coloc(code):
        if f'"{config.daemon.socket}"' in code:
            text = f"{script} names {config.daemon.socket}, which users can reach and hold up"
            todo = f'coloc.setup: socket = "{config.daemon.hook_path}"'
            return Finding("job-submit-lua", Status.WARN, text, todo)
        return Finding("job-submit-lua", Status.OK, f"{script} calls coloc.submit")
    text = f"{script} does not call coloc.submit"
    todo = "end slurm_job_submit with: return coloc.submit(job_desc, part_list, submit_uid)"
    return Finding("job-submit-lua", Status.FAIL, text, todo)


def _calls_coloc(code: str) -> bool:
    return "coloc.lua" in code and re.search(r"\.submit\s*\(", code) is not None


def _spank(slurm: Slurm) -> Finding:
    path = Path(slurm_conf.value(slurm.conf, "PlugStackConfig") or "/etc/slurm/plugstack.conf")
    plugins = [
        parts[1]
        for line in probe.plugstack(path)
        if len(parts := line.split()) >= 2 and "coloc" in Path(parts[1]).name
    ]
    if not plugins:
        todo = f"{path}: optional coloc.so (make -C spank install)"
        return Finding("spank-plugin", Status.FAIL, f"{path} names no coloc plugin", todo)
    plugin = Path(plugins[0])
    if not plugin.is_absolute():
        folders = [Path(one) for one in slurm_conf.value(slurm.conf, "PluginDir").split(":")]
        plugin = next((f / plugin for f in folders if probe.check(f / plugin)), folders[0] / plugin)
    if probe.check(plugin) is None:
        todo = "install it on every host where jobs are submitted or run"
        return Finding("spank-plugin", Status.FAIL, f"{plugin} is not there", todo)
    built, runs = probe.plugin_release(plugin), slurm.shape.release
    if built is None:
        todo = "rebuild it: make -C spank"
        return Finding("spank-plugin", Status.WARN, f"{plugin}: no Slurm release found in it", todo)
    text = f"{plugin} built for {built[0]}.{built[1]:02}, Slurm is {runs[0]}.{runs[1]:02}"
    good = built[:2] == runs[:2]
    todo = "rebuild it against this release: make -C spank clean all install"
    return judge("spank-plugin", good, text, todo)


def _hooks(slurm: Slurm) -> Iterator[Finding]:
    for kind in ("Prolog", "Epilog"):
        name = kind.lower()
        found = slurm_conf.values(slurm.conf, kind)
        todo = f"slurm.conf: {kind}=<folder of slurm-coloc's {name} script>, see {name}/README.md"
        if not found:
            yield Finding(name, Status.FAIL, f"no {kind} is configured", todo)
            continue
        paths = [Path(one) for one in found]
        files = [file for path in paths for file in sorted(path.parent.glob(path.name))]
        texts = [text for file in files if (text := probe.text_of(file)) is not None]
        if not texts:
            text = f"{', '.join(found)} cannot be read on this host"
            yield Finding(name, Status.NA, text, "run coloc doctor on a GPU node")
        elif any("coloc" in text for text in texts):
            yield Finding(name, Status.OK, ", ".join(found))
        else:
            text = f"{', '.join(found)}: does not run slurm-coloc's {name} script"
            yield Finding(name, Status.FAIL, text, todo)
