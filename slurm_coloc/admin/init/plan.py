# SPDX-License-Identifier: Apache-2.0
"""What `coloc init` has to do on a host: which files, and which commands afterwards; pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from slurm_coloc.admin.init import edits
from slurm_coloc.admin.init.drop_ins import drop_ins
from slurm_coloc.admin.init.edits import Edit
from slurm_coloc.admin.rules.conf_file import ConfFile, parse_conf
from slurm_coloc.config.toml import toml_value
from slurm_coloc.core.slurm.gres import parse_gres
from slurm_coloc.core.slurm.hosts import DEFAULT_PORT, in_nodes, reached_as
from slurm_coloc.errors import ConfigError

#: files of the site, which are changed only where they are named
SITE_FILES = ("slurm.conf", "gres.conf", "plugstack.conf", "job_submit.lua")
TOML_HEAD = """\
# slurm-coloc, written by `coloc init`: what differs from the defaults on this host. Every key:
# coloc.toml(5), or `coloc config show --sample`.
version = 1"""
UNIT = {"controller": "slurm-coloc", "node": "slurm-coloc-agent"}


class Role(StrEnum):
    """What a host is; it may be several at once."""

    CONTROLLER = "controller"
    NODE = "node"
    LOGIN = "login"


@dataclass(frozen=True, slots=True)
class Host:
    """What init found.

    ``conf``: slurm.conf; ``files``: each file's text by its path, "" where there is none;
    ``whole``, ``gres_lines``, ``stack_lines``: lines of slurm.conf, gres.conf and plugstack.conf
    with their includes; ``node``: the name of this host's GPU node, "" where it cannot be told;
    ``cards``: shards of each of its GPUs, by minor number; ``cut``: one of them is in MIG mode;
    ``offers``: on the controller what each node's slurmd would offer; ``sample``: our
    job_submit.lua.
    """

    name: str
    roles: frozenset[Role]
    conf: Path
    stack: Path
    files: Mapping[Path, str]
    whole: tuple[str, ...]
    toml: Path
    node: str = ""
    cards: tuple[int, ...] = ()
    cut: bool = False
    offers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sample: str = ""
    gres_lines: tuple[str, ...] = ()
    stack_lines: tuple[str, ...] = ()

    @property
    def submit(self) -> Path:
        """job_submit.lua."""
        return self.conf.parent / "job_submit.lua"

    @property
    def gres(self) -> Path:
        """gres.conf."""
        return self.conf.parent / "gres.conf"

    @property
    def units(self) -> list[str]:
        """Our services on this host."""
        return [UNIT[one] for one in sorted(self.roles) if one in UNIT]

    @property
    def parsed(self) -> ConfFile:
        """slurm.conf."""
        return parse_conf(self.whole)


@dataclass(frozen=True, slots=True)
class FileStep:
    """One file. ``new``: its text afterwards; ``edits``: () for a file of our own; ``why``: what it
    is for; ``problem``: why only a person can do it."""

    path: Path
    old: str
    new: str
    why: str
    edits: tuple[Edit, ...] = ()
    problem: str = ""
    name: str = ""

    @property
    def called(self) -> str:
        """Its usual name, by which an admin names it: a site's slurm.conf may say another."""
        return self.name or self.path.name

    @property
    def due(self) -> bool:
        """Whether there is something to do."""
        return bool(self.problem) or self.old != self.new

    @property
    def named_only(self) -> bool:
        """Whether it is Slurm's, and so has to be named; a first job_submit.lua is ours."""
        ours = self.called == "job_submit.lua" and not self.old
        return self.called in SITE_FILES and not ours


def controllers(conf: ConfFile) -> list[str]:
    """The hosts of slurmctld as slurm.conf names them, the primary first."""
    names = conf.values.get("slurmctldhost", ()) or conf.values.get("controlmachine", ())
    return [reached_as(name) for name in names]


def short(name: str) -> str:
    """A host's own name without its domain."""
    return name.split("(")[0].split(".")[0]


def roles(conf: ConfFile, host: str) -> tuple[frozenset[Role], str]:
    """What the host is by slurm.conf, and the name of its GPU node."""
    names = conf.values.get("slurmctldhost", ()) or conf.values.get("controlmachine", ())
    found = {Role.CONTROLLER} if host in {short(name) for name in names} else set()
    node = ""
    for listed, pairs in conf.nodes:
        here = in_nodes(listed, host) or in_nodes(pairs.get("nodehostname", ""), host)
        if here and any(item.name == "gpu" for item in parse_gres(pairs.get("gres"))):
            node = host if in_nodes(listed, host) else "" if "[" in listed else listed
            found.add(Role.NODE)
    return frozenset(found or {Role.LOGIN}), node


def steps(host: Host, share: bool) -> Iterator[FileStep]:
    """The files of this host, our own first: nothing may name a file that is not there."""
    yield _toml(host)
    for path, text in drop_ins(host.units, _user(host)):
        yield FileStep(path, host.files.get(path, ""), text, "our service as SlurmUser")
    if Role.CONTROLLER in host.roles:
        yield _job_submit(host)
    if share and Role.NODE in host.roles:
        yield _site(
            host, host.gres, "the shards of this node's GPUs",
            lambda text: edits.gres_conf(host.gres_lines, *_own_gpus(host)),
        )  # fmt: skip
    if Role.CONTROLLER in host.roles or (share and Role.NODE in host.roles):
        yield _site(host, host.conf, _conf_why(share), lambda text: _conf(host, text, share))
    if Role.NODE not in host.roles or share:
        away = Role.LOGIN in host.roles
        yield _site(
            host, host.stack, "sbatch --coloc, and on GPU nodes Prolog and Epilog",
            lambda text: edits.plugstack(
                host.stack_lines, _remote(host), away=away, user=_user(host)
            ),
        )  # fmt: skip


def _conf_why(share: bool) -> str:
    return "the shards of the nodes" if share else "slurmctld asks colocd about --coloc jobs"


def _conf(host: Host, text: str, share: bool) -> Iterator[Edit]:
    words: dict[str, tuple[str, ...]] = {}
    if Role.CONTROLLER in host.roles:
        words["JobSubmitPlugins"] = ("lua",)
    shards: dict[str, str] = {}
    if share:
        words["GresTypes"] = ("gpu", "shard")
        shards = _shards(host)
        if not shards:
            text = "no node offers shards yet: coloc init --share on the GPU nodes first"
            raise ConfigError(text)
    yield from edits.slurm_conf(text, host.whole, words, shards)


def _own_gpus(host: Host) -> tuple[str, tuple[int, ...]]:
    """This host's node and the shards of its GPUs; raises ConfigError where they are not known."""
    if not host.node:
        raise ConfigError("several nodes of slurm.conf may be this host: COLOC_NODE=NAME tells it")
    if host.cut:
        raise ConfigError(
            "a GPU here is in MIG mode: write the lines of its devices and of the whole GPUs'"
            " shards by hand (docs/admin/mig.md)"
        )
    if not host.cards or not all(host.cards):
        raise ConfigError(
            "NVML shows no GPU here, or one without memory for a shard: see nvidia-smi"
        )
    return host.node, host.cards


def _shards(host: Host) -> dict[str, str]:
    """The shard gres of each node: of this one by its cards, on the controller as they offer it."""
    found = {}
    if Role.NODE in host.roles:
        node, cards = _own_gpus(host)
        kinds = {one.type for one in parse_gres(host.parsed.gres(node)) if one.name == "gpu"}
        # The GPUs' own type, or a backup slurmctld of 24.11 drains the node when it takes over.
        kind = f"{kinds.pop()}:" if len(kinds) == 1 and None not in kinds else ""
        found[node] = f"shard:{kind}{sum(cards)}"
    if Role.CONTROLLER in host.roles:
        for node, gres in host.offers.items():
            names = [
                name for name, count in gres.items() if name.split(":")[0] == "shard" and count
            ]
            if len(names) == 1:
                found[node] = f"{names[0]}:{gres[names[0]]}"
    return found


def _site(host: Host, path: Path, why: str, make: Callable[[str], Iterable[Edit]]) -> FileStep:
    old = host.files.get(path, "")
    names = {host.conf: "slurm.conf", host.stack: "plugstack.conf"}
    name = names.get(path, path.name)
    try:
        found = tuple(make(old))
        new = edits.apply(old, found) if found else old
        return FileStep(path, old, new, why, found, name=name)
    except ConfigError as err:
        return FileStep(path, old, old, why, problem=err.message, name=name)


def _job_submit(host: Host) -> FileStep:
    why, sample = "the hook inside slurmctld", host.sample
    if not host.files.get(host.submit):
        return FileStep(host.submit, "", sample, why)
    return _site(host, host.submit, why, lambda text: edits.job_submit(text, sample))


def _remote(host: Host) -> tuple[str, ...]:
    """controllers= of the plugin's line: none where colocd's host is the only one. Elsewhere the
    file may be the one of all hosts; beside colocd the plugin asks its socket first."""
    alone = Role.CONTROLLER in host.roles and _others(host) == 0
    return () if alone else _addresses(host)


def _user(host: Host) -> str:
    """SlurmUser; where slurm.conf names none Slurm takes root."""
    return host.parsed.value("SlurmUser") or "root"


def _addresses(host: Host) -> tuple[str, ...]:
    return tuple(f"{name}:{DEFAULT_PORT}" for name in controllers(host.parsed))


def _toml(host: Host) -> FileStep:
    """coloc.toml, where there is none: what differs from the defaults on this host."""
    old = host.files.get(host.toml, "")
    why = "the configuration"
    if old:
        return FileStep(host.toml, old, old, why)
    daemon, network = [], []
    user = _user(host)
    if user != "slurm":
        daemon.append(f'slurm_user = "{user}"')
    alone = len(_addresses(host)) == 1 and _others(host) == 0
    if Role.CONTROLLER in host.roles and not alone:
        network.append(f'listen = ":{DEFAULT_PORT}"')
    if Role.CONTROLLER not in host.roles or len(_addresses(host)) > 1:
        network.append(f"controllers = {toml_value(_addresses(host))}")
    tables = {"daemon": daemon, "network": network, "mode": ['default = "observe"']}
    parts = ["\n".join([f"[{name}]", *lines]) for name, lines in tables.items() if lines]
    return FileStep(host.toml, "", "\n\n".join([TOML_HEAD, *parts]) + "\n", why)


def _others(host: Host) -> int:
    """How many NodeName lines are for other hosts than this one."""
    return sum(
        not (in_nodes(names, host.name) and "[" not in names) for names, _ in host.parsed.nodes
    )


def afterwards(host: Host, done: Iterable[FileStep], share: bool) -> list[str]:
    """The commands that put changed files in force; an admin gives them."""
    changed = {step.called for step in done if step.old != step.new}
    found = []
    if Role.NODE in host.roles and changed & {"slurm.conf", "gres.conf", "plugstack.conf"}:
        found.append("systemctl restart slurmd")
    if Role.CONTROLLER in host.roles and changed & {"slurm.conf", "job_submit.lua"}:
        found.append("systemctl restart slurmctld" + (" && scontrol reconfigure" if share else ""))
    return found
