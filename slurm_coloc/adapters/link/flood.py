# SPDX-License-Identifier: Apache-2.0
"""Origins whose connections the kernel drops before they are made: a flood costs colocd nothing.

Without this a flood fills the listening socket's queue faster than any program empties it, and the
kernel then drops the first packets of everybody. A classic BPF filter on a listening TCP socket
sees each packet that opens a connection (net/ipv4/tcp_ipv4.c, tcp_filter), needs no privilege
(socket(7), SO_ATTACH_FILTER), and is inherited by the sockets that are accepted from it.
"""

import ctypes
import socket
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress

from slurm_coloc.adapters.link.admission import RESERVED_PORTS, Origin

MOST = 64  # origins at once; the kernel takes 4096 instructions
DROP_S = 10.0  # then the origin has its rate again

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
# linux/filter.h, linux/bpf_common.h: what an instruction does
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE = 0x20, 0x28, 0x30
_EQUAL, _AT_LEAST, _JUMP, _AND, _RETURN = 0x15, 0x35, 0x05, 0x54, 0x06
_IP = 0xFFF00000  # SKF_NET_OFF: offsets into the IP header; others are into the TCP header
_DROP, _PASS = (_RETURN, 0, 0, 0), (_RETURN, 0, 0, 0xFFFFFFFF)

Instruction = tuple[int, int, int, int]


def program(origins: Iterable[Origin]) -> list[Instruction]:
    """The filter that drops these origins, as (code, jump if true, jump if false, operand)."""
    wanted = list(origins)
    reserved = _section([one.network for one in wanted if one.reserved])
    others = _section([one.network for one in wanted if not one.reserved])
    return [
        (_LOAD_HALF, 0, 0, 0),  # the source port
        (_AT_LEAST, 0, 1, RESERVED_PORTS),
        (_JUMP, 0, 0, len(reserved)),
        *reserved,
        *others,
    ]


def _section(networks: list[str | bytes]) -> list[Instruction]:
    four = [(_LOAD_WORD, 0, 0, _IP + 12)]  # the source address
    six: list[Instruction] = []
    for network in networks:
        if isinstance(network, bytes):
            high, low = struct.unpack("!II", network)
            six += [(_LOAD_WORD, 0, 0, _IP + 8), (_EQUAL, 0, 3, high)]
            six += [(_LOAD_WORD, 0, 0, _IP + 12), (_EQUAL, 0, 1, low), _DROP]
        else:
            with suppress(OSError):
                (number,) = struct.unpack("!I", socket.inet_aton(network))
                four += [(_EQUAL, 0, 1, number), _DROP]
    four.append(_PASS)
    six.append(_PASS)
    version = [(_LOAD_BYTE, 0, 0, _IP), (_AND, 0, 0, 0xF0), (_EQUAL, 0, 1, 0x60)]
    return [*version, (_JUMP, 0, 0, len(four)), *four, *six]


def attach(sock: socket.socket, code: Collection[Instruction]) -> None:
    """Put the filter in the place of the one before; raises OSError."""
    text = b"".join(struct.pack("HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(text, len(text))
    fprog = struct.pack("HP", len(code), ctypes.addressof(buffer))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)


def detach(sock: socket.socket) -> None:
    """Take a filter off, also one that an accepted socket inherited."""
    with suppress(OSError):  # there is none
        sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


class Dropped:
    """The origins that are dropped now. The caller brings the time."""

    def __init__(self) -> None:
        """None."""
        self._until: dict[Origin, float] = {}

    def add(self, one: Origin, now_s: float) -> bool:
        """Drop an origin for DROP_S; False where that is no news, or MOST are dropped already."""
        if one in self._until or len(self._until) >= MOST:
            return False
        self._until[one] = now_s + DROP_S
        return True

    def expire(self, now_s: float) -> bool:
        """Forget those whose time is over; whether there were any."""
        before = len(self._until)
        self._until = {one: end for one, end in self._until.items() if end > now_s}
        return len(self._until) < before

    def apply(self, listeners: Iterable[socket.socket]) -> None:
        """Set the filter of each listening socket; raises OSError."""
        code = program(self._until)
        for one in listeners:
            if self._until:
                attach(one, code)
            else:
                detach(one)
