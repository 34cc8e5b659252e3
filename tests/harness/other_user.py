# SPDX-License-Identifier: Apache-2.0
"""A part of a test as another user. Needs root."""

import json
import os
from collections.abc import Callable
from typing import Any

from slurm_coloc.errors import ColocError


def as_user(uid: int, what: Callable[[], Any], gid: int | None = None) -> Any:
    """What ``what`` returns in a process of another uid; {"error": its code, or its class} if it
    raises ColocError or OSError.

    By fork, so that the other user need not be able to read the interpreter or the checkout.
    """
    group = uid if gid is None else gid
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(uid, uid, uid)
            try:
                found = what()
            except (ColocError, OSError) as err:
                found = {"error": getattr(err, "code", None) or type(err).__name__}
            os.write(writing, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)
