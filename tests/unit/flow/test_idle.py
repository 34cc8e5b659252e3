# SPDX-License-Identifier: Apache-2.0
"""A job that holds a GPU and does not use it: told, warned, cancelled where the site says so."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, parse_config
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.time.idle import IdleRule, Step, next_step
from slurm_coloc.errors import ConfigError, SlurmError
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.watch import idle
from slurm_coloc.flow.watch.adopt import adopt
from slurm_coloc.flow.watch.idle import IdleJobs
from slurm_coloc.flow.watch.record import Recorder
from tests.unit.flow.contexts import context

ID = "0123456789ab"
VIEW = JobView(
    7, "RUNNING", uid=1000, nodes="n1", partition="main", submit_s=1.0, start_s=2.0,
    tres_per_node="gres/shard:12", batch=True,
    admin_comment=f"coloc:1:{ID}:collocate:fits:12",
)  # fmt: skip
SHAPE = ClusterShape("c", (24, 11, 5), (NodeShape("n1", ("main",), (), "a100", 2, 78),))
SITE = {"cancel_after_s": 7200, "cancel_interactive_after_s": 3600, "warn_s": 600}


class Slurm:
    def __init__(self, view: JobView = VIEW) -> None:
        self.view: JobView | None = view
        self.lines: list[str] = []
        self.cancelled: list[str] = []
        self.away = False
        self.asked = 0
        self.refuses = ""  # the code of the error of each order

    async def job(self, job_id: int) -> JobView | None:
        self.asked += 1
        if self.away:
            raise SlurmError("away", "slurm-away")
        return self.view

    async def notify(self, handle: str, text: str) -> None:
        if self.refuses:
            raise SlurmError("refused", self.refuses)
        self.lines.append(text)

    async def cancel(self, handle: str) -> None:
        if self.refuses:
            raise SlurmError("refused", self.refuses)
        self.cancelled.append(handle)


class Clock:
    """Seconds since the job became idle."""

    def __init__(self) -> None:
        self.began_s = time.time()
        self.idle_s = 0.0

    def __call__(self) -> float:
        return self.began_s + self.idle_s


class Site:
    """A site with one job that has become idle. ``at`` lets a round pass at that time."""

    def __init__(self, folder: Path, clock: Clock, **changes: Any) -> None:
        rule = changes.pop("rule", SITE)
        self.mode, self.is_off = changes.pop("mode", "on"), False
        self.clock = clock
        self.slurm = Slurm(replace(VIEW, **changes))
        self.store = Store.open(folder)
        self.config = parse_config({"mode": {"default": "on"}, "idle": rule}, "test")
        adopt(self.config, self.store, SHAPE, VIEW)
        self.store.runs.see(
            Run(decision=ID, job_id=7, restart=0, uid=1000, submit_s=1.0, state="RUNNING",
                node="n1", tres=VIEW.tres_per_node, start_s=2.0)
        )  # fmt: skip
        if self.mode != "on":
            self.store._db.execute("UPDATE decisions SET mode = ?", (self.mode,))
        self.live = Live(self.store)
        self.start()

    def start(self) -> None:
        """colocd starts (again)."""
        found = context(
            self.store, self.slurm, self.config, live=self.live, off=lambda: self.is_off
        )
        self.part = IdleJobs(found)

    def at(
        self, idle_s: float, *, since_s: float | None = None, certain_s: float | None = -1
    ) -> "Site":
        self.clock.idle_s = idle_s
        since_s = self.clock.began_s if since_s is None else since_s
        certain_s = since_s if certain_s == -1 else certain_s
        one = {"job_id": 7, "restart": 0, "since_s": since_s, "certain_s": certain_s}
        self.live.take("n1", {"idle": [one]})
        asyncio.run(self.part.round())
        return self

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.store.events(ID, 7) if event.kind.startswith("idle")]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "time", found)
    return found


@pytest.fixture
def site(tmp_path: Path, clock: Clock) -> Callable[..., Site]:
    return lambda **changes: Site(tmp_path, clock, **changes)


def test_by_default_its_owner_is_told_once_and_nothing_else(site: Callable[..., Site]) -> None:
    here = site(rule={})
    for idle_s in (1800, 1820, 7200, 86400):
        here.at(idle_s)
    assert here.slurm.lines == ["coloc: this job holds a GPU and has not used it for 30 min"]
    assert here.kinds == [idle.NOTED] and not here.slurm.cancelled


def test_told_warned_cancelled(site: Callable[..., Site]) -> None:
    here = site().at(1800).at(6590)
    assert here.kinds == [idle.NOTED]
    here.at(6600).at(6610)
    assert here.slurm.lines[1:] == [
        "coloc: this job holds a GPU and has not used it for 1 h 50 min:"
        " it is cancelled in 10 min if it stays so"
    ]
    here.at(7190)
    assert not here.slurm.cancelled
    here.at(7200).at(7210)
    assert here.slurm.cancelled == ["7"]
    assert here.kinds == [idle.NOTED, idle.WARNED, idle.CANCELLED]


def test_the_end_says_why(site: Callable[..., Site]) -> None:
    here = site().at(6600).at(7200)
    view = replace(VIEW, state="CANCELLED", end_s=here.clock())
    run = here.store.runs.of_job(7)[0]
    Recorder(here.config, here.store).end(run, Outcome.CANCELLED, view, None)
    assert here.store.runs.of_job(7)[0].outcome == Outcome.IDLE


def test_a_job_that_its_owner_cancels_ends_by_him(site: Callable[..., Site]) -> None:
    here = site().at(6600)
    run = here.store.runs.of_job(7)[0]
    view = replace(VIEW, state="CANCELLED", end_s=here.clock())
    Recorder(here.config, here.store).end(run, Outcome.CANCELLED, view, None)
    assert here.store.runs.of_job(7)[0].outcome == Outcome.CANCELLED


def test_a_job_that_works_again_begins_anew(site: Callable[..., Site]) -> None:
    here = site().at(6600)
    here.at(9000, since_s=here.clock.began_s + 7000)
    assert len(here.slurm.lines) == 2  # it is told again
    here.at(13000, since_s=here.clock.began_s + 7000)
    assert here.kinds == [idle.NOTED, idle.WARNED, idle.NOTED] and not here.slurm.cancelled


def test_nobody_is_cancelled_unwarned(site: Callable[..., Site]) -> None:
    """The rule is new, or colocd was away: the owner has the whole time of a warning."""
    here = site().at(90000)
    assert here.kinds == [idle.NOTED, idle.WARNED] and "in 10 min" in here.slurm.lines[-1]
    here.at(90590)
    assert not here.slurm.cancelled
    assert here.at(90600).slurm.cancelled


def test_a_colocd_that_starts_again_goes_on(site: Callable[..., Site]) -> None:
    here = site().at(6600)
    here.start()
    assert here.at(6700).kinds == [idle.NOTED, idle.WARNED]
    here.start()
    here.at(7200)
    here.start()
    assert here.at(7210).slurm.cancelled == ["7"]


def test_slurmctld_away_loses_no_word(site: Callable[..., Site]) -> None:
    here = site()
    here.slurm.away = True
    here.at(1800)
    assert not here.kinds
    here.slurm.away = False
    assert here.at(1810).slurm.lines and here.kinds == [idle.NOTED]


def test_what_slurmctld_did_not_take_is_told_later(site: Callable[..., Site]) -> None:
    here = site()
    here.slurm.refuses = "slurm-away"
    assert not here.at(1800).kinds
    here.slurm.refuses = ""
    here.at(1810)
    assert here.at(1820).kinds == [idle.NOTED] and len(here.slurm.lines) == 1


def test_a_warning_that_slurmctld_did_not_take_is_none(site: Callable[..., Site]) -> None:
    here = site().at(1800)
    here.slurm.refuses = "slurm-away"
    here.at(6600).at(7200)
    assert here.kinds == [idle.NOTED]
    here.slurm.refuses = ""
    here.at(9000).at(9590)
    assert not here.slurm.cancelled
    assert here.at(9600).slurm.cancelled


def test_a_job_that_cannot_be_told_counts_as_warned(site: Callable[..., Site]) -> None:
    """Slurm refuses: it has no output that could be written to."""
    here = site().at(1800)
    here.slurm.refuses = "slurm-refused"
    here.at(6600)
    here.slurm.refuses = ""
    assert here.at(7200).slurm.cancelled


def test_a_cancel_that_slurmctld_did_not_take_is_tried_again(site: Callable[..., Site]) -> None:
    here = site().at(6600)
    here.slurm.refuses = "slurm-away"
    here.at(7200).at(7210)
    assert not here.slurm.cancelled
    here.slurm.refuses = ""
    here.at(7250)
    assert not here.slurm.cancelled, "it may still be carried out"
    assert here.at(7260).slurm.cancelled == ["7"]


@pytest.mark.parametrize(
    ("changes", "cancelled"),
    [
        ({"batch": False}, True),  # salloc, srun: an hour
        ({}, False),
        ({"partition": "hub", "rule": SITE | {"interactive_partitions": ["hub"]}}, True),
        ({"batch": False, "rule": SITE | {"spared_partitions": ["main"]}}, False),
        ({"batch": False, "nodes": "n[1-2]"}, False),  # it may wait for the other node
        ({"batch": False, "mode": "observe"}, False),
        ({"batch": False, "completing": True}, False),
        ({"batch": False, "restarts": 1}, False),  # the run that was idle has ended
    ],
)  # fmt: skip
def test_whom_the_rule_is_for(
    site: Callable[..., Site], changes: dict[str, Any], cancelled: bool
) -> None:
    here = site(**changes).at(3000).at(3600)
    assert bool(here.slurm.cancelled) is cancelled


def test_a_part_of_what_several_did_is_told_and_no_more(site: Callable[..., Site]) -> None:
    """The driver's figures of each process may be wrong under MPS."""
    here = site(batch=False)
    for idle_s in (1800, 3000, 3600, 90000):
        here.at(idle_s, certain_s=None)
    assert here.kinds == [idle.NOTED] and len(here.slurm.lines) == 1


def test_it_is_not_warned_again_and_again_either(site: Callable[..., Site]) -> None:
    """A rule that cancels as soon as it may: nothing counts against the job, so nothing is due."""
    here = site(batch=False, rule={"cancel_interactive_after_s": 600, "warn_s": 600})
    for idle_s in (1800, 1810, 1820):
        here.at(idle_s, certain_s=None)
    assert here.kinds == [idle.NOTED] and len(here.slurm.lines) == 1


def test_a_site_may_trust_the_parts(site: Callable[..., Site]) -> None:
    here = site(batch=False, rule=SITE | {"trust_split": True})
    assert here.at(3000, certain_s=None).at(3600, certain_s=None).slurm.cancelled


def test_only_certain_time_counts(site: Callable[..., Site]) -> None:
    """A neighbour worked between: what was certain begins again, and so does the warning."""
    here = site(batch=False).at(3000)
    here.at(3600, certain_s=None)
    again_s = here.clock.began_s + 4000
    here.at(7590, certain_s=again_s)
    assert not here.slurm.cancelled and here.kinds.count(idle.WARNED) == 2
    here.at(7600, certain_s=again_s)
    assert not here.slurm.cancelled
    assert here.at(8200, certain_s=again_s).slurm.cancelled


def test_slurmctld_is_asked_once_of_what_kind_a_job_is(site: Callable[..., Site]) -> None:
    """A notebook that no rule ends, beside a rule for batch jobs that would have: for days."""
    here = site(batch=False, rule={"cancel_after_s": 7200})
    for idle_s in range(1800, 90000, 600):
        here.at(idle_s)
    assert here.slurm.asked == 1 and not here.slurm.cancelled


def test_switched_off_it_only_notes(site: Callable[..., Site]) -> None:
    here = site(batch=False)
    here.is_off = True
    here.at(3000).at(3600)
    assert here.kinds == [idle.NOTED] and not here.slurm.lines and not here.slurm.cancelled


def test_an_agent_that_went_silent_tells_nothing(site: Callable[..., Site]) -> None:
    here = site(batch=False).at(3000)
    here.clock.idle_s = 3600
    asyncio.run(here.part.round())
    assert not here.slurm.cancelled


def test_without_measuring_there_is_no_rule() -> None:
    with pytest.raises(ConfigError, match="idle_after_s"):
        parse_config({"idle": {"cancel_after_s": 60}, "agent": {"idle_after_s": 0}}, "test")
    assert Config().idle.cancel_after_s == 0


@pytest.mark.parametrize("told", [False, True])
def test_a_rule_without_words_still_warns(told: bool) -> None:
    rule = IdleRule(tell=False, cancel_after_s=3600)
    assert next_step(rule, 2999, told, None) is Step.WAIT
    assert next_step(rule, 3000, told, None) is Step.WARN
    assert next_step(rule, 3600, told, 599) is Step.WAIT
    assert next_step(rule, 3600, told, 600) is Step.CANCEL
