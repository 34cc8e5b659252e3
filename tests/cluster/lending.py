# SPDX-License-Identifier: Apache-2.0
"""Labs lent to one test after another: bringing one up costs several seconds of two cores.

A lab comes back empty: no job, no open run or recovery of colocd, every node idle. What a test did
beyond that takes the lab down instead: a dead daemon, a changed file of configuration, a failed
test. What colocd learned stays, so a test has a model of its own (tests/cluster/rules.fresh).
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from slurm_coloc.errors import ColocError
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.cluster.jobs import ask, until

SETTLED_S = 30.0


@dataclasses.dataclass
class Lent:
    """A lab, the test file that borrows it, and its configuration as it was when it came up."""

    lab: Lab
    borrower: Path
    files: dict[Path, bytes]


def configuration(lab: Lab) -> dict[Path, bytes]:
    """The files that the lab's daemons read."""
    found = [*lab.dir.glob("*.conf"), *lab.dir.glob("*.toml"), *lab.dir.glob("*.lua")]
    found += [
        *lab.dir.glob("etc/*.lua"),
        *lab.dir.glob("nodes/*/coloc.toml"),
        *lab.dir.glob("hooks/*"),
    ]
    return {path: path.read_bytes() for path in found}


class Library:
    """Keeps one lab at a time, for the next test of the same file that asks for the same."""

    def __init__(self, up: Callable[[LabSpec], Lab], down: Callable[[Lab], None]) -> None:
        self._up, self._down = up, down
        self._kept: Lent | None = None
        self.made = 0

    def lend(self, spec: LabSpec, borrower: Path) -> Lab:
        """The lab that is kept for ``borrower`` if it is like ``spec`` in all but the name, else a
        new one."""
        if self._kept is not None:
            same = dataclasses.replace(self._kept.lab.spec, name=spec.name) == spec
            if same and self._kept.borrower == borrower:
                return self._kept.lab
            self.close()
        self.made += 1
        lab = self._up(spec)
        self._kept = Lent(lab, borrower, configuration(lab))
        return lab

    def take_back(self, *, fit: bool) -> None:
        """After a test; ``fit``: it passed."""
        if self._kept is not None and not (fit and emptied(self._kept)):
            self.close()

    def close(self) -> None:
        """Take the lab down that is kept."""
        if self._kept is not None:
            lab, self._kept = self._kept.lab, None
            self._down(lab)


def emptied(lent: Lent) -> bool:
    """Empty the lab; False where it is not as it came up."""
    lab = lent.lab
    if not all(daemon.alive() for daemon in lab.daemons.values()):
        return False
    if configuration(lab) != lent.files:
        return False
    try:
        lab.clear()
        until(lambda: usable(lab), SETTLED_S, "the lab is empty")
    except (ColocError, OSError, AssertionError):
        return False
    return True


def usable(lab: Lab) -> bool:
    """Whether nothing of a job is left: nodes idle, and nothing open at colocd."""
    states = lab.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()
    if set(states) != {"idle"}:
        return False
    if not lab.spec.coloc:
        return True
    status = ask(lab, op="status")
    return bool(status["open_runs"] == 0 and status["open_work"] == 0)
