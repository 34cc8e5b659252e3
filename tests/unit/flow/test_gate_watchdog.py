# SPDX-License-Identifier: Apache-2.0
"""A node's agent opens the gate of a node whose colocd is gone; scontrol is a script here.

With a real slurmctld: tests/cluster/test_node_gate.py.
"""

from pathlib import Path

import pytest

from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.admin.rules.placement import figures
from slurm_coloc.flow.measure.gate_watchdog import open_gate

SCRIPT = """#!/bin/sh
echo "$@" >> {log}
[ "$1" = show ] || exit {code}
cat {shown}
"""


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "log").touch()
    return tmp_path


def shown(folder: Path, extra: str, code: int = 0) -> None:
    (folder / "shown").write_text(f"NodeName=n1 State=IDLE {extra} Reason=none\n")
    path = folder / "scontrol"
    path.write_text(SCRIPT.format(log=folder / "log", shown=folder / "shown", code=code))
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("extra", "written"),
    [
        ('Extra={"rack":"b 7","smact":85}', 'Extra={"rack":"b 7","smact":0}'),
        ('Extra={"smact":0}', ""),
        ('Extra={"rack":"b7"}', ""),
        ("Extra={broken", ""),
        ("Comment=smact", ""),
    ],
)
def test_a_figure_that_may_shut_the_node_goes(scontrol: Path, extra: str, written: str) -> None:
    shown(scontrol, extra)
    assert open_gate("n1")
    told = (scontrol / "log").read_text().splitlines()
    assert told[0] == "show node -o n1"
    assert told[1:] == ([f"update NodeName=n1 {written}"] if written else [])


def test_what_fails_is_tried_again(scontrol: Path) -> None:
    shown(scontrol, 'Extra={"smact":85}', code=1)
    assert not open_gate("n1")
    (scontrol / "scontrol").unlink()
    assert not open_gate("n1")


def test_doctor_tells_figures_that_nobody_keeps() -> None:
    assert figures({"n1": 85, "n2": 0}).status is Status.OK
    assert figures({"n2": 0}, "no answer").status is Status.OK
    found = figures({"n1": 85, "n2": 0}, "no answer")
    assert found.status is Status.WARN and "n1" in found.found and "n2" not in found.found
