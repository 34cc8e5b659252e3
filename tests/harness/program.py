# SPDX-License-Identifier: Apache-2.0
"""`coloc` in a fork of this process: its own code from the command line on, without the start of an
interpreter and the imports, which take most of a second of a core on a busy machine. Tests that
wait ask the same question many times. Needs root for another user."""

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

from slurm_coloc.cli import app

# Imported here: the fork may be of a user who cannot read the checkout.
from slurm_coloc.cli import explain, gpus, history, jobs, report  # noqa: F401  # isort: skip

#: what may be asked so; any other subcommand is a program's start
FORKED = ("explain", "gpus", "history", "jobs", "report")


def run(
    argv: list[str], env: Mapping[str, str], folder: Path, uid: int, gid: int
) -> subprocess.CompletedProcess[str]:
    """`coloc` with these words as this account, in ``folder`` with exactly this environment."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with warnings.catch_warnings():
            # pytest-xdist has a thread that waits for its input; the child uses nothing of it.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _become(argv, env, folder, (uid, gid), (out.fileno(), err.fileno()))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(argv, code, out.read(), err.read())


def _become(
    argv: list[str], env: Mapping[str, str], folder: Path, ids: tuple[int, int], to: tuple[int, int]
) -> None:
    """Does not return: what goes wrong here must not go on as the test."""
    code = 70
    try:
        for number, where in zip((1, 2), to, strict=True):
            os.dup2(where, number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.setgroups([])
        os.setresgid(ids[1], ids[1], ids[1])
        os.setresuid(ids[0], ids[0], ids[0])
        os.environ.clear()
        os.environ.update(env)
        os.chdir(folder)
        sys.argv = argv
        code = app.run()
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    finally:
        os._exit(code)
