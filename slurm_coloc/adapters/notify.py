# SPDX-License-Identifier: Apache-2.0
"""sd_notify: tell systemd that colocd is ready, reloading or stopping (sd_notify(3))."""

import os
import socket
import time


def notify(*lines: str) -> None:
    """Send ``lines`` to $NOTIFY_SOCKET; nothing without one, and never an error."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto("\n".join(lines).encode(), address)
    except OSError:
        pass


def ready() -> None:
    """colocd answers from now on."""
    notify("READY=1")


def reloading() -> None:
    """A reload has begun; Type=notify-reload wants the monotonic time with it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def stopping() -> None:
    """colocd is about to end."""
    notify("STOPPING=1")
