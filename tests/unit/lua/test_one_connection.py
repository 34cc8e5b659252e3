# SPDX-License-Identifier: Apache-2.0
"""The hook keeps its connection to colocd: what ends one costs no job its share, and no job ever
reads another one's answer."""

import socket

from tests.unit.lua.conftest import Hook, Result, spank, submit
from tests.unit.lua.peer import GOOD, answering, closing

DEADLINE_MS = 400
JOB = submit(**spank(SUMMARY="x"))


def good(number: int) -> dict[str, str]:
    return {**GOOD, "action": "asis", "decision": f"{number:012x}"}


def decisions(results: list[Result]) -> list[str]:
    """What each job was told, by the hook's line in the log."""
    return [r.info[0].split("decision=")[1].split()[0].lstrip("0") for r in results]


def test_jobs_share_one_connection(hook: Hook) -> None:
    peer = hook.serve(*[answering(good(n)) for n in (1, 2, 3)], keeps=True)
    assert decisions(hook.run(JOB, JOB, JOB)) == ["1", "2", "3"]
    assert (len(peer.lines), peer.connections) == (3, 1)


def test_colocd_closes_an_idle_one(hook: Hook) -> None:
    peer = hook.serve(*[answering(good(n)) for n in (1, 2, 3)])
    pause = {"op": "sleep", "s": 0.05}
    assert decisions(hook.run(JOB, pause, JOB, pause, JOB)) == ["1", "2", "3"]
    assert peer.connections == 3


def test_a_kept_one_that_ends_with_the_request_is_made_anew(hook: Hook) -> None:
    """colocd ended between two jobs and serves again: no job is told that it is down."""
    peer = hook.serve(answering(good(1)), closing, answering(good(2)), keeps=True)

    def hang_up(conn: socket.socket, _line: bytes) -> None:
        conn.shutdown(socket.SHUT_RDWR)

    peer._behaviours[1] = hang_up
    first, second = hook.run(JOB, JOB)
    assert decisions([first, second]) == ["1", "2"] and not second.user
    assert (len(peer.lines), peer.connections) == (3, 2)


def test_a_late_answer_is_nobodys(hook: Hook) -> None:
    hook.setup.update(breaker_s=0.01, deadline_ms=DEADLINE_MS)
    peer = hook.serve(*[answering(good(n)) for n in (1, 2, 3)], keeps=True)
    right = peer._behaviours[1]

    def late(conn: socket.socket, line: bytes) -> None:
        peer.stop.wait(1.5 * DEADLINE_MS / 1000)
        right(conn, line)

    peer._behaviours[1] = late
    results = hook.run(JOB, JOB, {"op": "sleep", "s": DEADLINE_MS / 1000}, JOB)
    assert decisions(results) == ["1", "", "3"] and peer.connections == 2
    assert "colocd_slow" in results[1].info[0]


def test_what_comes_unasked_is_nobodys(hook: Hook) -> None:
    more = answering(good(7))
    one = answering(good(1))

    def twice(conn: socket.socket, line: bytes) -> None:
        one(conn, line)
        peer.stop.wait(0.05)
        more(conn, line)

    peer = hook.serve(twice, answering(good(2)), keeps=True)
    results = hook.run(JOB, {"op": "sleep", "s": 0.3}, JOB)
    assert decisions(results) == ["1", "2"] and peer.connections == 2
