# SPDX-License-Identifier: Apache-2.0
"""Checks of `coloc doctor --rollout`, pure: may slurmctld read this slurm.conf now, and what is the
next step?

Slurm drains a node whose slurmd offers less of a gres than slurm.conf wants ("gres/shard count
reported lower than configured"). slurmctld does not start with JobSubmitPlugins=lua and no script.
Without shards it cannot read the gres of jobs that have them.

FAIL: slurmctld must not read the file now. WARN: it may, but shares there lack something.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_coloc.admin.rules.conf_file import ConfFile
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.core.slurm.cluster import NodeShape
from slurm_coloc.core.slurm.gres import count_of, parse_gres

SHOWN = 8  # names of nodes or jobs
AGENT = "systemctl enable --now slurm-coloc-agent there (docs/admin/install-by-hand.md, step 2)"
NODE_FIRST = (
    "on that node first: gres.conf with the shards, slurm.conf with GresTypes=gpu,shard and this"
    " NodeName line, then restart slurmd (install-by-hand.md, step 3); slurmctld last"
)


@dataclass(frozen=True, slots=True)
class NodeSays:
    """A GPU node, and what its agent says of it; ``linked``: it has said so within a minute.
    ``told``: false where the agent says nothing of the installation (an older one)."""

    shape: NodeShape
    linked: bool = False
    told: bool = False
    gres: Mapping[str, int] = field(default_factory=dict)
    conf_s: float | None = None
    slurmd_s: float | None = None
    stack_s: float | None = None
    plugin: str = ""
    plugstack: bool = False
    hooks: bool = False
    why: str = ""

    @property
    def name(self) -> str:
        """NodeName."""
        return self.shape.name


@dataclass(frozen=True, slots=True)
class Site:
    """What slurmctld and its host say. ``shares``: jobs that hold shards or wait for them;
    ``script``: text of job_submit.lua, None where there is none; ``broken``: why Lua cannot read
    it, "" where it can or nobody can tell; ``types_in_force``: GresTypes of slurmctld; ``mode``:
    colocd's, "" where it is away; ``on_for``: what rules of coloc.toml switch it on for."""

    release: str
    nodes: tuple[NodeSays, ...]
    shares: Sequence[str] = ()
    script: str | None = None
    broken: str = ""
    types_in_force: frozenset[str] = frozenset()
    submit_in_force: bool = False
    mode: str = ""
    on_for: tuple[str, ...] = ()


def checks(conf: ConfFile, site: Site) -> Iterator[Finding]:
    """All checks of the file against the site."""
    yield _agents(site)
    yield from _files(site)
    yield _types(conf)
    yield from _starts(conf, site)
    yield _hooks(conf)
    yield _shares(conf, site)
    for node in site.nodes:
        yield from _node(conf, node)


def _agents(site: Site) -> Finding:
    name = "rollout-agents"
    lost = [node.name for node in site.nodes if not node.linked]
    old = [node.name for node in site.nodes if node.linked and not node.told]
    text = f"{len(site.nodes) - len(lost)} of {len(site.nodes)} GPU nodes say what they have"
    if not site.nodes:
        text, todo = (
            "slurmctld has no node with GPUs",
            "GPUs in gres.conf and slurm.conf first",
        )
        return Finding(name, Status.WARN, text, todo)
    if lost:
        return Finding(name, Status.WARN, f"{text}; nothing from {listed(lost)}", AGENT)
    if old:
        todo = "update slurm-coloc there and restart the agent"
        return Finding(name, Status.WARN, f"an older agent on {listed(old)}", todo)
    return Finding(name, Status.OK, text)


def _files(site: Site) -> Iterator[Finding]:
    """What a share lacks on a node; it drains nothing."""
    name, told = "rollout-files", [node for node in site.nodes if node.linked and node.told]
    lacking = [text for node in told if (text := lacks(node, site.release))]
    if lacking:
        todo = "install-by-hand.md, steps 1, 3: until then shares there have no fence and no record"
        yield Finding(name, Status.WARN, "; ".join(lacking[:SHOWN]), todo)
    elif told:
        yield Finding(name, Status.OK, f"plugin and hooks are on {listed(n.name for n in told)}")


def lacks(node: NodeSays, release: str) -> str:
    """What of ours is missing on a node, for people; "" where nothing is."""
    if not node.plugin:
        return f"{node.name}: coloc.so is not there"
    if node.plugin != release:
        return f"{node.name}: coloc.so is for Slurm {node.plugin}, this is {release}"
    if not node.plugstack:
        return f"{node.name}: plugstack.conf does not name coloc.so"
    if not node.hooks:
        return f"{node.name}: coloc-prolog or coloc-epilog is missing or cannot be run"
    if node.stack_s and node.slurmd_s and node.stack_s > node.slurmd_s + 1:
        return f"{node.name}: slurmd was started before plugstack.conf was changed: restart it"
    return ""


def _types(conf: ConfFile) -> Finding:
    name = "rollout-gres"
    wanted = [names for names, pairs in conf.nodes if count_of(pairs.get("gres"), "shard")]
    if not wanted:
        return Finding(name, Status.OK, "slurm.conf wants no shards of any node")
    if "shard" not in conf.words("GresTypes"):
        text = f"NodeName={wanted[0]} has shards, GresTypes has not"
        return Finding(name, Status.FAIL, text, "slurm.conf: GresTypes=gpu,shard")
    if conf.value("SelectType").lower() not in ("", "select/cons_tres"):
        text = f"SelectType={conf.value('SelectType')}: shards exist in select/cons_tres alone"
        return Finding(name, Status.FAIL, text, "slurm.conf: SelectType=select/cons_tres")
    return Finding(name, Status.OK, f"shards on {listed(wanted)}")


def _starts(conf: ConfFile, site: Site) -> Iterator[Finding]:
    """What slurmctld does not start with."""
    name = "rollout-submit"
    if "lua" in conf.words("JobSubmitPlugins"):
        if site.script is None:
            text = "JobSubmitPlugins=lua without job_submit.lua: slurmctld does not start"
            todo = "copy job_submit.lua there first (install-by-hand.md, step 4)"
            yield Finding(name, Status.FAIL, text, todo)
        elif site.broken:
            todo = "correct it first: slurmctld does not start with it"
            yield Finding(name, Status.FAIL, f"job_submit.lua: {site.broken}", todo)
        else:
            yield Finding(name, Status.OK, "job_submit.lua is there")
    else:
        yield Finding(name, Status.OK, "JobSubmitPlugins has no lua: the hook is not in force")
    tres = [one for one in conf.words("AccountingStorageTRES") if one.startswith("gres/")]
    if tres and conf.value("AccountingStorageType").lower() != "accounting_storage/slurmdbd":
        text = f"AccountingStorageTRES={tres[0]} without slurmdbd: slurmctld 24.11 does not start"
        yield Finding("rollout-tres", Status.FAIL, text, "leave AccountingStorageTRES out")


def _hooks(conf: ConfFile) -> Finding:
    """slurm.conf should name no file of ours: not every host that reads it has them."""
    name = "rollout-prolog"
    for kind in ("Prolog", "Epilog"):
        for path in conf.values.get(kind.lower(), ()):
            if f"coloc-{kind.lower()}" in path:
                text = f"{kind}={path}: each node on which that file is missing is drained"
                todo = "take the line out: the plugin of plugstack.conf starts it"
                return Finding(name, Status.FAIL, text, todo)
    return Finding(name, Status.OK, "no Prolog or Epilog line names a file of slurm-coloc")


def _shares(conf: ConfFile, site: Site) -> Finding:
    """Shards that are taken away from jobs."""
    name = "rollout-jobs"
    count = len(site.shares)
    keeps = "shard" in conf.words("GresTypes")
    lost = [
        node.name
        for node in site.nodes
        if node.shape.shards and not count_of(conf.gres(node.name), "shard")
    ]
    if not count or (keeps and not lost):
        return Finding(name, Status.OK, f"{count} jobs have or want shards")
    what = f"takes the shards of {listed(lost)}" if lost else "has no shard in GresTypes"
    text = f"slurm.conf {what} away from jobs that have or want shards: {listed(site.shares)}"
    todo = "coloc leave shows the way: no job may have shards before slurmctld loses them"
    return Finding(name, Status.FAIL, text, todo)


def _node(conf: ConfFile, node: NodeSays) -> Iterator[Finding]:
    """Whether slurmd there offers what the file wants."""
    name, wanted = f"rollout-{node.name}", conf.gres(node.name)
    if wanted is None or not count_of(wanted, "shard"):
        return
    if node.shape.shards >= (count_of(wanted, "shard") or 0) and node.shape.usable:
        yield Finding(name, Status.OK, f"its {node.shape.shards} shards are in force")
        return
    text, todo = refusal(node, wanted)
    if text:
        yield Finding(name, Status.FAIL, f"Slurm would drain it: {text}", todo)
    else:
        yield Finding(name, Status.OK, f"slurmd offers {wanted}")


def refusal(node: NodeSays, wanted: str) -> tuple[str, str]:
    """Why slurmctld would drain the node if it wanted this gres now, and what to do; "" where it
    would not."""
    if not node.linked:
        return "its agent says nothing, so what slurmd offers is not known", AGENT
    if not node.told:
        return "its agent is an older one", "update slurm-coloc there and restart the agent"
    if node.why:
        return f"what slurmd offers is not known: {node.why}", NODE_FIRST
    for item in parse_gres(wanted):
        if item.name in ("gpu", "shard") and (has := offered(node.gres, item.name, item.type)) < (
            item.count
        ):
            what = f"{item.name}:{item.type}" if item.type else item.name
            return f"slurmd there would offer {has} {what}, wanted are {item.count}", NODE_FIRST
    if node.slurmd_s is None:
        return "no slurmd runs there", "start slurmd there first"
    if node.conf_s is not None and node.slurmd_s + 1 < node.conf_s:
        text = "its files are right, but slurmd was started before they were changed"
        return text, "restart slurmd there first"
    return "", ""


def offered(gres: Mapping[str, int], name: str, kind: str | None) -> int:
    """How much of a gres is there; without a type of all types."""
    if kind:
        return gres.get(f"{name}:{kind}", 0)
    return sum(count for key, count in gres.items() if key.split(":")[0] == name)


def next_step(conf: ConfFile, site: Site) -> Finding:
    """What to do next, in the guide's order."""
    return Finding("rollout-next", Status.OK, _next(conf, site))


def _next(conf: ConfFile, site: Site) -> str:
    lost = [node.name for node in site.nodes if not (node.linked and node.told)]
    if not site.nodes or lost:
        return f"step 2: agents on {listed(lost) or 'the GPU nodes'}, after their files (step 1)"
    lacking = [node.name for node in site.nodes if lacks(node, site.release)]
    bare = [node.name for node in site.nodes if not offered(node.gres, "shard", None)]
    if bare or lacking:
        names = listed(dict.fromkeys([*bare, *lacking]))
        return f"step 3 on {names}: plugin line, gres.conf, slurm.conf with shards; restart slurmd"
    if "shard" not in conf.words("GresTypes") or "lua" not in conf.words("JobSubmitPlugins"):
        return "step 4: the lines of etc/slurm-coloc.conf and the shards in slurmctld's slurm.conf"
    if "shard" not in site.types_in_force or not site.submit_in_force:
        return "step 4: restart slurmctld, then scontrol reconfigure"
    if site.mode in ("", "off"):
        return f"step 4: colocd is {'off' if site.mode else 'away'}"
    if site.mode == "observe" and site.on_for:
        return f"nothing: it is on for {'; '.join(site.on_for)}"
    if site.mode == "observe":
        return "step 5: the plugin on the login nodes; observe, then mode on (step 6)"
    return "nothing: it is on"


def listed(names: "Iterator[str] | Sequence[str] | Mapping[str, object]") -> str:
    """The first names, and how many more."""
    found = list(names)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
