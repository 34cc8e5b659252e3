# SPDX-License-Identifier: Apache-2.0
"""S6 on real daemons in the default configuration: one user sends texts that are long to read while
another submits texts that nobody has sent before. What counts is whether the other user's jobs
share, and what colocd takes meanwhile."""

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_coloc.lab.client import Done
from slurm_coloc.lab.lab import Lab
from tests.cluster.floods import flood
from tests.cluster.jobs import until
from tests.cluster.test_tickets import LOGGED, submit, text_file

# A flood takes a core from all tests beside it, and they would miss their limits.
pytestmark = pytest.mark.long

SUBMISSIONS = 16
MORE = 1  # that may fail beside the bombs on top of those that fail without
MOST_MIB = 300  # colocd's processes together; its unit has MemoryMax=1G


def submitted(lab: Lab, tag: str) -> list[tuple[str, str]]:
    """The reason of the decision for each of new texts, and by what its estimate was found."""
    user = lab.users[0]
    texts = [text_file(lab, user, f"{tag}-{number}") for number in range(SUBMISSIONS)]
    return [found_by(lab, submit(lab, user, path)) for path in texts]


def said(lab: Lab) -> str:
    """colocd's log."""
    return lab.log_file("colocd", ".out").read_text(errors="replace")


def found_by(lab: Lab, done: Done) -> tuple[str, str]:
    """The reason of the decision for a job, and by what its estimate was found; what sbatch said
    where the job carries no mark of ours."""
    assert done.returncode == 0, done.stderr
    mark = lab.job(int(done.stdout.split()[-1]))["AdminComment"].split(":")
    if len(mark) != 6:
        return done.stderr.strip(), ""
    by = until(lambda: dict(LOGGED.findall(said(lab))).get(mark[2]), 20, f"{mark[2]} is in the log")
    return mark[4], by


def family(pid: int) -> Iterator[int]:
    """A process and those that descend from it."""
    yield pid
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from family(int(child))


def memory_mib(lab: Lab) -> float:
    """Of colocd's processes, what they share counted once."""
    total = 0
    for pid in family(lab.colocd.pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


@contextlib.contextmanager
def watched(lab: Lab) -> Iterator[list[float]]:
    """Its memory (MiB), taken again and again."""
    seen: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            seen.append(memory_mib(lab))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def ended(lab: Lab, how: str) -> int:
    """How many texts were ended so, by colocd's log."""
    return said(lab).count(f"ended={how}")


@pytest.mark.timeout(300)
def test_a_user_who_sends_bombs_costs_nobody_else_a_share(lab_like: Callable[..., Lab]) -> None:
    lab = lab_like(users=2, deadline_ms=200)
    tag = secrets.token_hex(4)
    submitted(lab, f"{tag}-first")  # the first ones are slower: slurmctld loads modules
    quiet = [one for one in submitted(lab, f"{tag}-quiet") if one != ("fits", "ticket")]
    with flood(lab, "bombs"), watched(lab) as seen:
        until(lambda: ended(lab, "cpu"), 60, "a text was ended for its processor time")
        flooded = [one for one in submitted(lab, f"{tag}-flood") if one != ("fits", "ticket")]
    print(f"{len(quiet)} and {len(flooded)} of {SUBMISSIONS}; at most {max(seen):.0f} MiB")
    assert len(flooded) <= len(quiet) + MORE, flooded
    assert max(seen) < MOST_MIB
