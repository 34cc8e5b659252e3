# SPDX-License-Identifier: Apache-2.0
"""sqlite_utils' Database, imported without NumPy and pandas.

sqlite_utils imports both where they are installed, to store their types. No row here has one, and
NumPy alone (onnxruntime brings it) is a quarter of colocd's start and 11 MiB of each process.
"""

import sys

_UNUSED = [name for name in ("numpy", "pandas") if name not in sys.modules]
for _name in _UNUSED:
    sys.modules[_name] = None  # type: ignore[assignment] # an import of it fails, as if not there
try:
    from sqlite_utils import Database
finally:
    for _name in _UNUSED:
        del sys.modules[_name]

__all__ = ["Database"]
