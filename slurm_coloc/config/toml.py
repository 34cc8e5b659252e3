# SPDX-License-Identifier: Apache-2.0
"""Plain values written as TOML; the standard library only reads it."""

import json
from pathlib import Path


def toml_value(value: object) -> str:
    """A string, path, number, boolean, list or table of these; a basic string is JSON's."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path):
        return json.dumps(str(value))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + " }"
    return repr(value)
