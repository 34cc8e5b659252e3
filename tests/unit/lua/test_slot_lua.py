# SPDX-License-Identifier: Apache-2.0
"""The job's time slot goes into its environment, and nothing else does."""

from typing import Any

import pytest

from tests.unit.lua.conftest import Hook, spank, submit
from tests.unit.lua.peer import GOOD, answering

ASKED: dict[str, Any] = {"script": "#!/bin/sh", "environment": {"HOME": "/x"}}


def test_the_job_is_told_its_slot(hook: Hook) -> None:
    peer = hook.serve(answering({**GOOD, "env.COLOC_SLOT": "3600,120,URG"}))
    (r,) = hook.run(submit(**spank(SUMMARY="eJw=", SLOT="3600"), **ASKED))
    assert r.env["COLOC_SLOT"] == "3600,120,URG" and r.env["HOME"] == "/x"
    assert b'"slot":"3600"' in peer.lines[0]


@pytest.mark.parametrize("value", ["", "3600", "3600,120,urg", "1,1,URG;rm", "9" * 70 + ",1,URG"])
def test_a_slot_that_is_none_is_not_written(hook: Hook, value: str) -> None:
    hook.serve(answering({**GOOD, "env.COLOC_SLOT": value}))
    (r,) = hook.run(submit(**spank(SUMMARY="eJw="), **ASKED))
    assert r.env == ASKED["environment"] and "bad_answer" in r.info[0]


def test_the_slowdown_that_it_bears_is_asked_for(hook: Hook) -> None:
    peer = hook.serve(answering(GOOD))
    hook.run(submit(**spank(SUMMARY="eJw=", MAX_SLOWDOWN="1.25"), **ASKED))
    assert b'"max_slowdown":"1.25"' in peer.lines[0]
