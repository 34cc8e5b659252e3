# SPDX-License-Identifier: Apache-2.0
"""What coloc doctor says of a host whose submissions find no colocd."""

from pathlib import Path

from slurm_coloc.admin.doctor.tickets import judged
from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.config import Config, parse_config

WHERE = Path("/etc/slurm/plugstack.conf")


def test_whom_the_plugin_asks(tmp_path: Path) -> None:
    program = tmp_path / "coloc-ticket"
    program.write_text("")
    program.chmod(0o755)
    (tmp_path / "sock").touch()
    own = [f"ticket={program}", f"socket={tmp_path}/none", "quiet"]
    config = parse_config({"version": 1, "network": {"controllers": ["ctl1:6824"]}}, "test")

    assert judged([*own, f"socket={tmp_path}/sock"], config, WHERE).status is Status.OK
    assert judged([*own, "controllers=ctl1:6824"], config, WHERE).status is Status.OK
    nobody = judged(own, config, WHERE)
    assert nobody.status is Status.WARN
    assert "controllers=ctl1:6824" in nobody.todo and "whole GPU" in nobody.found
    assert "controllers=HOST:6824" in judged(own, Config(), WHERE).todo
    missing = judged([*own, f"ticket={tmp_path}/missing"], config, WHERE)
    assert missing.status is Status.WARN and missing.todo == "make install"
    assert judged(["ticket=off"], config, WHERE).status is Status.WARN
