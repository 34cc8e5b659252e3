# SPDX-License-Identifier: Apache-2.0
"""MUNGE credentials through libmunge.so.2: who encoded a message, checked by the site's own munged.

A call goes to munged over its Unix socket and may block where that is stopped or overloaded
(libmunge itself waits 2 s and tries again), so it runs in a thread of its own with a time limit.
Sources: munge.h and munge_ctx(3) of 0.5.13 to 0.5.16; tried with 0.5.15 and 0.5.16.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from slurm_coloc.adapters.link.limited import limited
from slurm_coloc.errors import ColocError

LIBRARY = "libmunge.so.2"

# munge_opt_t and munge_cipher_t
_CIPHER_TYPE, _ADDR4, _SOCKET, _UID_RESTRICTION = 0, 5, 8, 9
_AES128 = 4

# munge_err_t, with what an operator does about it
_SOCKET_ERROR, _TIMEOUT = 6, 7
_HINTS = {
    6: "munged does not answer: is munge.service running, is network.munge_socket right?",
    7: "munged took too long",
    13: "another realm",
    14: "another munge key, or a damaged credential",
    15: "it has expired: are the clocks of both hosts right?",
    16: "it comes from the future: are the clocks of both hosts right?",
    17: "it was used before (replayed)",
    18: "it was meant for another user: is daemon.slurm_user the same everywhere?",
}

T = TypeVar("T")


class MungeError(ColocError):
    """A credential was not made or not accepted; ``number`` is munge_err_t."""

    default_code = "munge"

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number

    @property
    def away(self) -> bool:
        """Whether munged did not answer, which says nothing about the credential."""
        return self.number in (0, _SOCKET_ERROR, _TIMEOUT)


class Credential(NamedTuple):
    """A credential that munged vouches for: its encoder's uid and gid, and what it carries.
    ``address`` is what the encoder's own munged took for its IPv4 address: for logs alone."""

    uid: int
    gid: int
    payload: bytes
    address: str


def _load() -> Any:
    try:
        lib = ctypes.CDLL(LIBRARY)
    except OSError as err:
        raise MungeError(f"{LIBRARY} cannot be loaded ({err}): install the munge library") from None
    context, text = ctypes.c_void_p, ctypes.c_char_p
    lib.munge_ctx_create.restype = context
    lib.munge_ctx_destroy.argtypes = [context]
    lib.munge_ctx_strerror.restype, lib.munge_ctx_strerror.argtypes = text, [context]
    lib.munge_strerror.restype, lib.munge_strerror.argtypes = text, [ctypes.c_int]
    return lib


_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]


def _limited(what: Callable[[], T], limit_s: float) -> T:
    try:
        return limited(what, limit_s)
    except TimeoutError as err:
        raise MungeError(f"munged: {err}", _TIMEOUT) from None


class Munge:
    """Makes and checks credentials. ``socket``: munged's, None for the library's own."""

    def __init__(self, socket: Path | None = None) -> None:
        """Load the library; raises MungeError where it is missing."""
        self._lib = _load()
        self._socket = str(socket).encode() if socket else None

    def encode(self, payload: bytes, for_uid: int, limit_s: float) -> str:
        """A credential of this process' user that only ``for_uid`` can open, and read: it is
        encrypted (AES-128) under the site's key. Raises MungeError."""
        return _limited(lambda: self._encode(payload, for_uid), limit_s)

    def decode(self, credential: str, limit_s: float) -> Credential:
        """Open a credential; raises MungeError where it is forged, expired, replayed, another's."""
        return _limited(lambda: self._decode(credential), limit_s)

    def _context(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p(self._lib.munge_ctx_create())
        if not context:
            raise MungeError("libmunge has no memory for a context")
        if self._socket:
            self._lib.munge_ctx_set(context, _SOCKET, ctypes.c_char_p(self._socket))
        return context

    def _check(self, number: int, context: ctypes.c_void_p) -> None:
        if number:
            text = self._lib.munge_ctx_strerror(context) or self._lib.munge_strerror(number)
            words = bytes(text or b"").decode(errors="replace")
            hint = _HINTS.get(number, "")
            raise MungeError(f"munge: {words}{': ' if hint else ''}{hint}", number)

    def _encode(self, payload: bytes, for_uid: int) -> str:
        context = self._context()
        made = ctypes.c_char_p()
        try:
            # The payload holds a session's key: never a build's default, which might be none.
            self._check(self._lib.munge_ctx_set(context, _CIPHER_TYPE, _AES128), context)
            uid = ctypes.c_uint(for_uid)
            self._check(self._lib.munge_ctx_set(context, _UID_RESTRICTION, uid), context)
            number = self._lib.munge_encode(ctypes.byref(made), context, payload, len(payload))
            self._check(number, context)
            return (made.value or b"").decode("ascii")
        finally:
            _libc.free(made)
            self._lib.munge_ctx_destroy(context)

    def _decode(self, credential: str) -> Credential:
        context = self._context()
        data, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint(), ctypes.c_uint()
        try:
            text = ctypes.c_char_p(credential.encode("ascii", "replace"))
            number = self._lib.munge_decode(
                text, context, *map(ctypes.byref, (data, length, uid, gid))
            )
            # A replayed or expired credential is decoded all the same: only the number counts.
            self._check(number, context)
            payload = ctypes.string_at(data, length.value) if data else b""
            four = (ctypes.c_ubyte * 4)()
            self._lib.munge_ctx_get(context, _ADDR4, ctypes.byref(four))
            return Credential(uid.value, gid.value, payload, ".".join(map(str, four)))
        finally:
            _libc.free(data)
            self._lib.munge_ctx_destroy(context)
