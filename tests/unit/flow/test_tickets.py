# SPDX-License-Identifier: Apache-2.0
"""Tickets and the estimates that are known: whose, for what, how often, how long, how many."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import EstimateConfig, parse_config
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.decide.prepared import Prepared
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.per_user import PerUser
from slurm_coloc.estimate import api, parsers
from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.flow.submit import tickets
from slurm_coloc.flow.submit.decide import Decider
from slurm_coloc.flow.submit.estimate import Found, Lookup
from slurm_coloc.flow.submit.message import ColocOptions, Submission
from slurm_coloc.flow.submit.tickets import Key, Texts, hash_of
from tests.unit.flow.test_history import SHAPE
from tests.unit.flow.texts import pack, teach

ADA, BEN = 1001, 1002
PACKED = pack(WARM_UP)
TEXT = hash_of(PACKED)
OPTIONS = {"summary": PACKED, "batch_size": 64}
CONFIG = EstimateConfig()


class Desk:
    """A lookup, its texts, and what it wanted to have estimated."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.texts = Texts(lambda: self.now_s)
        self.wanted: list[tuple[int, Key, str | None]] = []
        self.lookup = Lookup(CONFIG, self.texts, lambda *wanted: self.wanted.append(wanted))

    def ticket(self, uid: int = ADA, **more: Any) -> str:
        """A ticket as the front gets one; the text is not known but by it."""
        key = teach(self.texts, CONFIG, uid, OPTIONS | more)
        made = self.texts.known(key)
        assert made is not None
        self.texts.learn(uid, key, Prepared.without(Reason.NO_ESTIMATE), "")
        self.texts._known.drop(key)
        return self.texts.give(uid, key, made)

    def submit(self, uid: int = ADA, **coloc: Any) -> Found:
        options = ColocOptions.model_validate({"text_sha256": TEXT, "batch_size": 64, **coloc})
        return self.lookup.of(Submission(options, JobRequest(uid)))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def refused(found: Found) -> bool:
    return found.by == "none" and found.estimated.no_estimate is Reason.NOT_PREPARED


def test_a_ticket_is_good_once(desk: Desk) -> None:
    ticket = desk.ticket()
    first = desk.submit(ticket=ticket)
    assert first.by == "ticket" and first.estimated.estimate is not None
    second = desk.submit(ticket=ticket)
    assert refused(second) and second.estimated.detail == "its ticket is not good any more"


def test_a_ticket_is_its_user_s(desk: Desk) -> None:
    ticket = desk.ticket()
    assert refused(desk.submit(BEN, ticket=ticket))
    assert desk.submit(ADA, ticket=ticket).by == "ticket", "it was not used up by another user"


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 65},
        {"batch_size": None},
        {"seq_len": 8},
        {"input": "3x224x224"},
        {"optimizer": "sgd"},
        {"precision": "amp"},
        {"alloc_conf": "roundup_power2_divisions:4"},
        {"text_sha256": "0" * 64},
        {"summary": pack(WARM_UP + "\n")},
    ],
)
def test_a_ticket_is_for_one_text_and_its_options(desk: Desk, other: dict[str, Any]) -> None:
    ticket = desk.ticket()
    assert refused(desk.submit(ticket=ticket, **other))


def test_options_that_no_estimate_needs_are_free(desk: Desk) -> None:
    found = desk.submit(ticket=desk.ticket(), max_slowdown=1.5, slot=600, kind="srun")
    assert found.by == "ticket"


def test_what_export_sets_of_the_allocator_costs_no_share(desk: Desk) -> None:
    """`sbatch --export=ALL,PYTORCH_CUDA_ALLOC_CONF=...`: the plugin has not seen it. The other way
    the estimate may be too low."""
    grows = {"alloc_conf": "expandable_segments:True"}
    assert desk.submit(ticket=desk.ticket(), **grows).by == "ticket"
    assert refused(desk.submit(ticket=desk.ticket(**grows)))


def test_a_ticket_grows_old(desk: Desk) -> None:
    ticket, late = desk.ticket(), desk.ticket()
    desk.now_s = tickets.LIVES_S - 0.1
    assert desk.submit(ticket=ticket).by == "ticket"
    desk.now_s = tickets.LIVES_S
    assert refused(desk.submit(ticket=late))


def test_a_restarted_colocd_knows_no_ticket(desk: Desk) -> None:
    ticket = desk.ticket()
    assert refused(Desk().submit(ticket=ticket))
    assert refused(Desk().submit(ticket="0" * 32))


def test_without_a_good_ticket_what_is_known_by_the_hash_counts(desk: Desk) -> None:
    teach(desk.texts, CONFIG, BEN, OPTIONS)
    for one in (
        {},
        {"ticket": "0" * 32},
        {"summary": PACKED},
        {"summary": PACKED, "ticket": "a" * 32},
    ):
        found = desk.submit(**one)
        assert found.by == "known" and found.estimated.estimate is not None, one
    assert desk.wanted == []


def test_what_is_not_known_is_estimated_for_the_next_time(desk: Desk) -> None:
    assert refused(desk.submit(summary=PACKED))
    assert refused(desk.submit())
    key = Key(TEXT, Given(batch_size=64))
    assert desk.wanted == [(ADA, key, PACKED), (ADA, key, None)]


def test_no_text_at_all(desk: Desk) -> None:
    found = desk.submit(text_sha256=None)
    assert found.estimated.no_estimate is Reason.NO_SUMMARY
    assert "older coloc.lua" in found.estimated.detail
    assert desk.submit(text_sha256=None, policy="exclusive").estimated.detail == ""


def test_the_submission_reads_no_text(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No parser, no estimator, no inflating: whatever the message holds."""

    def never(*args: object, **more: object) -> None:
        raise AssertionError("a text is read while slurmctld waits")

    store = Store.open(tmp_path)
    config = parse_config({"version": 1, "mode": {"default": "on"}}, "test")
    decider = Decider(config, store, texts=desk.texts)
    teach(desk.texts, CONFIG, ADA, OPTIONS)
    for module, name in (
        (api, "estimate"),
        (parsers, "parse_summary"),
        (tickets.hashlib, "blake2b"),
    ):
        monkeypatch.setattr(module, name, never)
    monkeypatch.setattr("zlib.decompressobj", never)
    reasons = []
    for coloc in (OPTIONS, OPTIONS | {"summary": pack("new")}, OPTIONS | {"summary": "eJw="}):
        message = {"uid": ADA, "tres_per_node": "gres/gpu:1", "coloc": coloc}
        reasons.append(asyncio.run(decider.submit(message, SHAPE))["reason"])
    store.close()
    assert reasons == ["fits", "not-prepared", "not-prepared"]


def test_another_configuration_forgets_all(desk: Desk) -> None:
    ticket = desk.ticket()
    teach(desk.texts, CONFIG, ADA, OPTIONS)
    Lookup(CONFIG, desk.texts, lambda *wanted: None)  # the same again
    assert desk.submit(ticket=ticket).by == "ticket"
    desk.lookup = Lookup(
        CONFIG.model_copy(update={"context_mib": 800}), desk.texts, lambda *w: None
    )
    assert refused(desk.submit())
    key, made = Key(TEXT, Given(batch_size=64)), Prepared.without(Reason.NO_ESTIMATE)
    assert not desk.texts.learn(ADA, key, made, "of the old configuration")


def test_what_comes_of_a_busy_machine_is_not_kept(desk: Desk) -> None:
    key = teach(desk.texts, CONFIG, ADA, OPTIONS | {"batch_size": 1})
    busy = Prepared.without(Reason.USER_BUSY, lasting=False)
    other = replace(key, given=Given(batch_size=64))
    assert desk.texts.learn(ADA, other, busy, desk.texts._basis)
    assert desk.texts.known(other) is None
    ticket = desk.texts.give(ADA, other, busy)
    assert desk.submit(ticket=ticket).estimated.no_estimate is Reason.USER_BUSY


def test_a_flood_of_tickets_costs_its_own_user() -> None:
    texts, made = Texts(), Prepared.without(Reason.NO_ESTIMATE)
    key = Key(TEXT, Given())
    mine = texts.give(ADA, key, made)
    last = [texts.give(BEN, key, made) for _ in range(tickets.TICKETS_A_USER + 1)]
    assert texts.take(last[0], BEN, key) is None and texts.take(last[1], BEN, key) is made
    for uid in range(2000, 2000 + tickets.TICKETS // tickets.TICKETS_A_USER + 2):
        for _ in range(tickets.TICKETS_A_USER):
            texts.give(uid, key, made)
    assert texts.take(mine, ADA, key) is made, "who holds most loses"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 4))))
def test_the_bounds_hold(puts: list[tuple[int, int, int]]) -> None:
    held: PerUser[int, int] = PerUser(12, 6, lambda weight: weight)
    last: dict[int, tuple[int, int]] = {}
    for uid, key, weight in puts:
        held.put(uid, key, weight)
        last[key] = uid, weight
        assert held.get(key) == weight
        here = {name: one for name, one in last.items() if held.get(name) is not None}
        assert len(here) == len(held)
        assert sum(weight for _, weight in here.values()) <= 12
        for user in range(4):
            assert sum(weight for uid, weight in here.values() if uid == user) <= 6
