# SPDX-License-Identifier: Apache-2.0
"""The lines of coloc/1 and the names of hosts: nothing that comes from outside does harm."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_coloc.adapters.link import frames
from slurm_coloc.adapters.link.address import is_own, plain
from slurm_coloc.core.slurm.hosts import address, count_nodes, in_nodes

# A busy machine is no fault of the code.
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
KEY, NONCE = b"k" * 32, "0" * 32
LINE = st.binary(max_size=300).filter(lambda text: text and b"\n" not in text)


def pair() -> tuple[frames.Session, frames.Session]:
    return (
        frames.Session(KEY, NONCE, server=False),
        frames.Session(KEY, NONCE, server=True),
    )


@CALM
@given(st.lists(LINE, max_size=5))
def test_what_is_sealed_is_opened(texts: list[bytes]) -> None:
    client, server = pair()
    for text in texts:
        assert server.open(client.seal(text)) == text
        assert client.open(server.seal(text)) == text


@CALM
@given(LINE, st.integers(0, 400), st.integers(1, 255))
def test_a_changed_byte_is_found(text: bytes, place: int, flip: int) -> None:
    client, server = pair()
    line = bytearray(client.seal(text))
    line[place % len(line)] ^= flip
    with pytest.raises((frames.ProtocolError, frames.Refused)):
        server.open(bytes(line))


def test_a_line_is_good_once_and_in_order_and_one_way() -> None:
    client, server = pair()
    first, second = client.seal(b"1"), client.seal(b"2")
    for wrong in (second, server.seal(b"1")):
        with pytest.raises(frames.ProtocolError):
            server.open(wrong)
    assert server.open(first) == b"1"
    with pytest.raises(frames.ProtocolError):
        server.open(first)
    assert server.open(second) == b"2"


def test_another_nonce_or_key_is_another_session() -> None:
    line = frames.Session(KEY, NONCE, server=False).seal(b"x")
    for key, nonce in ((b"j" * 32, NONCE), (KEY, "1" * 32)):
        with pytest.raises(frames.ProtocolError):
            frames.Session(key, nonce, server=True).open(line)


@CALM
@given(st.binary(max_size=200))
def test_garbage_is_told_apart(line: bytes) -> None:
    for read in (frames.read_greeting, frames.credential_in, frames.read_hello):
        with pytest.raises(frames.ProtocolError):
            read(line)
    with pytest.raises((frames.ProtocolError, frames.Refused)):
        frames.Session(KEY, NONCE, server=True).open(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@CALM
@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("v", "nonce", "key", "cluster", "node"), JSON)
    )
)
def test_a_hello_of_wrong_types_is_refused(body: dict[str, object]) -> None:
    good = {"v": 1, "nonce": NONCE, "key": KEY.hex(), "cluster": "c", "node": "n1"}
    try:
        hello = frames.read_hello(json.dumps(good | body).encode())
    except frames.ProtocolError:
        return
    assert len(hello.key) == 32
    assert isinstance(hello.nonce, str) and isinstance(hello.cluster, str)
    assert hello.node is None or hello.node.isascii()


def test_hello_and_greeting_come_back() -> None:
    hello = frames.Hello(NONCE, KEY, "c", "gpu-01.site")
    assert frames.read_hello(frames.hello_payload(hello)) == hello
    assert frames.read_greeting(frames.greeting(NONCE, standby=True)).standby is True
    told = frames.refused("busy", "line\nbreak \u2603")
    with pytest.raises(frames.Refused, match=r"line\?break \?") as caught:
        frames.Session(KEY, NONCE, server=False).open(told)
    assert caught.value.code == "busy"


@pytest.mark.parametrize(
    ("nodes", "name", "there"),
    [
        ("n1", "n1", True),
        ("n1", "n11", False),
        ("n1,n2", "n2", True),
        ("gpu[01-08,12]", "gpu07", True),
        ("gpu[01-08,12]", "gpu7", False),
        ("gpu[01-08,12]", "gpu007", False),
        ("gpu[01-08,12]", "gpu12", True),
        ("gpu[01-08,12]", "gpu11", False),
        ("n[8-11]", "n10", True),
        ("n[8-11]", "n010", False),
        ("a[1-2]x[3-4],b", "a2x3", True),
        ("a[1-2]x[3-4],b", "a2x5", False),
        ("a[1-2]x[3-4],b", "b", True),
        ("n[1-999999999]", "n5", True),
        ("n.1", "nx1", False),
        ("", "", False),
    ],
)
def test_node_lists(nodes: str, name: str, there: bool) -> None:
    assert in_nodes(nodes, name) is there


@CALM
@given(st.text(max_size=40), st.text(max_size=20))
def test_node_lists_never_fail(nodes: str, name: str) -> None:
    assert in_nodes(nodes, name) in (True, False)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":6824", "", 6824),
        ("c1", "c1", 6824),
        ("c1:7", "c1", 7),
        ("[::1]:9", "::1", 9),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "a:b", "a:0", "a:65536", "::1", "a b", "[x]:1", "a:1:2"])
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|no such port"):
        address(text)


def test_ip_addresses_in_one_spelling() -> None:
    assert plain("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain("fe80::1%eth0") == "fe80::1"
    assert plain("n1") == ""
    assert is_own("127.0.0.1") and not is_own("192.0.2.1")


@pytest.mark.parametrize(
    ("nodes", "count"),
    [("", 0), ("n1", 1), ("n1,n2", 2), ("gpu[01-08,12]", 9), ("n1,gpu[1-2]x[1-3]", 7)],
)
def test_how_many_nodes_a_list_has(nodes: str, count: int) -> None:
    assert count_nodes(nodes) == count
