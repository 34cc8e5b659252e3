# SPDX-License-Identifier: Apache-2.0
"""coloc.toml(5) made from the configuration's models:
python -m slurm_coloc.cli.texts.manual_conf > etc/man/coloc.toml.5"""

import sys
from collections.abc import Iterator

from pydantic.fields import FieldInfo

from slurm_coloc.cli.texts import reference
from slurm_coloc.cli.texts.manual import escape
from slurm_coloc.config.toml import toml_value

HEAD = """\
.\\" SPDX-License-Identifier: Apache-2.0
.\\" Made by python -m slurm_coloc.cli.texts.manual_conf; edit slurm_coloc/config instead.
.TH COLOC.TOML 5 "" "slurm-coloc" "File Formats"
.SH NAME
coloc.toml \\- configuration of slurm\\-coloc
.SH SYNOPSIS
/etc/slurm\\-coloc/coloc.toml
.SH DESCRIPTION
One file for colocd, the agent, the hooks and
.BR coloc (1),
in TOML. Without it the defaults hold: colocd observes and changes no job. An unknown key is an
error.
.B coloc config check
checks the file,
.B coloc config show
prints the values in force,
.B coloc config show \\-\\-sample
a file to start from. colocd reads it again with
.BR "systemctl reload slurm\\-coloc" ;
[network], the addresses and files of [metrics] and most of [daemon] need a restart.
The environment variable COLOC_CONFIG names another file.
.PP
version = 1 is the version of the file's layout.
"""
TAIL = """\
.SH SEE ALSO
.BR coloc (1),
.BR coloc (7),
.BR colocd (8),
.BR spank_coloc (8)
"""


def _key(name: str, field: FieldInfo) -> Iterator[str]:
    default = field.get_default()
    value = "none" if default is None else toml_value(default)
    shown = "required" if field.is_required() else f"default {value}"
    unit = reference.unit(name)
    also = ", ".join(filter(None, (reference.bounds(field), "" if unit == "-" else unit, shown)))
    yield ".TP"
    yield f".B {escape(field.alias or name)}"
    yield escape(f"({also}) {field.description}")


def page() -> str:
    """The whole page."""
    lines: list[str] = []
    for name, kind in reference.sections():
        title = f"[[{name}]]" if name in reference.ARRAYS else f"[{name}]"
        about = " ".join((kind.__doc__ or "").split()).split("] ", 1)[-1]
        lines += [f".SH {escape(title)}", escape(about)]
        for key, field in kind.model_fields.items():
            if key != "rules":
                lines += _key(key, field)
    return HEAD + "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    sys.stdout.write(page())
