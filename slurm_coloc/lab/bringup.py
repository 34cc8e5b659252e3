# SPDX-License-Identifier: Apache-2.0
"""`coloc lab up`: check the specification, claim name and ports, write, build, start, wait."""

import os
import re
import secrets
import socket
import time
from pathlib import Path

from slurm_coloc.core.slurm.releases import LEAST_LOADED
from slurm_coloc.errors import SlurmError, UsageFault
from slurm_coloc.lab import accounting, conf, layout, parts, registry, runtime
from slurm_coloc.lab.daemons import Command, Daemons

COLOCD_NICE = -5  # as in etc/systemd/slurm-coloc.service
CAP_SYS_NICE = 23  # linux/capability.h


def check(lab: Daemons) -> parts.Programs:
    """Everything that can be known before anything is made; raises as Lab.up does."""
    spec = lab.spec
    spec.check()
    if os.geteuid() != 0:
        raise UsageFault("a lab starts daemons and makes accounts: run it as root")
    if spec.coloc and not (parts.SOURCES / "etc" / "coloc.lua").is_file():
        raise UsageFault(
            f"no Lua, hooks and SPANK plugin in {parts.SOURCES}: install slurm-coloc by pip from a"
            " wheel or a checkout, or give --no-coloc for Slurm alone"
        )
    programs = parts.find_programs(spec.slurm)
    if spec.least_loaded and not LEAST_LOADED.holds(programs.release):
        raise UsageFault(f"Slurm {programs.version} has no LL_SHARED_GRES: leave --least-loaded")
    if spec.accounting:
        accounting.find_programs(spec.slurm)
    lab.version, lab.release = programs.version, programs.release
    return programs


def claim(lab: Daemons) -> list[int]:
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


def bring_up(lab: Daemons, programs: parts.Programs, ports: list[int]) -> None:
    """Make and start everything of a lab that has claimed its name and ``ports``.

    Raises SlurmError; what was made until then is left to the caller.
    """
    began = time.monotonic()
    spec = lab.spec
    _devices(lab)
    layout.make_folders(lab, programs)
    lab.save()
    emulated = spec.emulator or spec.coloc
    log = lab.log_file("make-emulator")
    emulator = parts.Build(parts.EMULATOR, lab.dir, log, emulated)
    # A lab without emulated GPUs needs that one file all the same.
    bare = not emulated and not parts.may_make_namespaces()
    shim = parts.Build(parts.EMULATOR, lab.dir, log, bare, "no-namespaces")
    spank_log = lab.log_file("make-spank")
    headers = (f"SLURM_INCLUDE={spec.slurm}/include",) if spec.slurm else ()
    spank = parts.Build(
        parts.SOURCES / "spank", lab.dir / "spank", spank_log, spec.coloc, more=headers
    )
    try:
        _start_munge(lab, programs)
        _accounts(lab)
        lab.notes.append(f"coloc: {runtime.install(lab.dir)}")
        site = _site(lab, programs, ports)
        layout.write_files(lab, site)
        spank.wait()
        _ledgers(lab, emulator)
        shim.wait()
        if site.dbd_port:
            ends = site.db_port, site.dbd_port
            accounting.start(lab, site.hostname, *ends, programs.slurm)
        _start_slurm(lab, programs)
        if spec.coloc:
            _start_colocd(lab, programs)
    finally:
        for build in (emulator, shim, spank):
            build.cancel()
    lab.notes.append(f"up after {time.monotonic() - began:.1f} s")
    lab.save()


def _devices(lab: Daemons) -> None:
    cards = lab.spec.cards
    with registry.locked() as data:
        made: list[str] = data["devices_made"]
        devices = registry.make_devices(cards.gpus, [one.cap for one in cards.slices], made)
        data["labs"][lab.spec.name]["devices"] = devices


def _accounts(lab: Daemons) -> None:
    users = lab.spec.user_names
    for user in users:
        # Checked before it is recorded as ours: down removes what is recorded.
        if parts.uid_of(user) is not None:
            raise SlurmError(f"an account {user} is on this machine already")
    with registry.locked() as data:
        data["labs"][lab.spec.name]["users"] = users
    for user in users:
        parts.add_user(user, lab.home(user))


def _site(lab: Daemons, programs: parts.Programs, ports: list[int]) -> conf.Site:
    spec = lab.spec
    free = 1 + spec.nodes
    return conf.Site(
        hostname=socket.gethostname().split(".")[0],
        release=programs.release,
        slurm_user=programs.slurm.pw_name,
        ctld_port=ports[0],
        node_ports=tuple(ports[1:free]),
        link_port=ports[-1] if spec.network else 0,
        db_port=ports[free] if spec.accounting else 0,
        dbd_port=ports[free + 1] if spec.accounting else 0,
    )


def _ledgers(lab: Daemons, emulator: parts.Build) -> None:
    """Build the emulator and give each node its GPUs."""
    try:
        built = emulator.wait()
    except SlurmError:
        if lab.spec.coloc:
            raise
        built = False  # Slurm and shards alone do without
        lab.notes.append("the emulator was not built: the GPUs are device nodes only")
    if not built:
        return
    for node in lab.spec.node_names:
        ledger = lab.dir / "nodes" / node / "ledger"
        seed = f"{lab.spec.name}-{node}"
        argv = [f"{lab.dir}/bin/coloc-emu", "init", "--machine", lab.spec.machine]
        lab.run([*argv, "--uuid-seed", seed, str(ledger)], cwd="/")
        ledger.chmod(0o666)


def _start_munge(lab: Daemons, programs: parts.Programs) -> None:
    munge, d = programs.munge, lab.dir / "munge"
    key = d / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    os.chown(key, munge.pw_uid, munge.pw_gid)
    argv = [programs.paths["munged"], "--foreground", f"--socket={d}/socket", f"--key-file={key}"]
    argv += [f"--pid-file={d}/pid", f"--seed-file={d}/seed"]
    who = munge.pw_uid, munge.pw_gid
    lab.launch("munged", Command(argv, {"PATH": parts.SYSTEM_PATH}, who))


def _start_slurm(lab: Daemons, programs: parts.Programs) -> None:
    config = f"{lab.dir}/slurm.conf"
    env = {"PATH": parts.path_of(lab.spec.slurm), "SLURM_CONF": config, "LANG": "C.UTF-8"}
    argv = [programs.paths["slurmctld"], "-D", "-f", config]
    lab.launch("slurmctld", Command(argv, env))
    env = env | _without_namespaces(lab)
    for node in lab.spec.node_names:
        argv = [programs.paths["slurmd"], "-D", "-f", config, "-N", node]
        lab.start(f"slurmd-{node}", Command(argv, env))
    for node in lab.spec.node_names:
        lab.wait_daemon(f"slurmd-{node}")


def _without_namespaces(lab: Daemons) -> dict[str, str]:
    """What keeps slurmd 23.11 and later alive where it may make no namespace, as in a container.

    slurm_coloc/lab/emulator/src/no_namespaces.c says how; without the build, --export=NONE ends
    slurmd there.
    """
    shim = lab.dir / "lib" / "no-namespaces.so"
    if parts.may_make_namespaces() or not shim.exists():
        return {}
    return {"LD_PRELOAD": str(shim)}


def _may_go_first(uid: int, gid: int) -> list[str]:
    """The words that start a program as this user with the right to SCHED_RR. Its unit gives colocd
    a limit for that, which root of a virtual machine may not raise. None in a container without
    CAP_SYS_NICE."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    if not found or not int(found[1], 16) >> CAP_SYS_NICE & 1:
        return []
    who = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    return ["setpriv", *who, "--inh-caps=+sys_nice", "--ambient-caps=+sys_nice"]


def _start_colocd(lab: Daemons, programs: parts.Programs) -> None:
    slurm = programs.slurm
    env = {**lab.env, "LANG": "C.UTF-8", "HOME": str(lab.dir / "coloc"), "USER": slurm.pw_name}
    coloc = f"{lab.dir}/bin/coloc"
    who = slurm.pw_uid, slurm.pw_gid
    first = _may_go_first(*who)
    owner = None if first else who
    lab.launch("colocd", Command([*first, coloc, "serve"], env, owner, nice=COLOCD_NICE))
    for node in lab.spec.node_names:
        own = env | {
            "COLOC_CONFIG": f"{lab.dir}/nodes/{node}/coloc.toml",
            # what stands for the node's driver
            "LD_LIBRARY_PATH": f"{lab.dir}/lib",
            "COLOC_EMU_LEDGER": f"{lab.dir}/nodes/{node}/ledger",
            "HOME": "/",
            "USER": "root",
        }
        lab.launch(f"agent-{node}", Command([coloc, "agent", "--node", node], own))
