# SPDX-License-Identifier: Apache-2.0
"""etc/coloc.lua where MIG devices are gpus too: requests of no type get that of the whole ones."""

from tests.unit.lua.conftest import Hook, modify, spank, submit
from tests.unit.lua.peer import GOOD, answering


def test_an_untyped_gpu_gets_the_type_of_the_whole_ones(hook: Hook) -> None:
    """Where MIG devices are gpus too; a site names it in setup."""
    hook.setup["whole_type"] = "a100"
    wanted = {
        "gres/gpu:1": "gres/gpu:a100:1",
        "gres:gpu": "gres:gpu:a100:1",
        "gres/gpu=2": "gres/gpu:a100=2",
        "cpu=3,gres/gpu:1,gres/lustre:1": "cpu=3,gres/gpu:a100:1,gres/lustre:1",
        "gres/gpu:1g.5gb:1": "gres/gpu:1g.5gb:1",
        "gres/lustre:1": "gres/lustre:1",
    }
    results = hook.run(*(submit(tres_per_node=text) for text in wanted))
    assert [one.fields["tres_per_node"] for one in results] == list(wanted.values())
    assert all(not (one.user or one.error) for one in results)


def test_a_coloc_job_that_goes_as_submitted_has_a_typed_gpu(hook: Hook) -> None:
    """Observe mode, a rule of the site: the job may no more land on a device than one without
    --coloc."""
    hook.setup["whole_type"] = "a100"
    asis = {key: value for key, value in GOOD.items() if not key.startswith(("set.", "env."))}
    hook.serve(answering({**asis, "action": "asis"}))
    (r,) = hook.run(submit(**spank(SUMMARY="x"), tres_per_job="gres/gpu:1"))
    assert r.fields["tres_per_job"] == "gres/gpu:a100:1" and not r.error


def test_an_edit_to_a_whole_gpu_has_a_typed_one(hook: Hook) -> None:
    """The owner's own way back, and an edit of a job without --coloc."""
    hook.setup["whole_type"] = "a100"
    shared = {"admin_comment": "coloc:1:abcdef012345:collocate:fits:4"}
    back, other = hook.run(
        modify(rec=shared, tres_per_node="gres/gpu:1"), modify(tres_per_node="gres/gpu:2")
    )
    assert back.rc == other.rc == 0
    assert back.fields["tres_per_node"] == "gres/gpu:a100:1"
    assert other.fields["tres_per_node"] == "gres/gpu:a100:2"


def test_without_colocd_a_whole_gpu_has_the_site_s_type(hook: Hook) -> None:
    """Else it could be a MIG device."""
    hook.setup["whole_type"] = "a100"
    named, unnamed = hook.run(
        submit(**spank(SUMMARY="x"), tres_per_job="gres/gpu:1"), submit(**spank(SUMMARY="x"))
    )
    assert named.fields["tres_per_job"] == "gres/gpu:a100:1"
    assert unnamed.fields["tres_per_node"] == "gres/gpu:a100:1"
