# SPDX-License-Identifier: Apache-2.0
"""Rates, places and turns of colocd's port, and what the kernel drops for it."""

import asyncio
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slurm_coloc.adapters.link import flood, source_port
from slurm_coloc.adapters.link.admission import (
    FLOOD,
    KNOWN,
    KNOWN_S,
    STRANGER,
    STRANGERS,
    Admission,
    Origin,
    Places,
    origin,
)
from slurm_coloc.adapters.link.fair_threads import FairThreads

A, B = Origin("192.0.2.1", False), Origin("192.0.2.2", False)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("192.0.2.1", 40000), ("192.0.2.1", 50000), True),
        (("192.0.2.1", 40000), ("192.0.2.1", 900), False),
        (("192.0.2.1", 40000), ("192.0.2.2", 40000), False),
        (("::ffff:192.0.2.1", 40000), ("192.0.2.1", 40000), True),
        (("2001:db8::1", 40000), ("2001:db8::ffff:2", 40000), True),
        (("2001:db8::1", 40000), ("2001:db8:0:1::1", 40000), False),
        (("fe80::1%eth0", 40000), ("fe80::2%eth1", 40000), True),
    ],
)
def test_whose_rate_it_is(one: tuple[str, int], other: tuple[str, int], same: bool) -> None:
    assert (origin(*one) == origin(*other)) is same


def admitted(gate: Admission, one: Origin, count: int, now_s: float) -> int:
    return sum(gate.admit(one, now_s) for _ in range(count))


def test_a_rate_for_each_address() -> None:
    gate = Admission(0.0)
    assert admitted(gate, A, 5000, 0.0) == STRANGER.burst
    assert admitted(gate, A, 5000, 1.0) == STRANGER.a_second
    assert admitted(gate, B, 10, 1.0) == 10
    assert admitted(gate, A, 5000, 3600.0) == STRANGER.burst


def test_who_authenticated_before_has_a_rate_of_its_own() -> None:
    """Also while more addresses than are remembered use up what strangers have together."""
    gate = Admission(0.0, most=100)
    gate.accepted(A, 0.0)
    crowd = [Origin(f"10.0.{n // 250}.{n % 250}", False) for n in range(1000)]
    assert sum(admitted(gate, one, 20, 0.0) for one in crowd) == STRANGERS.burst
    assert not gate.admit(B, 0.0)
    assert admitted(gate, A, 5000, 0.0) == KNOWN.burst
    assert gate.knows(A, KNOWN_S - 1) and not gate.knows(A, KNOWN_S + 1)


def test_so_many_are_known_and_no_more() -> None:
    gate = Admission(0.0, most=10)
    crowd = [Origin(f"10.0.0.{n}", False) for n in range(20)]
    for number, one in enumerate(crowd):
        gate.accepted(one, float(number))
    assert [gate.knows(one, 20.0) for one in crowd] == [False] * 10 + [True] * 10


def test_what_a_flood_is() -> None:
    gate = Admission(0.0)
    admitted(gate, A, 1000, 0.0)
    assert not any(gate.floods(A, 0.5) for _ in range(FLOOD))
    assert gate.floods(A, 0.5)
    assert not any(gate.floods(A, 2.0) for _ in range(FLOOD))


def test_the_oldest_of_the_same_address_makes_room_first() -> None:
    places: Places[int] = Places(4, 2)
    assert [places.enter(number, A) for number in (1, 2)] == [None, None]
    assert places.enter(3, A) == 1
    assert places.enter(4, B) is None
    places.leave(4, B)
    places.leave(4, B)  # nothing
    others = [Origin(f"10.0.0.{n}", False) for n in range(3)]
    assert [places.enter(10 + n, one) for n, one in enumerate(others)] == [None, None, 2]


def test_an_origin_with_many_calls_waits_behind_its_own() -> None:
    async def run() -> list[str]:
        turns, order = FairThreads(1, "test"), []
        gate = threading.Event()

        def work(whose: str) -> None:
            gate.wait(10)
            order.append(whose)

        calls = [asyncio.create_task(turns.run("a", work, "a")) for _ in range(20)]
        await asyncio.sleep(0)
        calls += [asyncio.create_task(turns.run("b", work, "b"))]
        await asyncio.sleep(0)
        calls[5].cancel()  # who stops waiting holds nobody up
        gate.set()
        await asyncio.gather(*calls, return_exceptions=True)
        turns.close()
        return order

    order = asyncio.run(run())
    assert Counter(order) == {"a": 19, "b": 1}
    assert order.index("b") <= 2


def test_a_thread_of_a_caller_that_left_is_given_on() -> None:
    async def run() -> str:
        turns = FairThreads(1, "test")
        gate = threading.Event()
        first = asyncio.create_task(turns.run("a", gate.wait, 10))
        await asyncio.sleep(0.01)
        first.cancel()
        second = asyncio.create_task(turns.run("b", lambda: "done"))
        third = asyncio.create_task(turns.run("c", lambda: "lost"))
        await asyncio.sleep(0.01)
        third.cancel()
        gate.set()
        found = await asyncio.wait_for(second, 10)
        assert await asyncio.wait_for(turns.run("d", lambda: "again"), 10) == "again"
        turns.close()
        return found

    assert asyncio.run(run()) == "done"


@contextmanager
def listening(family: int, host: str) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip(f"no {host} here")
        listener.listen(16)
        try:
            flood.attach(listener, flood.program([]))
        except PermissionError as err:
            pytest.skip(f"the kernel takes no filter here: {err.strerror}")
        listener.settimeout(10)
        yield listener


def reaches(listener: socket.socket, source: str, *, reserved: bool = False) -> bool:
    """Whether a connection from ``source`` is made at once: a dropped one is tried again after a
    second."""
    with socket.socket(listener.family, socket.SOCK_STREAM) as sock:
        if not reserved:
            sock.bind((source, 0))
        elif not source_port.bind(sock):
            pytest.skip("root alone has such ports")
        sock.settimeout(0.5)
        try:
            sock.connect(listener.getsockname())
        except TimeoutError:
            return False
        peer = listener.accept()[0]
        flood.detach(peer)
        with peer:  # an accepted socket works although the listener has a filter
            sock.sendall(b"x")
            return peer.recv(1) == b"x"


def test_the_kernel_drops_one_address_and_no_other() -> None:
    with listening(socket.AF_INET, "127.0.0.1") as listener:
        dropped = flood.Dropped()
        assert dropped.add(origin("127.0.0.2", 40000), 0.0)
        assert not dropped.add(origin("127.0.0.2", 40000), 0.0)
        dropped.apply([listener])
        assert not reaches(listener, "127.0.0.2")
        assert reaches(listener, "127.0.0.3")
        assert dropped.expire(flood.DROP_S + 1)
        dropped.apply([listener])
        assert reaches(listener, "127.0.0.2")


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has such ports")
def test_the_kernel_drops_users_and_lets_root_of_the_same_address_in() -> None:
    with listening(socket.AF_INET, "127.0.0.1") as listener:
        flood.attach(listener, flood.program([Origin("127.0.0.1", False)]))
        assert not reaches(listener, "127.0.0.1")
        assert reaches(listener, "127.0.0.1", reserved=True)
        flood.attach(listener, flood.program([Origin("127.0.0.1", True)]))
        assert reaches(listener, "127.0.0.1")
        assert not reaches(listener, "127.0.0.1", reserved=True)


def test_the_kernel_drops_a_network_of_ipv6() -> None:
    with listening(socket.AF_INET6, "::1") as listener:
        other = Origin(socket.inet_pton(socket.AF_INET6, "2001:db8::")[:8], False)
        flood.attach(listener, flood.program([other]))
        assert reaches(listener, "::1")
        flood.attach(listener, flood.program([other, origin("::1", 40000)]))
        assert not reaches(listener, "::1")


def test_the_kernel_takes_the_longest_filter() -> None:
    dropped = flood.Dropped()
    for number in range(2 * flood.MOST):
        dropped.add(Origin(number.to_bytes(8, "big"), number % 2 == 0), 0.0)
    with listening(socket.AF_INET, "127.0.0.1") as listener:
        dropped.apply([listener])
        assert reaches(listener, "127.0.0.1")


def test_ports_of_roots_that_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then any other port does."""
    monkeypatch.setattr(source_port, "COUNT", 1)
    with listening(socket.AF_INET, "127.0.0.1") as listener, socket.socket() as holder:
        if source_port.bind(holder):
            holder.connect(listener.getsockname())
        sock = source_port.connected(socket.AF_INET, listener.getsockname(), 10)
        with sock:
            assert sock.getsockname()[1] >= 1024
