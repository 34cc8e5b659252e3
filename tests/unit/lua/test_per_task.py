# SPDX-License-Identifier: Apache-2.0
"""Shards per task in coloc.lua: the flag in bitflags, all or nothing, what an owner may edit."""

from typing import Any

from tests.unit.lua.conftest import Hook, modify, spank, submit
from tests.unit.lua.peer import GOOD, answering
from tests.unit.lua.test_coloc_lua import ACCESS_DENIED, MARK, TAKEN

FLAGS, ONE_TASK, SPREAD = 503332864, 2**38, 2**8
CHANGE = {
    **GOOD,
    "admin_comment": MARK,
    "set.tres_per_task": "gres/shard:12",
    "set.tres_bind": "gres/shard:per_task:12",
    "set.one_task_per_sharing": "1",
    "set.num_tasks": "2",
}
ASKED: dict[str, Any] = {"tres_per_task": "gres/gpu=1", "tres_bind": "gres/gpu:per_task:1"}


def test_shards_per_task(hook: Hook) -> None:
    hook.serve(answering(CHANGE))
    plain, again = hook.run(
        submit(**spank(SUMMARY="x"), **ASKED, bitflags=FLAGS),
        submit(**spank(SUMMARY="x"), **ASKED, bitflags=FLAGS + ONE_TASK),
    )
    for r in (plain, again):
        assert (r.called, r.rc, r.error) == (True, 0, [])
        assert int(float(r.fields["bitflags"])) == FLAGS + ONE_TASK
        assert r.fields["tres_per_task"] == "gres/shard:12"
        assert r.fields["tres_bind"] == "gres/shard:per_task:12"
        assert r.fields["num_tasks"] == "2"


def test_it_is_not_spread_over_nodes(hook: Hook) -> None:
    hook.serve(answering(CHANGE))
    given = (FLAGS + SPREAD, FLAGS + SPREAD + ONE_TASK)
    for r in hook.run(*(submit(**spank(SUMMARY="x"), **ASKED, bitflags=one) for one in given)):
        assert (r.called, r.rc, r.error) == (True, 0, [])
        assert int(float(r.fields["bitflags"])) == FLAGS + ONE_TASK


def test_all_of_it_or_nothing(hook: Hook) -> None:
    hook.serve(answering(CHANGE))
    for release, fails in (("24.11", ["num_tasks"]), ("24.11", ["bitflags"]), ("22.05", [])):
        hook.release = release
        (r,) = hook.run(submit(fails=fails, **spank(SUMMARY="x"), **ASKED, bitflags=FLAGS))
        assert (r.called, r.rc) == (True, 0)
        assert int(float(r.fields["bitflags"])) == FLAGS
        assert {name: r.fields[name] for name in ASKED} == ASKED
        assert "could not be rewritten" in r.user[0]


def test_an_owner_may_ask_for_a_gpu_per_task_instead(hook: Hook) -> None:
    rec = {**TAKEN, "tres_per_task": "gres/shard:12"}
    edits: list[tuple[dict[str, str], bool]] = [
        ({"tres_per_task": "gres/gpu:1"}, True),
        ({"tres_per_task": "cpu:2,gres/gpu:a100=1"}, True),
        ({"tres_per_task": "gres/gpu:2"}, False),
        ({"tres_per_task": "gres/shard:1"}, False),
        ({"tres_per_task": "gres/gpu:1", "tres_per_node": "gres/gpu:1"}, False),
        ({"tres_per_node": "gres/gpu:1"}, False),
    ]
    results = hook.run(*(modify(rec=rec, **edit) for edit, _ in edits))
    assert [r.rc == 0 for r in results] == [good for _, good in edits]
    assert {r.rc for r in results} == {0, ACCESS_DENIED}
    assert "TresPerTask=gres/gpu:1" in results[-1].user[0]
