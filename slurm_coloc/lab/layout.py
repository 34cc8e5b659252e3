# SPDX-License-Identifier: Apache-2.0
"""The folders and files of a lab, written before its daemons start."""

import os
from pathlib import Path

from slurm_coloc.lab import conf, parts
from slurm_coloc.lab.daemons import Daemons


def make_folders(lab: Daemons, programs: parts.Programs) -> None:
    """Make the lab's folders, each with its owner and mode, whatever the umask is."""
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


def write_files(lab: Daemons, site: conf.Site) -> None:
    """Write the configuration, hooks and environment of all daemons and users."""
    spec, d = lab.spec, lab.dir
    _put(d / "slurm.conf", conf.slurm_conf(spec, site))
    _put(d / "gres.conf", conf.gres_conf(spec))
    _put(d / "cgroup.conf", conf.cgroup_conf(site))
    _put(d / "plugstack.conf", conf.plugstack_conf(spec, site))
    settings = conf.coloc_settings(spec, site)
    _put(d / "coloc.toml", conf.toml(settings))
    if spec.coloc:
        parts.copy_lua(d / "etc")
        _put(d / "job_submit.lua", conf.job_submit_lua(spec))
        _put(d / "cli_filter.lua", (d / "etc" / "cli_filter.lua").read_text())
    for node in spec.node_names:
        _put(d / "nodes" / node / "coloc.toml", conf.toml(conf.node_settings(spec, settings, node)))
    _put(d / "login.toml", conf.toml(conf.login_settings(spec, settings)))
    for kind in ("prolog", "epilog"):
        script = conf.hook_wrapper(spec, parts.SOURCES / kind / f"coloc-{kind}")
        _put(d / "hooks" / (f"coloc-{kind}" if spec.coloc else kind), script, 0o755)
    _put(d / "hooks" / "task_prolog", conf.task_prolog(spec), 0o755)
    _put(d / "env.sh", conf.env_sh(lab.env))


def _put(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that everybody may read, whatever the umask is."""
    path.write_text(text)
    path.chmod(mode)
