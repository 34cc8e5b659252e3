# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: job_submit.lua, the SPANK plugin, Prolog and Epilog."""

import re
from collections.abc import Iterator
from pathlib import Path

from slurm_coloc.adapters import probe
from slurm_coloc.admin.doctor.slurm import Slurm
from slurm_coloc.admin.init.plan import Role
from slurm_coloc.admin.rules import slurm_conf
from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.config import Config

#: where the plugin finds coloc-prolog and coloc-epilog, unless plugstack.conf says hooks=DIR
HOOKS = "/usr/libexec/slurm-coloc"


def checks(config: Config, slurm: Slurm, here: frozenset[Role]) -> Iterator[Finding]:
    """Whether Slurm runs what slurm-coloc hooks into it, as far as this host can tell; ``here``:
    what this host is."""
    if Role.CONTROLLER in here:
        yield _job_submit(config, slurm)
    else:
        yield Finding("job-submit-lua", Status.NA, "slurmctld's host needs it")
    yield _spank(slurm)
    yield from _hooks(slurm)


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


def _plugin_line(slurm: Slurm) -> tuple[Path, list[str]]:
    """plugstack.conf, and the words of its line that names our plugin; [] where none does."""
    path = Path(slurm_conf.value(slurm.conf, "PlugStackConfig") or "/etc/slurm/plugstack.conf")
    for line in probe.plugstack(path):
        if len(words := line.split()) >= 2 and "coloc" in Path(words[1]).name:
            return path, words
    return path, []


def _spank(slurm: Slurm) -> Finding:
    path, words = _plugin_line(slurm)
    if not words:
        todo = f"{path}: optional coloc.so (make -C spank install)"
        return Finding("spank-plugin", Status.FAIL, f"{path} names no coloc plugin", todo)
    if words[0] == "required":
        text = f"{path} says required: on a host without the plugin no job starts"
        return Finding("spank-plugin", Status.FAIL, text, f"{path}: optional coloc.so")
    plugin = Path(words[1])
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
    """Prolog and Epilog: started by the plugin, or with hooks=off by the site's own scripts."""
    _, words = _plugin_line(slurm)
    args = [word.removeprefix("hooks=") for word in words[2:] if word.startswith("hooks=")]
    folder = args[-1] if args else HOOKS
    for kind in ("Prolog", "Epilog"):
        lines = slurm_conf.values(slurm.conf, kind)
        ours = [line for line in lines if Path(line).name == f"coloc-{kind.lower()}"]
        if folder == "off":
            yield _by_the_site(kind, lines)
        elif ours:
            text = f"{kind}={ours[0]}: a node on which that file is missing is drained"
            todo = f"take the line out of slurm.conf: the plugin starts coloc-{kind.lower()}"
            yield Finding(kind.lower(), Status.WARN, text, todo)
        else:
            yield _by_the_plugin(slurm, Path(folder) / f"coloc-{kind.lower()}", kind.lower())


def _by_the_plugin(slurm: Slurm, script: Path, name: str) -> Finding:
    host, found = probe.short_host_name(), probe.check(script)
    if found is not None and found.mode & 0o111:
        return Finding(name, Status.OK, f"{script}, started by the plugin")
    text = f"{script} {'cannot be run' if found else 'is not there'}"
    if not any(host in (node.name, node.hostname) for node in slurm.shape.nodes):
        return Finding(name, Status.NA, text, "GPU nodes need it")
    todo = "make install puts it there; until then shares here are neither fenced nor measured"
    return Finding(name, Status.FAIL, text, todo)


def _by_the_site(kind: str, lines: list[str]) -> Finding:
    name = kind.lower()
    todo = f"plugstack.conf says hooks=off: start coloc-{name} from your own {kind}"
    if not lines:
        return Finding(name, Status.FAIL, f"no {kind} is configured", todo)
    paths = [Path(one) for one in lines]
    files = [file for path in paths for file in sorted(path.parent.glob(path.name))]
    texts = [text for file in files if (text := probe.text_of(file)) is not None]
    if not texts:
        text = f"{', '.join(lines)} cannot be read on this host"
        return Finding(name, Status.NA, text, "run coloc doctor on a GPU node")
    if any("coloc" in text for text in texts):
        return Finding(name, Status.OK, ", ".join(lines))
    text = f"{', '.join(lines)}: does not run slurm-coloc's {name} script"
    return Finding(name, Status.FAIL, text, todo)
