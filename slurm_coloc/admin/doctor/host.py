# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: what this host is, and whether it has what that needs."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from slurm_coloc.adapters import probe, programfiles, slurmconf, units
from slurm_coloc.admin.doctor.colocd import Answer
from slurm_coloc.admin.doctor.rollout import node_says
from slurm_coloc.admin.init.plan import UNIT, Role, roles
from slurm_coloc.admin.rules.conf_file import parse_conf
from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.admin.rules.rollout import lacks
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.errors import ColocError

SHOWN = 8
#: where Lua 5.1 finds lua-posix: Debian's and EL's packages, luarocks
LUA_POSIX = (
    "/usr/lib/*/lua/5.1/posix/*.so",
    "/usr/lib/*/lua/5.1/posix_c.so",
    "/usr/lib64/lua/5.1/posix/*.so",
    "/usr/local/lib/lua/5.1/posix/*.so",
    "/usr/share/lua/5.1/posix/init.lua",
)


def roles_here(environ: Mapping[str, str]) -> frozenset[Role]:
    """What slurm.conf makes of this host; a login node where it names it nowhere."""
    conf = slurmconf.find(environ)
    lines = probe.plugstack(conf) if conf else []
    return roles(parse_conf(lines), environ.get("COLOC_NODE") or probe.short_host_name())[0]


def checks(config: Config, here: frozenset[Role], *, installed: bool) -> Iterator[Finding]:
    """The checks that need nobody's answer. ``installed``: it is the installed configuration, and
    not another one beside it (a lab's), whose program is not ours to judge."""
    yield Finding("role", Status.OK, ", ".join(sorted(here)))
    if not installed:
        yield Finding("program", Status.NA, "COLOC_CONFIG names another configuration")
        return
    yield _program(config, here)
    for role in sorted(here):
        if role in UNIT:
            yield _unit(UNIT[role])


def _program(config: Config, here: frozenset[Role]) -> Finding:
    """Units and hooks start /usr/bin/coloc; colocd as SlurmUser."""
    check, path = "program", programfiles.PROGRAM
    todo = "install the package again, or: ln -s /opt/slurm-coloc/bin/coloc /usr/bin/coloc"
    if not path.exists():
        gone = "leads nowhere" if path.is_symlink() else "is not there"
        return Finding(check, Status.FAIL, f"{path} {gone}: units and hooks start it", todo)
    user = config.daemon.slurm_user if Role.CONTROLLER in here else "root"
    why = units.runs_as(user, str(path), "--version")
    todo = f"{user} must be able to read it and its packages: chmod -R o+rX their folders"
    return judge(check, not why, why or f"{path} runs as {user}", todo)


def _unit(name: str) -> Finding:
    check = "service"
    state = units.state(name)
    if state is None:
        return Finding(check, Status.NA, f"{name}: no systemd runs this host")
    active, enabled = state
    text = f"{name}: {active}, {enabled}"
    good = active == "active" and enabled in ("enabled", "static")
    status = Status.FAIL if active != "active" else Status.WARN
    return judge(check, good, text, f"systemctl enable --now {name}", status)


def lua_posix(here: frozenset[Role]) -> Finding:
    """Whether the Lua of slurmctld can reach colocd; only its host needs that."""
    check, todo = "lua-posix", "apt-get install lua-posix"
    if Role.CONTROLLER not in here:
        return Finding(check, Status.NA, "slurmctld's host needs it")
    there, text = probe.lua_posix()
    if there is None:
        # Without an interpreter to ask: whether its files lie where packages have them.
        there = any(map(_found, LUA_POSIX))
        text = "its files are there" if there else "its files are in none of Lua 5.1's folders"
    return judge(check, there, text, todo)


def _found(pattern: str) -> bool:
    return any(Path("/").glob(pattern.lstrip("/")))


def nodes(status: Answer, shape: ClusterShape) -> Iterator[Finding]:
    """What the agents say of the other hosts, where this is slurmctld's."""
    links = None if isinstance(status, ColocError) else status.get("links")
    if not isinstance(links, list):
        return
    release = f"{shape.release[0]}.{shape.release[1]:02}"
    by_node = {row["node"]: row for row in links}
    said = [node_says(node, by_node.get(node.name)) for node in shape.nodes if node.shards]
    lacking = [text for one in said if one.linked and one.told and (text := lacks(one, release))]
    if lacking:
        todo = "on that host: coloc init --share, or coloc doctor"
        yield Finding("node-files", Status.FAIL, "; ".join(lacking[:SHOWN]), todo)
    else:
        yield Finding("node-files", Status.OK, "every linked node with shards has its files")


def mode_rules(config: Config, shape: ClusterShape) -> Iterator[Finding]:
    """Partitions that rules name and Slurm does not have: such a rule matches nothing."""
    known = {part.name for part in shape.partitions}
    named = [rule.partition for rule in config.mode.rules if rule.partition]
    named += config.pool.partitions + config.idle.interactive_partitions
    named += config.idle.spared_partitions
    lost = sorted({name for name in named if name not in known})
    if lost:
        near = probe.nearest(lost[0], known)
        hint = f" (did you mean {near}?)" if near else ""
        text = f"no such partition: {', '.join(lost)}{hint}"
        todo = "correct it in mode.rules, pool.partitions or idle of coloc.toml"
        yield Finding("partitions", Status.FAIL, text, todo)
    else:
        yield Finding("partitions", Status.OK, f"{len(known)} known, {len(named)} named")
