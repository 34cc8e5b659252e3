# SPDX-License-Identifier: Apache-2.0
"""A ticket's way through colocd's two processes: from the public socket to the hook's.

No Slurm is here, so no decision follows from the estimate; colocd's log says where it came from.
"""

import os
import re
import signal
from dataclasses import fields
from typing import Any

import pytest

from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.flow.prepare.estimates import GIVEN
from slurm_coloc.flow.submit.tickets import hash_of
from slurm_coloc.front.tickets import Options
from tests.harness.other_user import as_user
from tests.unit.flow.texts import pack
from tests.unit.front.conftest import ADA, BEN, Colocd, talk, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
LOGGED = re.compile(r"decision .*?estimate=(\w+)")


def text(number: int) -> str:
    """A packed text that no other test sends."""
    return pack(WARM_UP + " " * number)


def ask(colocd: Colocd, packed: str, uid: int = ADA, **more: Any) -> dict[str, Any]:
    """The answer to a request for a ticket, as sbatch's plugin sends it."""
    coloc = {"summary": packed, "batch_size": "64", **more}
    told = as_user(uid, lambda: talk(colocd.socket, {"op": "ticket", "coloc": coloc}))
    assert isinstance(told, list), told
    (answer,) = told
    assert isinstance(answer, dict)
    return answer


def submit(colocd: Colocd, uid: int = ADA, **coloc: Any) -> str:
    """By what the submission's estimate was found, by colocd's log."""
    before = colocd.log.stat().st_size
    coloc = {"batch_size": "64", **coloc}
    message = {"op": "submit", "uid": uid, "tres_per_node": "gres/gpu:1", "coloc": coloc}
    (answer,) = talk(colocd.hook, message)
    assert answer["ok"], answer
    found: list[str] = []

    def logged() -> bool:
        found[:] = LOGGED.findall(colocd.log.read_bytes()[before:].decode())
        return bool(found)

    until(logged, "the decision is in the log")
    return found[0]


def test_a_ticket_leads_to_its_estimate_once(shared: Colocd) -> None:
    packed = text(1)
    answer = ask(shared, packed)
    assert re.fullmatch("[0-9a-f]{32}", answer["ticket"]), answer
    named = {"ticket": answer["ticket"], "text_sha256": hash_of(packed)}
    assert submit(shared, **named) == "ticket"
    assert submit(shared, **named) == "known", "used, but the text is known by now"
    assert ask(shared, packed)["ticket"] != answer["ticket"]


def test_what_else_the_training_does_is_part_of_its_ticket(shared: Colocd) -> None:
    packed = text(11)
    answer = ask(shared, packed, training="accumulate,zero2")
    named = {"ticket": answer["ticket"], "text_sha256": hash_of(packed)}
    assert submit(shared, **named, training="accumulate,zero2") == "ticket"


def test_a_ticket_is_asked_for_with_all_options_of_an_estimate() -> None:
    """One that is left out would be looked for at the submission, and not found."""
    assert set(Options.model_fields) - {"summary"} == {one.name for one in fields(Given)}
    assert set(GIVEN) == {one.name for one in fields(Given)}


def test_another_user_has_no_use_for_it(shared: Colocd) -> None:
    packed = text(2)
    named = {"ticket": ask(shared, packed)["ticket"], "text_sha256": hash_of(packed)}
    assert submit(shared, BEN, **named) == "known", "the same text has the same estimate"
    assert submit(shared, ADA, **named) == "ticket"


def test_a_text_without_a_ticket_is_known_the_next_time(shared: Colocd) -> None:
    packed = text(3)
    assert submit(shared, summary=packed) == "none"
    until(lambda: submit(shared, summary=packed) == "known", "it is estimated in the background")


def test_other_options_than_the_ticket_s_are_known_the_next_time(shared: Colocd) -> None:
    """The submission has no text: the front still has it."""
    packed = text(4)
    named = {"ticket": ask(shared, packed)["ticket"], "text_sha256": hash_of(packed)}
    assert submit(shared, **named, batch_size="65") == "none"
    until(lambda: submit(shared, **named, batch_size="65") == "known", "it is estimated")


def test_a_text_that_nobody_has_seen(shared: Colocd) -> None:
    assert submit(shared, ticket="0" * 32, text_sha256="0" * 64) == "none"


@pytest.mark.parametrize(
    "coloc",
    [
        None,
        [],
        {},
        {"summary": ""},
        {"summary": 1},
        {"summary": "x" * 65537},
        {"summary": "eJw=\n"},
        {"summary": "eJw=", "batch_size": 2**31},
        {"summary": "eJw=", "optimizer": "x"},
        {"summary": "eJw=", "alloc_conf": "x" * 513},
    ],
)
def test_what_is_no_request_for_a_ticket(shared: Colocd, coloc: object) -> None:
    (answer,) = as_user(ADA, lambda: talk(shared.socket, {"op": "ticket", "coloc": coloc}))
    assert answer["error"]["code"] == "bad-request", answer
    assert "Traceback" not in shared.log.read_text()


def test_a_text_that_cannot_be_read_has_a_ticket_too(shared: Colocd) -> None:
    """The hook then tells its user why."""
    answer = ask(shared, "eJw=")
    assert submit(shared, ticket=answer["ticket"], text_sha256=hash_of("eJw=")) == "ticket"


def test_tickets_outlive_the_front(colocd: Colocd) -> None:
    packed = text(5)
    named = {"ticket": ask(colocd, packed)["ticket"], "text_sha256": hash_of(packed)}
    front = colocd.front()
    os.kill(front, signal.SIGKILL)
    until(lambda: colocd.serves() and colocd.front() != front, "another front serves")
    assert submit(colocd, **named) == "ticket"


def test_no_ticket_outlives_a_restart(colocd: Colocd) -> None:
    packed = text(6)
    named = {"ticket": ask(colocd, packed)["ticket"], "text_sha256": hash_of(packed)}
    colocd.process.terminate()
    colocd.process.wait(30)
    colocd.start()
    assert submit(colocd, **named) == "none"
    assert "ticket" in ask(colocd, packed)


def test_another_configuration_makes_other_estimates(colocd: Colocd) -> None:
    packed = text(7)
    named = {"ticket": ask(colocd, packed)["ticket"], "text_sha256": hash_of(packed)}
    with colocd.config.open("a") as file:
        file.write("[estimate]\ncontext_mib = 800\n")
    assert talk(colocd.socket, {"op": "reload"})[0]["ok"]
    assert submit(colocd, **named) == "none"

    def again() -> bool:
        answer = ask(colocd, packed)
        named = {"ticket": answer.get("ticket"), "text_sha256": hash_of(packed)}
        return "ticket" in answer and submit(colocd, **named) == "ticket"

    until(again, "the front has the new configuration")
