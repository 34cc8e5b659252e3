# SPDX-License-Identifier: Apache-2.0
"""A configuration that colocd cannot use is refused as a whole, and told."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slurm_coloc.config import load_config
from slurm_coloc.daemon import Daemon

FILE = """version = 1
[daemon]
state_dir = "{folder}/state"
socket = "{folder}/colocd.sock"
slurm_user = "root"
[mode]
default = "{mode}"
[estimate]
stacks_dir = "{folder}/stacks"
"""


@pytest.mark.parametrize("wrong", ["policy", "stacks"])
def test_all_or_nothing_of_it_counts(tmp_path: Path, wrong: str) -> None:
    """Else an admin who switches sharing off is told so, and jobs go on being shared."""
    file, stacks = tmp_path / "coloc.toml", tmp_path / "stacks"
    stacks.mkdir()
    (tmp_path / "state").mkdir()
    file.write_text(FILE.format(folder=tmp_path, mode="on"))
    daemon = Daemon(load_config(file), file)
    before = dict(vars(daemon.parts))
    text = FILE.format(folder=tmp_path, mode="observe")
    if wrong == "policy":
        text += '[placement]\npolicy = "nope"\n'
    else:
        (stacks / "a100.toml").write_text("context_mib =\n")
    file.write_text(text)
    with capture_logs() as logs:
        daemon._hup()
    assert vars(daemon.parts) == before and daemon.parts.config.mode.default == "on"
    assert [one["result"] for one in logs if one.get("log_level") == "error"] == [
        "the old configuration stays in force"
    ]
    daemon.parts.store.close()
