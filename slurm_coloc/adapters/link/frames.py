# SPDX-License-Identifier: Apache-2.0
"""The lines of ``coloc/1``: greeting, hello, session. Pure: bytes in, bytes out.

Everything that comes from the other side is checked here; what does not fit raises ProtocolError,
after which the connection is of no use.
"""

import json
import re
from typing import Any, NamedTuple

from slurm_coloc.errors import ColocError

VERSION = "coloc/1"

MAX_TEXT = 69632  # bytes of a request; the longest is a ticket's, with a summary of 64 KiB
MAX_LINE = MAX_TEXT + 128
MAX_ANSWER = 64 * 2**20  # bytes; 1000 runs with their evidence are about 2 MiB
MAX_HELLO = 4096  # bytes of the client's first line; a credential is about 500

_GREETING = rb"coloc/1 ([0-9a-f]{32}) (active|standby)\n"
_HELLO = rb"auth (MUNGE:[A-Za-z0-9+/=]{1,4000}:)\n"
_REFUSED = rb"refused ([a-z][a-z0-9-]{0,31}) ([^\n]{0,400})\n"
_SEALED = rb"([0-9a-f]{64}) ([^\n]+)\n"
_NODE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}"


class ProtocolError(ColocError):
    """The other side does not speak this protocol, or somebody changed what it said."""

    default_code = "protocol"


class Refused(ColocError):
    """The server said no before there was a session. Not authenticated: a hint, no more."""

    default_code = "refused"


class Greeting(NamedTuple):
    """The server's first line. ``standby``: it says that another colocd is the active one."""

    nonce: str
    standby: bool


class Hello(NamedTuple):
    """What the client's credential carries. ``node``: the node it says it is, or None."""

    nonce: str
    key: bytes
    cluster: str
    node: str | None


def greeting(nonce: str, *, standby: bool) -> bytes:
    """The server's first line; ``nonce`` is 32 hexadecimal digits."""
    return f"{VERSION} {nonce} {'standby' if standby else 'active'}\n".encode()


def read_greeting(line: bytes) -> Greeting:
    """The server's first line, checked."""
    found = re.fullmatch(_GREETING, line)
    if found is None:
        raise ProtocolError("it does not greet as coloc/1 does")
    return Greeting(found[1].decode(), found[2] == b"standby")


def hello_payload(hello: Hello) -> bytes:
    """What goes into the credential."""
    body = {"v": 1, **hello._asdict(), "key": hello.key.hex()}
    return json.dumps(body, separators=(",", ":")).encode()


def hello_line(credential: str) -> bytes:
    """The client's first line."""
    return f"auth {credential}\n".encode("ascii")


def credential_in(line: bytes) -> str:
    """The credential in the client's first line."""
    found = re.fullmatch(_HELLO, line)
    if found is None:
        raise ProtocolError("the first line is no credential")
    return found[1].decode("ascii")


def read_hello(payload: bytes) -> Hello:
    """What the credential carried, checked."""
    try:
        body = json.loads(payload)
        key = bytes.fromhex(body["key"])
        hello = Hello(body["nonce"], key, body["cluster"], body["node"])
        version = body["v"]
    except (ValueError, RecursionError, TypeError, KeyError) as err:
        raise ProtocolError("the credential carries no hello of ours") from err
    strings = isinstance(hello.nonce, str) and isinstance(hello.cluster, str)
    if type(version) is not int or version != 1 or not strings or len(key) != 32:
        raise ProtocolError("the credential carries no hello of version 1")
    if len(hello.cluster) > 64 or not _plain_node(hello.node):
        raise ProtocolError("the credential names no plain cluster and node")
    return hello


def _plain_node(node: object) -> bool:
    return node is None or (isinstance(node, str) and re.fullmatch(_NODE, node) is not None)


def refused(code: str, text: str) -> bytes:
    """The server's no."""
    plain = re.sub(r"[^\x20-\x7e]", "?", text)[:400]
    return f"refused {code} {plain}\n".encode("ascii")


class Session:
    """One authenticated connection, seen from one side: seals what goes out, opens what comes."""

    def __init__(self, key: bytes, nonce: str, *, server: bool) -> None:
        """``key``: 32 bytes of this connection; ``nonce``: the server's."""

        def derived(direction: str) -> bytes:
            return _digest(key, f"{VERSION} {direction} {nonce}".encode())

        keys = derived("to-server"), derived("to-client")
        self._opening, self._sealing = keys if server else (keys[1], keys[0])
        self._opened = self._sealed = 0

    def seal(self, text: bytes) -> bytes:
        """``text`` (one line, without its newline) as it is sent."""
        line = _mac(self._sealing, self._sealed, text) + b" " + text + b"\n"
        self._sealed += 1
        return line

    def open(self, line: bytes) -> bytes:
        """The text of a line that came; raises ProtocolError, or Refused where it says so."""
        found = re.fullmatch(_SEALED, line)
        if found is None:
            said = re.fullmatch(_REFUSED, line)
            if said:
                raise Refused(said[2].decode("ascii", "replace"), said[1].decode())
            raise ProtocolError("a line that is none of this protocol")
        if not _same(_mac(self._opening, self._opened, found[2]), found[1]):
            raise ProtocolError("a line that somebody else wrote, changed or repeated")
        self._opened += 1
        return found[2]


def _digest(key: bytes, text: bytes) -> bytes:
    import hmac  # OpenSSL: 3 ms that a hook does without which its agent answers

    return hmac.digest(key, text, "sha256")


def _same(one: bytes, other: bytes) -> bool:
    import hmac

    return hmac.compare_digest(one, other)


def _mac(key: bytes, number: int, text: bytes) -> bytes:
    return _digest(key, number.to_bytes(8, "big") + text).hex().encode()


def read_answer(text: bytes) -> dict[str, Any]:
    """An answer as an object; raises ProtocolError."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise ProtocolError(f"the answer is not JSON: {err}") from err
    if not isinstance(answer, dict):
        raise ProtocolError("the answer is not an object")
    return answer
