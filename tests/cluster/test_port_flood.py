# SPDX-License-Identifier: Apache-2.0
"""A flood of TCP connections to colocd's port, from the address of the nodes themselves: nodes get
in, submissions share within the hook's real deadline, and jobs are looked at and reported."""

import json
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.link.client import Me, NetWire
from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.flow.launch.prolog import ASK_S
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, ask, desk, shards, until
from tests.cluster.test_network import liar, target
from tests.flood import flooding

# A flood takes a core from all tests beside it, and they would miss their limits.
pytestmark = pytest.mark.long

HELLOS, SUBMISSIONS, ROUNDS = 12, 6, 3


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Two nodes that reach colocd over TCP; the configuration and the deadline are the default."""
    from slurm_coloc.lab.spec import LabSpec
    from tests.cluster.conftest import PREFIX, lab_of

    with lab_of(request, LabSpec(name=f"{PREFIX}flood", nodes=2, users=2, network=True)) as made:
        yield made


@pytest.fixture
def linked(lab: Lab) -> Iterator[Lab]:
    for name in ("colocd", "agent-n1", "agent-n2"):
        if not lab.daemon(name).alive():
            lab.restart(name)
    until(lambda: ask(lab, op="status")["linked_nodes"] == 2, 40, "both agents are linked")
    yield lab
    lab.clear()


def hellos(lab: Lab) -> list[str]:
    """Why each hello of root's of a node failed within the Prolog's time, "" where it did not."""
    uid = pwd.getpwnam("slurm").pw_uid

    def one() -> str:
        try:
            with NetWire(target(lab), Me(uid, "", "n1", lab.dir / "munge/socket"), ASK_S) as wire:
                return "" if wire.call("ping").get("ok") else "refused"
        except DaemonUnreachable as err:
            return err.message

    return [one() for _ in range(HELLOS)]


def shared(lab: Lab, me: Desk) -> int:
    """How many of SUBMISSIONS got a share."""
    found = 0
    for _ in range(SUBMISSIONS):
        job_id = me.submit("--mem=100", "--hold", wrap="true")
        job = lab.job(job_id)
        found += "coloc:1:" in job.get("AdminComment", "") and 0 < shards(job) < 39
        lab.run(["scancel", str(job_id)])
    return found


def reservation(lab: Lab, job: dict[str, str]) -> dict[str, Any]:
    """What the Prolog of a job was told, once it has asked."""
    path = lab.dir / "nodes" / job["NodeList"] / "jobs" / f"{job['JobId']}.json"

    def found() -> dict[str, Any] | None:
        if not path.exists():
            return None
        held: dict[str, Any] = json.loads(path.read_text())["reservation"]
        return None if held.get("reason") == "colocd has not answered yet" else held

    held: dict[str, Any] = until(found, 20, "the Prolog has asked", each_s=0.02)
    return held


@contextmanager
def hooks_have_the_agent_alone(lab: Lab) -> Iterator[None]:
    """Prolog and Epilog of both nodes know no colocd and have no spool."""
    texts: dict[Path, str] = {}
    for node in ("n1", "n2"):
        file = lab.dir / "nodes" / node / "coloc.toml"
        texts[file] = file.read_text()
        changed = texts[file].replace(target(lab), "127.0.0.1:1")
        spool = str(lab.dir / "nodes" / node / "reports")
        assert changed != texts[file] and spool in changed
        file.write_text(changed.replace(spool, "/proc/none"))
    try:
        yield
    finally:
        for file, text in texts.items():
            file.write_text(text)


@pytest.mark.smoke
def test_nodes_that_authenticated_before_get_in(linked: Lab) -> None:
    assert hellos(linked) == [""] * HELLOS
    with flooding(target(linked)):
        found = hellos(linked)
    assert found == [""] * HELLOS


def some_round(what: Callable[[], int], enough: int) -> list[int]:
    """Results of ``what`` until one is enough, ROUNDS at most: a busy machine may be late once."""
    found: list[int] = []
    while len(found) < ROUNDS and enough not in found:
        found.append(what())
    return found


@pytest.mark.smoke
def test_submissions_share_within_the_hooks_deadline(linked: Lab) -> None:
    me = desk(linked, 231)
    quiet = some_round(lambda: shared(linked, me), SUBMISSIONS)
    assert SUBMISSIONS in quiet, f"without a flood: {quiet}"
    with flooding(target(linked)):
        flooded = some_round(lambda: shared(linked, me), SUBMISSIONS)
    assert SUBMISSIONS in flooded, f"of {SUBMISSIONS}: {flooded}"


@pytest.mark.smoke
def test_launch_and_report_arrive_through_the_agent(linked: Lab) -> None:
    lab = linked
    me = desk(lab, 232)
    job_id = me.submit("--mem=100", "--hold", script=liar(4))
    with hooks_have_the_agent_alone(lab), flooding(target(lab)):
        lab.run(["scontrol", "release", str(job_id)])
        job = lab.wait(job_id, "RUNNING", 60)
        held = reservation(lab, job)
        assert held["available"] is True, held
        assert held["from"] == f"{target(lab)} via agent"
        until(lambda: lab.job(job_id)["Restarts"] == "1", 60, "the report arrived: it is requeued")
        lab.wait(job_id, "COMPLETED", 90)


@pytest.mark.smoke
def test_without_the_agent_hooks_go_their_own_way(linked: Lab) -> None:
    lab = linked
    me = desk(lab, 233)
    for node in ("n1", "n2"):
        lab.stop(f"agent-{node}")
        assert (lab.dir / "nodes" / node / "jobs/agent/hooks.sock").exists()
    job_id = me.submit("--mem=100", script=liar(4))
    job = lab.wait(job_id, "RUNNING", 60)
    held = reservation(lab, job)
    assert (held["available"], held["from"]) == (True, target(lab))
    until(lambda: lab.job(job_id)["Restarts"] == "1", 60, "the job is requeued")
    lab.wait(job_id, "COMPLETED", 90)
