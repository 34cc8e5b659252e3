# SPDX-License-Identifier: Apache-2.0
"""doctor's check of metrics: each fault is found, and a sound host is told so."""

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.admin.doctor.metrics import checks
from slurm_coloc.admin.init.plan import Role
from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.config import parse_config

HERE = frozenset({Role.CONTROLLER, Role.NODE})


def found(here: frozenset[Role] = HERE, **keys: Any) -> list[tuple[Status, str, str]]:
    config = parse_config({"version": 1, "metrics": keys}, "test")
    return [(one.status, one.found, one.todo) for one in checks(config, here)]


def test_off_is_no_fault() -> None:
    [(status, _, todo)] = found()
    assert (status, todo) == (Status.NA, "")
    assert found(frozenset({Role.LOGIN}), agent_port=9836)[0][0] is Status.NA


def test_a_port_where_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert found(agent_port=port) == [
            (Status.OK, f"the agent listens on 127.0.0.1 port {port}", "")
        ]
        assert found(colocd_port=port, address="0.0.0.0", allow=["10.0.0.0/8"])[0][0] is Status.OK
    [(status, text, todo)] = found(colocd_port=port)
    assert status is Status.FAIL
    assert text == f"colocd does not listen on 127.0.0.1 port {port}: Connection refused"
    assert todo.startswith("systemctl restart slurm-coloc;")


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    [(status, text, todo)] = found(agent_port=9836)
    assert (status, text) == (Status.FAIL, "prometheus_client is missing")
    assert "python3-prometheus-client" in todo


def test_a_token_that_cannot_be_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("x")
    file.chmod(0o644)
    [(status, text, _)] = found(agent_port=9836, token_file=str(file))
    assert status is Status.FAIL
    assert "other users may read it" in text
