# SPDX-License-Identifier: Apache-2.0
"""``coloc leave --edit``: take back what `coloc init` wrote into this host's files."""

from collections.abc import Collection, Iterator
from pathlib import Path

from slurm_coloc.adapters import sitefile
from slurm_coloc.admin.init.edits import Edit, undo
from slurm_coloc.admin.init.plan import SITE_FILES
from slurm_coloc.admin.leave.plan import Facts, State, steps
from slurm_coloc.errors import UsageFault

#: files that say which shards there are, and one without which a share has no end on its node
SHARDS = ("slurm.conf", "gres.conf", "plugstack.conf")


def take_back(named: Collection[str], facts: Facts) -> Iterator[tuple[bool, str]]:
    """Each named file: whether it was done, and what was done or why not. A file that nobody
    changed since is byte for byte what it was; else our lines alone go. Raises ConfigError,
    UsageFault for a name that is none."""
    if unknown := sorted(set(named) - set(SITE_FILES)):
        raise UsageFault(f"--edit takes {', '.join(SITE_FILES)}, not {', '.join(unknown)}")
    known = {Path(name): change for name, change in sitefile.changes().items()}
    for name in SITE_FILES:
        paths = [path for path, change in known.items() if (change.name or path.name) == name]
        if name not in named:
            continue
        if not paths:
            yield False, f"{name}: coloc init has changed none on this host"
        for path in paths:
            if why := _too_early(name, facts):
                yield False, f"{path}: {why}"
            else:
                yield _undone(path, known[path])


def _too_early(name: str, facts: Facts) -> str:
    """Why a file cannot go back yet; "" where it can."""
    if name in SHARDS and facts.in_force:
        controller = next(step for step in steps(facts) if step.name == "controller")
        if name == "slurm.conf" and controller.state is State.BY_HAND:
            return ""
        return f"slurmctld has {', '.join(facts.in_force)}: first the steps before"
    if name == "job_submit.lua" and facts.hook_in_force and facts.script_is_ours:
        return "slurmctld runs JobSubmitPlugins=lua: slurm.conf first, then restart slurmctld"
    return ""


def _undone(path: Path, change: sitefile.Change) -> tuple[bool, str]:
    text = sitefile.text_of(path)
    old = sitefile.before(path)
    if text == old and path.exists() != change.new:
        done, said = True, "is as it was already"
    elif sitefile.digest(text) == change.after and change.new:
        path.unlink()
        done, said = True, "removed: coloc init had made it"
    elif sitefile.digest(text) == change.after:
        sitefile.replace(path, old)
        done, said = True, "byte for byte as it was before coloc init"
    else:
        text, left = undo(text, [Edit(*row) for row in change.edits])
        if left or not change.edits:
            lines = "; ".join(one.new for one in left) or "all of it"
            return False, f"{path}: was changed since: take out by hand: {lines}"
        sitefile.replace(path, text)
        done, said = True, "our lines are out; what others changed since stays"
    sitefile.forget(path)
    return done, f"{path}: {said}"
