# SPDX-License-Identifier: Apache-2.0
"""What a daemon leaves out of its process: a third of its start and 5 MiB.

structlog loads rich where it is installed, for tracebacks in color that a log in logfmt or JSON
never has. asyncio loads OpenSSL for connections with TLS, of which no daemon has any. pydantic
reads the metadata of each installed package for plugins: nothing that happens to be installed
beside this package belongs into a daemon's settings.
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
