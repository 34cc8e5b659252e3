# SPDX-License-Identifier: Apache-2.0
"""What daemons and hooks leave out of their processes: a third of a daemon's start and 5 MiB.

structlog loads rich where it is installed, for tracebacks in color that a log in logfmt or JSON
never has. asyncio loads OpenSSL for connections with TLS, of which no daemon has any. pydantic
reads the metadata of each installed package for plugins: nothing that happens to be installed
beside this package belongs into a daemon's settings.

nvidia-ml-py imports ctypes.util for a function that it does not call, and that imports shutil,
tempfile, bz2 and lzma: 7 of the 70 ms of a Prolog.
"""

import os
import sys
from types import ModuleType
from typing import cast


def leave_out() -> None:
    """Call before the daemon is imported; what is loaded already stays."""
    for name in ("rich", "ssl"):
        sys.modules.setdefault(name, cast(ModuleType, None))  # from here on importing it fails
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def late_ctypes_util() -> None:
    """Call in a hook before NVML is asked: ctypes.util is imported where its function is called."""
    stand_in = ModuleType("ctypes.util")
    stand_in.find_library = _find_library  # type: ignore[attr-defined]
    sys.modules.setdefault(stand_in.__name__, stand_in)


def _find_library(name: str) -> str | None:
    del sys.modules["ctypes.util"]
    from ctypes.util import find_library

    return find_library(name)
