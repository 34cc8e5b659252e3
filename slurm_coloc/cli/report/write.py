# SPDX-License-Identifier: Apache-2.0
"""Asks colocd for what a page is made of, and writes the page."""

import math
import os
import sys
import time
from pathlib import Path

from slurm_coloc.cli import render
from slurm_coloc.cli.options import since_s
from slurm_coloc.cli.report.cluster import cluster_page
from slurm_coloc.config import load_config
from slurm_coloc.core.report.cluster import report
from slurm_coloc.core.report.past import unpacked
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.flow.client.request import call

DAY_S = 86400.0


def many(since: str | None, days: int) -> str:
    """The page of all runs that the asker may see, since a moment or of so many days."""
    now_s = time.time()
    from_s = since_s(since) if since else now_s - days * DAY_S
    answer = call(load_config(), "past", {"since_s": from_s})
    try:
        runs = unpacked(answer)
    except (KeyError, TypeError, ValueError, IndexError) as err:
        raise ColocError(f"colocd's answer is of another release: {err!r}"[:200]) from err
    whose = "all users" if answer["all"] else render.user_name(os.getuid())
    found = report(runs, render.user_name)
    return cluster_page(found, from_s, now_s, whose=whose, more=bool(answer["more"]))


def write_page(text: str, output: Path | None) -> None:
    """Write a page to a file, or to stdout; raises UsageFault where that cannot be."""
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as err:
        raise UsageFault(f"{output}: {err.strerror}") from err
    print(f"{output}: {math.ceil(len(text) / 1000)} kB")
