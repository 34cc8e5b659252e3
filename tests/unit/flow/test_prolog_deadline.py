# SPDX-License-Identifier: Apache-2.0
"""How long a Prolog waits for colocd: half a second, and longer only where the job may have to be
put back."""

from types import SimpleNamespace
from typing import Any

import pytest

from slurm_coloc.flow.launch import prolog

CALL = SimpleNamespace(job=SimpleNamespace(job_id=7, restart=0, node="n1", uid=1000))


@pytest.mark.parametrize(
    ("holders", "last", "expected"),
    [
        ([], False, prolog.ASK_S),
        ([1000], False, prolog.ASK_S),  # his own other job
        ([0], False, prolog.ASK_S),  # a daemon of the site
        ([1000, 1001], False, prolog.ASK_BESIDE_OTHERS_S),
        ([1001], True, prolog.PUT_BACK_S),
    ],
)
def test_how_long_it_waits(
    monkeypatch: pytest.MonkeyPatch, holders: list[int], last: bool, expected: float
) -> None:
    waited: list[float] = []

    def asked(call: Any, request: Any, deadline_s: float) -> dict[str, Any]:
        waited.append(deadline_s)
        return {"from": "test"}

    facts = {"uuid": "GPU-1", "holders": [{"pid": 9, "uid": uid, "name": ""} for uid in holders]}
    monkeypatch.setattr(prolog, "_request", asked)
    monkeypatch.setattr(prolog, "_facts", lambda device, settings: facts)
    call: Any = SimpleNamespace(job=CALL.job, settings=SimpleNamespace(run_dir="/nowhere"))
    prolog.request_reservation(call, {"devices": [{}]}, last, "")
    assert waited == [expected]
