# SPDX-License-Identifier: Apache-2.0
"""Single keys of a terminal."""

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any

#: what terminals send for keys without a character
NAMED = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down",
    b"\x1b[5~": "page-up", b"\x1b[6~": "page-down", b"\x1b[H": "home", b"\x1b[F": "end",
    b"\x03": "q", b"\x1b": "q",
}  # fmt: skip


class Keys:
    """Reads keys without a return, while the context lasts."""

    def __enter__(self) -> "Keys":
        self._fd = sys.stdin.fileno()
        self._before: list[Any] = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
        return kind is KeyboardInterrupt

    def next(self, wait_s: float) -> str:
        """The key that is pressed within ``wait_s``; "" for none. A terminal that is gone is q."""
        try:
            ready, _, _ = select.select([self._fd], [], [], wait_s)
        except InterruptedError:  # the terminal has another size
            return ""
        if not ready:
            return ""
        raw = os.read(self._fd, 16)
        if not raw:
            return "q"
        return NAMED.get(raw) or raw[:1].decode("ascii", "replace").lower()
