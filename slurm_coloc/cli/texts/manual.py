# SPDX-License-Identifier: Apache-2.0
"""coloc(1) made from the command line: python -m slurm_coloc.cli.texts.manual > etc/man/coloc.1"""

import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from slurm_coloc import errors
from slurm_coloc.cli.app import build

HEAD = """\
.\\" SPDX-License-Identifier: Apache-2.0
.\\" Made by python -m slurm_coloc.cli.texts.manual; edit the help texts in slurm_coloc/cli instead.
.TH COLOC 1 "" "slurm-coloc" "User Commands"
.SH NAME
coloc \\- GPU sharing for deep\\-learning training on Slurm
.SH SYNOPSIS
.B coloc
.I COMMAND
.RI [ OPTIONS ]
.SH DESCRIPTION
A training job submitted with
.B sbatch \\-\\-coloc=SUMMARY
gets as many shards of one GPU as its model needs by estimate; a job that ran out of GPU memory
comes back with more memory, then on a whole GPU.
.B coloc
is the program behind it: for users (jobs, gpus, explain, history, estimate, summarize), for admins
(doctor, config, serve) and for trying it out (lab).
.PP
Data go to standard output, talk to standard error. With
.B \\-\\-json
the answer is one JSON object with a schema number.
.SH COMMANDS
"""

HOOKS = """\
.SS coloc prolog, coloc epilog
The hooks of slurmd, called by the scripts coloc\\-prolog and coloc\\-epilog and by nobody else; see
prolog/README.md and epilog/README.md.
.SH EXIT STATUS
"""

EXITS = (
    (0, "success"),
    (1, "the answer is no: an unknown job, a check of doctor that failed, a dead daemon of a lab"),
    (
        errors.UsageFault.exit_code,
        "usage: an unknown option, a value out of range, or a request that this user may not make",
    ),
    (errors.ConfigError.exit_code, "the configuration is wrong"),
    (errors.SlurmError.exit_code, "Slurm does not answer, or refuses"),
    (errors.GpuError.exit_code, "the GPU or its driver does not answer"),
    (errors.DaemonUnreachable.exit_code, "colocd cannot be reached"),
    (errors.SummaryError.exit_code, "the model summary cannot be used"),
)

TAIL = """\
.SH ENVIRONMENT
.TP
COLOC_CONFIG
The configuration file instead of /etc/slurm\\-coloc/coloc.toml.
.SH FILES
.TP
/etc/slurm\\-coloc/coloc.toml
Configuration;
.B coloc config show \\-\\-reference
describes every key. Tables [[sharing.rules]] with node (a list of nodes), gpu (minor number or
UUID) and method (mps, streams) are exceptions to sharing.method for single GPUs;
.B coloc doctor
tells what they come to.
.TP
/etc/slurm\\-coloc/off
The switch: while this file exists nothing is rewritten or requeued.
.TP
/run/slurm\\-coloc/colocd.sock
colocd's socket for users, nodes and admins.
.TP
/run/slurm\\-coloc/hook/colocd.sock
colocd's socket for slurmctld's hook; job_submit.lua names it.
.SH SEE ALSO
.BR sbatch (1),
.BR scontrol (1),
.BR spank_coloc (8)
"""


def escape(text: str) -> str:
    """Plain text as roff: no accidental requests, minus signs that can be copied."""
    lines = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + lines if lines.startswith((".", "'")) else lines


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from leaves(child, (*path, name))


def options_of(command: Any) -> Iterator[tuple[str, str]]:
    """Options with their help, --help left out."""
    for param in command.params:
        if param.param_type_name != "option" or "--help" in param.opts:
            continue
        value = "" if param.is_flag else f" {(param.metavar or param.name).upper()}"
        yield ", ".join(param.opts) + value, param.help or ""


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    words = [*path, *(argument(p) for p in command.params if p.param_type_name == "argument")]
    yield f".SS coloc {escape(' '.join(words))}"
    paragraphs = (command.help or "").replace("\f", "").split("\n\n")
    for number, paragraph in enumerate(part for part in paragraphs if part.strip()):
        if number:
            yield ".PP"
        yield escape(paragraph)
    for name, text in options_of(command):
        yield ".TP"
        yield f".B {escape(name)}"
        yield escape(text) or "\\&"


def argument(param: Any) -> str:
    """An argument's name, in brackets where it may be left out."""
    name = param.metavar or str(param.name).upper()
    return name if param.required else f"[{name}]"


def page() -> str:
    """The whole page."""
    lines: list[str] = []
    for path, command in leaves(get_command(build())):
        lines += _section(path, command)
    lines.append(HOOKS.rstrip("\n"))
    for code, text in EXITS:
        lines += [".TP", str(code), escape(f"{text}.")]
    return HEAD + "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    sys.stdout.write(page())
