# SPDX-License-Identifier: Apache-2.0
"""A time limit for calls that take none: munged, a name server."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def limited(what: Callable[[], T], limit_s: float) -> T:
    """The result of ``what``, or TimeoutError after ``limit_s``. A call that hangs is left to its
    thread, which must end by itself sooner or later and hold nothing."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(what())
        except BaseException as err:
            failed.append(err)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, limit_s))
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"no answer within {limit_s:.1f} s")
    return found[0]
