# SPDX-License-Identifier: Apache-2.0
"""What a daemon's process holds: none of what only a terminal or a port needs."""

import subprocess
import sys

import pytest

LOADED = """
import sys
import slurm_coloc.cli.app, slurm_coloc.cli.{command}
from slurm_coloc import lean
lean.leave_out()
import {daemon}
from slurm_coloc.logs import set_up_log
set_up_log("logfmt")
unwanted = {{"rich", "pygments", "http.client", "onnxruntime", "numpy", "ssl"}}
print(*sorted(name for name, module in sys.modules.items() if module and name in unwanted))
"""


@pytest.mark.parametrize(
    ("command", "daemon"), (("agent", "slurm_coloc.agent"), ("serve", "slurm_coloc.daemon"))
)
def test_a_daemon_leaves_out_what_a_terminal_needs(command: str, daemon: str) -> None:
    program = LOADED.format(command=command, daemon=daemon)
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""


def test_a_port_of_metrics_brings_back_what_it_needs() -> None:
    program = (
        "from slurm_coloc import lean; lean.leave_out()\n"
        "from slurm_coloc.adapters.prometheus.text import Writer; Writer()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
