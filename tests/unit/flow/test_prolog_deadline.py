# SPDX-License-Identifier: Apache-2.0
"""How long a Prolog waits for colocd: as long as a busy slurmctld may take, and longer only where
the job is put back."""

from types import SimpleNamespace
from typing import Any

import pytest

from slurm_coloc.flow.launch import prolog

CALL: Any = SimpleNamespace(job=SimpleNamespace(job_id=7, restart=0, node="n1", uid=1000))


@pytest.mark.parametrize(("last", "expected"), [(False, 2.0), (True, prolog.PUT_BACK_S)])
def test_how_long_it_waits(monkeypatch: pytest.MonkeyPatch, last: bool, expected: float) -> None:
    waited: list[float] = []

    def asked(call: Any, request: Any, deadline_s: float) -> dict[str, Any]:
        waited.append(deadline_s)
        return {"from": "test"}

    monkeypatch.setattr(prolog, "_request", asked)
    prolog.request_reservation(CALL, {"devices": []}, last, "")
    assert waited == [expected]
