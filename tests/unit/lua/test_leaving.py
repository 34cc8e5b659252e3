# SPDX-License-Identifier: Apache-2.0
"""The off file says "leave" (`coloc leave`): the shards go, so no job may ask for more of them."""

import pytest

from tests.unit.lua.conftest import Hook, modify, spank, submit

ACCESS_DENIED = 2002


@pytest.fixture
def left(hook: Hook) -> Hook:
    hook.off_file.write_text("leave\n")
    return hook


def test_no_new_job_with_shards(left: Hook) -> None:
    plain, raw, asked, both = left.run(
        submit(tres_per_node="gres/gpu:1"),
        submit(tres_per_node="gres/shard:4"),
        submit(tres_per_node="gres/gpu:1", **spank(SUMMARY="eJw=")),
        submit(tres_per_node="gres/shard:4", **spank(SUMMARY="eJw=")),
    )
    assert [plain.rc, raw.rc, asked.rc, both.rc] == [0, ACCESS_DENIED, 0, ACCESS_DENIED]
    assert "whole GPUs" in raw.user[0] and "whole GPUs" in both.user[0]
    assert asked.fields["tres_per_node"] == "gres/gpu:1"


def test_no_edit_to_shards(left: Hook) -> None:
    job = {"admin_comment": "", "job_id": 7}
    shards, gpus, roots = left.run(
        modify(rec=job, tres_per_node="gres/shard:4"),
        modify(rec=job, tres_per_node="gres/gpu:1"),
        modify(0, job, tres_per_node="gres/shard:4"),
    )
    assert (shards.rc, gpus.rc, roots.rc) == (ACCESS_DENIED, 0, 0)


def test_a_site_whose_users_have_shards_of_their_own(left: Hook) -> None:
    left.setup["raw_shard"] = "allow"
    (raw,) = left.run(submit(tres_per_node="gres/shard:4"))
    assert raw.rc == 0


def test_any_other_word_is_the_plain_switch(hook: Hook) -> None:
    hook.off_file.write_text("until Monday\n")
    (raw,) = hook.run(submit(tres_per_node="gres/shard:4"))
    assert raw.rc == 0
