# SPDX-License-Identifier: Apache-2.0
"""`coloc lab up`: claim, write, build, start, wait; anything that fails takes all of it down."""

import importlib.util
import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_coloc.core.slurm.releases import LEAST_LOADED
from slurm_coloc.errors import SlurmError, UsageFault
from slurm_coloc.lab import accounting, conf, parts, registry, runtime, serving

if TYPE_CHECKING:
    from slurm_coloc.lab.lab import Lab


@dataclass
class Ground:
    """What up holds while it works."""

    programs: parts.Programs
    ports: list[int]


def up(lab: "Lab") -> "Lab":
    """Bring ``lab`` up; see Lab.up."""
    programs = check(lab)
    _clear_dead(lab)
    ports = _claim(lab)
    try:
        _devices(lab)
        _raise(lab, Ground(programs, ports))
    except BaseException:
        lab.down(grace_s=2.0)
        raise
    return lab


def check(lab: "Lab") -> parts.Programs:
    """Everything that can be known before anything is made; raises as Lab.up does."""
    spec = lab.spec
    spec.check()
    if os.geteuid() != 0:
        raise UsageFault("a lab starts daemons and makes accounts: run it as root")
    if not (runtime.CHECKOUT / "pyproject.toml").is_file():
        raise UsageFault(
            f"a lab needs a checkout of slurm-coloc; this package lies in {runtime.PACKAGE}"
        )
    programs = parts.find_programs()
    if spec.least_loaded and not LEAST_LOADED.holds(programs.release):
        raise UsageFault(f"Slurm {programs.version} has no LL_SHARED_GRES: leave --least-loaded")
    if spec.accounting:
        accounting.find_programs()
    lab.version, lab.release = programs.version, programs.release
    return programs


def _claim(lab: "Lab") -> list[int]:
    """Take the name and the ports. Written before anything is made, so that down finds it."""
    spec = lab.spec
    with registry.locked() as data:
        if spec.name in data["labs"] or lab.dir.exists():
            raise UsageFault(
                f"a lab called {spec.name!r} or its folder {lab.dir} is there already:"
                f" coloc lab down --name {spec.name}, or another --name"
            )
        taken = {port for other in data["labs"].values() for port in other["ports"]}
        ports = registry.free_ports(1 + spec.nodes + spec.network + 2 * spec.accounting, taken)
        entry = {"dir": str(lab.dir), "ports": ports, "users": [], "devices": []}
        data["labs"][spec.name] = entry
    return ports


def _devices(lab: "Lab") -> None:
    with registry.locked() as data:
        made: list[str] = data["devices_made"]
        cards = lab.spec.cards
        caps = [one.cap for one in cards.slices]
        devices = registry.make_devices(cards.gpus, caps, made)
        data["labs"][lab.spec.name]["devices"] = devices


def _clear_dead(lab: "Lab") -> None:
    """Take away the remains of a lab of this name whose daemons are all dead."""
    try:
        old = type(lab).attach(lab.spec.name)
    except UsageFault:
        return
    if old.daemons and not any(one.alive() for one in old.daemons.values()):
        old.down()


def _raise(lab: "Lab", ground: Ground) -> None:
    began = time.monotonic()
    programs = ground.programs
    _folders(lab, programs)
    lab.save()
    spec = lab.spec
    wants = spec.emulator or spec.coloc
    log = lab.log_file("make-emulator")
    emulator = parts.Build("slurm_coloc/lab/emulator", lab.dir, log, wants)
    # A lab without emulated GPUs needs that one file all the same.
    bare = not wants and not parts.may_make_namespaces()
    shim = parts.Build("slurm_coloc/lab/emulator", lab.dir, log, bare, "no-namespaces")
    spank = parts.Build("spank", lab.dir / "spank", lab.log_file("make-spank"), spec.coloc)
    try:
        _start_munge(lab, programs)
        _accounts(lab)
        how = runtime.install(lab.dir)
        lab.notes.append(f"coloc: {how}")
        site = _site(lab, ground, spank)
        _write(lab, site)
        _ledgers(lab, emulator)
        shim.wait()
        if site.dbd_port:
            ends = site.db_port, site.dbd_port
            accounting.start(lab, site.hostname, *ends, programs.slurm)
        _start_slurm(lab, programs)
        if lab.spec.coloc:
            _start_colocd(lab, programs)
    finally:
        for build in (emulator, shim, spank):
            build.cancel()
    lab.notes.append(f"up after {time.monotonic() - began:.1f} s")
    lab.save()


def _folders(lab: "Lab", programs: parts.Programs) -> None:
    slurm, munge = programs.slurm, programs.munge
    lab.dir.mkdir(mode=0o755, parents=True)
    lab.dir.chmod(0o755)
    wanted = [("bin", 0o755, 0, 0), ("lib", 0o755, 0, 0), ("hooks", 0o755, 0, 0)]
    wanted += [("home", 0o755, 0, 0), ("home/root", 0o700, 0, 0), ("spank", 0o755, 0, 0)]
    wanted += [("log", 0o755, slurm.pw_uid, slurm.pw_gid)]
    wanted += [("state", 0o700, slurm.pw_uid, slurm.pw_gid)]
    wanted += [("munge", 0o755, munge.pw_uid, munge.pw_gid), ("nodes", 0o755, 0, 0)]
    wanted += [("coloc", 0o755, slurm.pw_uid, slurm.pw_gid)]
    wanted += [("coloc/state", 0o700, slurm.pw_uid, slurm.pw_gid)]
    wanted += [("coloc/spool", 0o700, slurm.pw_uid, slurm.pw_gid)]
    for node in lab.spec.node_names:
        wanted += [(f"nodes/{node}", 0o755, 0, 0), (f"nodes/{node}/spool", 0o755, 0, 0)]
        wanted += [(f"nodes/{node}/jobs", 0o755, 0, 0)]
        wanted += [(f"nodes/{node}/reports", 0o700, slurm.pw_uid, slurm.pw_gid)]
    for name, mode, uid, gid in wanted:
        path = lab.dir / name
        path.mkdir()
        path.chmod(mode)
        os.chown(path, uid, gid)


def _accounts(lab: "Lab") -> None:
    users = lab.spec.user_names
    for user in users:
        # Looked at before it is written down as ours: down removes what is written down.
        if parts.uid_of(user) is not None:
            raise SlurmError(f"an account {user} is on this machine already")
    with registry.locked() as data:
        data["labs"][lab.spec.name]["users"] = users
    for user in users:
        parts.add_user(user, lab.home(user))


def _site(lab: "Lab", ground: Ground, spank: parts.Build) -> conf.Site:
    plugin = None
    lua = lab.spec.coloc and parts.copy_lua(lab.dir / "etc")
    if lab.spec.coloc:
        if spank.wait():
            plugin = next(iter(sorted((lab.dir / "spank").rglob("*.so"))), None)
        if not lua:
            lab.notes.append("no etc/coloc.lua in this checkout: requests are not rewritten")
        if plugin is None:
            lab.notes.append("no SPANK plugin in this checkout: sbatch knows no --coloc")
    ports = ground.ports
    return conf.Site(
        hostname=socket.gethostname().split(".")[0],
        release=ground.programs.release,
        slurm_user=ground.programs.slurm.pw_name,
        ctld_port=ports[0],
        node_ports=tuple(ports[1 : 1 + lab.spec.nodes]),
        link_port=ports[-1] if lab.spec.network else 0,
        lua=lua,
        spank=plugin,
        **_accounting_ports(lab, ports),
    )


def _accounting_ports(lab: "Lab", ports: list[int]) -> dict[str, int]:
    first = 1 + lab.spec.nodes
    if not lab.spec.accounting:
        return {}
    return {"db_port": ports[first], "dbd_port": ports[first + 1]}


def _write(lab: "Lab", site: conf.Site) -> None:
    spec, d = lab.spec, lab.dir
    put(d / "slurm.conf", conf.slurm_conf(spec, site))
    put(d / "gres.conf", conf.gres_conf(spec))
    put(d / "cgroup.conf", conf.cgroup_conf(site))
    put(d / "plugstack.conf", conf.plugstack_conf(spec, site))
    settings = conf.coloc_settings(spec, site)
    put(d / "coloc.toml", conf.toml(settings))
    if site.lua:
        put(d / "job_submit.lua", conf.job_submit_lua(spec))
        put(d / "cli_filter.lua", (d / "etc" / "cli_filter.lua").read_text())
    for node in spec.node_names:
        put(d / "nodes" / node / "coloc.toml", conf.toml(conf.node_settings(spec, settings, node)))
    put(d / "login.toml", conf.toml(conf.login_settings(spec, settings)))
    for kind in ("prolog", "epilog"):
        script = parts.hook_script(kind) if spec.coloc else None
        if script is None and spec.coloc:
            lab.notes.append(f"no {kind}/ script in this checkout")
        put(d / "hooks" / kind, conf.hook_wrapper(spec, kind, script), 0o755)
    put(d / "hooks" / "task_prolog", conf.task_prolog(spec), 0o755)
    put(d / "env.sh", conf.env_sh(lab.env))


def put(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that everybody may read, whatever the umask is."""
    path.write_text(text)
    path.chmod(mode)


def _ledgers(lab: "Lab", emulator: parts.Build) -> None:
    """Build the emulator and give each node its GPUs."""
    try:
        built = emulator.wait()
    except SlurmError:
        if lab.spec.coloc:
            raise
        built = False  # Slurm and shards alone do without
    if not built and lab.spec.emulator:
        lab.notes.append(
            "no emulator from slurm_coloc/lab/emulator: the GPUs are device nodes only"
        )
    if not built:
        return
    for node in lab.spec.node_names:
        ledger = lab.dir / "nodes" / node / "ledger"
        seed = f"{lab.spec.name}-{node}"
        argv = [f"{lab.dir}/bin/coloc-emu", "init", "--machine", lab.spec.machine]
        lab.run([*argv, "--uuid-seed", seed, str(ledger)], cwd="/")
        ledger.chmod(0o666)


def _start_munge(lab: "Lab", programs: parts.Programs) -> None:
    munge, d = programs.munge, lab.dir / "munge"
    key = d / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    os.chown(key, munge.pw_uid, munge.pw_gid)
    argv = [programs.paths["munged"], "--foreground", f"--socket={d}/socket", f"--key-file={key}"]
    argv += [f"--pid-file={d}/pid", f"--seed-file={d}/seed"]
    _launch(lab, "munged", argv, {"PATH": parts.SYSTEM_PATH}, (munge.pw_uid, munge.pw_gid))


def _start_slurm(lab: "Lab", programs: parts.Programs) -> None:
    config = f"{lab.dir}/slurm.conf"
    env = {"PATH": parts.SYSTEM_PATH, "SLURM_CONF": config, "LANG": "C.UTF-8"}
    argv = [programs.paths["slurmctld"], "-D", "-f", config]
    _launch(lab, "slurmctld", argv, env, None)
    env = env | _without_namespaces(lab)
    for node in lab.spec.node_names:
        argv = [programs.paths["slurmd"], "-D", "-f", config, "-N", node]
        lab.commands[f"slurmd-{node}"] = {"argv": argv, "env": env, "user": None}
        lab.start(f"slurmd-{node}")
    for node in lab.spec.node_names:
        serving.wait_daemon(lab, f"slurmd-{node}")


def _without_namespaces(lab: "Lab") -> dict[str, str]:
    """What keeps slurmd 23.11 and later alive where it may make no namespace, as in a container.

    slurm_coloc/lab/emulator/src/no_namespaces.c says how; without the build, --export=NONE ends
    slurmd there.
    """
    shim = lab.dir / "lib" / "no-namespaces.so"
    if parts.may_make_namespaces() or not shim.exists():
        return {}
    return {"LD_PRELOAD": str(shim)}


def _start_colocd(lab: "Lab", programs: parts.Programs) -> None:
    if importlib.util.find_spec("slurm_coloc.daemon") is None:
        lab.notes.append("no colocd in this checkout")
        return
    slurm = programs.slurm
    env = {**lab.env, "LANG": "C.UTF-8", "HOME": str(lab.dir / "coloc"), "USER": slurm.pw_name}
    argv = [f"{lab.dir}/bin/coloc", "serve"]
    who = (slurm.pw_uid, slurm.pw_gid)
    _launch(lab, "colocd", argv, env, who)
    for node in lab.spec.node_names:
        own = env | {
            "COLOC_CONFIG": f"{lab.dir}/nodes/{node}/coloc.toml",
            # what stands for the node's driver
            "LD_LIBRARY_PATH": f"{lab.dir}/lib",
            "COLOC_EMU_LEDGER": f"{lab.dir}/nodes/{node}/ledger",
            "HOME": "/",
            "USER": "root",
        }
        _launch(lab, f"agent-{node}", [argv[0], "agent", "--node", node], own, None)


def _launch(
    lab: "Lab", name: str, argv: list[str], env: dict[str, str], user: tuple[int, int] | None
) -> None:
    lab.commands[name] = {"argv": argv, "env": env, "user": list(user) if user else None}
    lab.start(name)
    serving.wait_daemon(lab, name)
