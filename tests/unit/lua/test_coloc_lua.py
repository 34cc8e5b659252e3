# SPDX-License-Identifier: Apache-2.0
"""etc/coloc.lua under the real interpreters: what it asks, what it applies, what it refuses."""

import os
import time
from typing import Any

import pytest

from tests.unit.lua.conftest import Hook, modify, spank, submit
from tests.unit.lua.peer import GOOD, answering

NO_VAL = 4294967294
ACCESS_DENIED = 2002
MARK = "coloc:1:0123456789ab:collocate:estimated:12"
TAKEN = {"admin_comment": f"site; {MARK}", "job_id": 7}


def test_a_job_without_coloc_calls_nobody(hook: Hook) -> None:
    peer = hook.serve(answering(GOOD))
    other: dict[str, Any] = {"spank_job_env": {0: "X11=1"}, "spank_job_env_size": 1}
    results = hook.run(submit(tres_per_node="gres/gpu:1"), submit(), submit(**other))
    assert [r.rc for r in results] == [0, 0, 0]
    assert all(not (r.user or r.info or r.error) for r in results)
    assert results[0].fields["tres_per_node"] == "gres/gpu:1"
    assert peer.lines == []


def test_the_request_holds_what_is_set_and_no_more(hook: Hook) -> None:
    peer = hook.serve(answering(GOOD))
    hook.run(
        submit(
            **spank(SUMMARY="eJw=", BATCH_SIZE="32", KIND="batch"),
            user_id=1001,
            group_id=100,
            partition="main",
            tres_per_job="gres/gpu:1",
            time_limit=60,
            requeue=0,
            min_mem_per_cpu=100,
            array_inx="1-3%2",
            het_job_offset=0,
            shared=0,
            script="#!/bin/sh",
            environment={"SLURM_GPUS": "1", "SLURM_TRES_PER_TASK": "", "HOME": "/x"},
            qos='süß \\ "x"',
            name="train",
            admin_comment="the site's own stays here",
        )
    )
    requests = peer.requests
    loaded_ms = requests[0].pop("loaded_monotonic_ms")
    assert 0 < time.monotonic() * 1000 - loaded_ms < 60_000
    assert requests == [
        {
            "v": 1,
            "op": "submit",
            "flat": True,
            "uid": 1001,
            "gid": 100,
            "partition": "main",
            "qos": 'süß \\ "x"',
            "tres_per_job": "gres/gpu:1",
            "time_limit": 60,
            "min_cpus": 1,
            "min_mem_per_cpu": 100,
            "requeue": 0,
            "array": "1-3%2",
            "name": "train",
            "het": True,
            "exclusive_node": True,
            "batch": True,
            "env": ["SLURM_GPUS", "SLURM_TRES_PER_TASK"],
            "coloc": {"summary": "eJw=", "batch_size": "32", "kind": "batch"},
        }
    ]


@pytest.mark.parametrize("name", ["", "x" * 129, "x" * 10_000_000])
def test_a_job_without_a_short_name_is_shown_without_one(hook: Hook, name: str) -> None:
    peer = hook.serve(answering(GOOD))
    hook.run(submit(**spank(SUMMARY="eJw=", KIND="batch"), name=name))
    assert "name" not in peer.requests[0]


def test_a_script_goes_along_with_auto_alone(hook: Hook) -> None:
    peer = hook.serve(answering(GOOD))
    batch = {"script": "#!/bin/sh\nx", "argc": 3, "argv": {1: "/h/t.sh", 2: "--lr", 3: "ü"}}
    from_0 = {"script": "x", "argc": 2, "argv": {0: "/h/t.sh", 1: "--lr"}}
    hook.run(
        submit(**spank(AUTO="1", KIND="batch"), **batch),
        submit(**spank(AUTO="1", KIND="batch"), **from_0),
        submit(**spank(SUMMARY="eJw=", KIND="batch"), **batch),
        submit(**spank(AUTO="1", KIND="salloc")),
        submit(**spank(AUTO="1", KIND="batch"), **{**batch, "script": "x" * 65537}),
    )
    told = [one["coloc"] for one in peer.requests]
    assert (told[0]["script"], told[0]["arguments"]) == ("#!/bin/sh\nx", ["--lr", "ü"])
    assert told[1]["arguments"] == ["--lr"]
    for one in told[2:]:
        assert "script" not in one and "arguments" not in one


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "expandable_segments:True"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "a:1", "PYTORCH_ALLOC_CONF": "b:2"}, "b:2"),
        ({"PYTORCH_ALLOC_CONF": "", "PYTORCH_CUDA_ALLOC_CONF": "a:1"}, "a:1"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "x" * 513}, None),
        ({"HOME": "/x"}, None),
    ],
)
def test_the_allocator_s_options_go_along(
    hook: Hook, environment: dict[str, str], told: str | None
) -> None:
    peer = hook.serve(answering(GOOD))
    hook.run(submit(**spank(SUMMARY="x"), script="#!/bin/sh", environment=environment))
    (request,) = peer.requests
    assert request["coloc"].get("alloc_conf") == told


PLACE: dict[str, Any] = {
    "default_account": "physics",
    "reservation": "course",
    "req_nodes": "n[1-2]",
    "exc_nodes": "n3",
    "tres_freq": "gpu:high",
    "tres_bind": "gres/gpu:closest",
    "ntasks_per_tres": 2,
}
UNSET: dict[str, Any] = dict.fromkeys(PLACE, "") | {"ntasks_per_tres": 65534}


def test_the_request_tells_of_places_frequencies_and_tasks_per_gpu(hook: Hook) -> None:
    peer = hook.serve(answering(GOOD))
    job = spank(SUMMARY="x") | {"script": "#!/bin/sh"}
    names = {"SLURM_NTASKS_PER_GPU": "2", "SLURM_GPU_FREQ": "high"}
    hook.run(submit(**job, **PLACE, environment=names), submit(**job, **UNSET))
    told, untold = peer.requests
    assert {name: told[name] for name in PLACE} == PLACE
    assert told["env"] == ["SLURM_GPU_FREQ", "SLURM_NTASKS_PER_GPU"]
    assert not PLACE.keys() & untold.keys()


def test_the_default_account_is_read_where_it_matters_and_never_again_once_slow(hook: Hook) -> None:
    """A slurmctld that never reached slurmdbd asks it at each read: 2 s under its locks (24.11)."""
    peer = hook.serve(answering(GOOD))
    job: dict[str, Any] = spank(SUMMARY="x") | {"default_account": "physics"}
    slow: dict[str, Any] = {"slow_account_s": 3}
    results = hook.run(
        submit(**job),
        submit(**job, **slow, account="maths"),
        submit(**job, **slow),
        submit(**job, **slow),
        submit(**job),
    )
    assert [r.ms > 2000 for r in results] == [False, False, True, False, False]
    assert all("action=collocate" in r.info[0] for r in results)
    told = [r.get("default_account") for r in peer.requests]
    assert told == ["physics", None, "physics", None, None]


def test_an_unlimited_time_is_told_and_an_interactive_job_has_no_environment(hook: Hook) -> None:
    peer = hook.serve(answering(GOOD))
    hook.run(submit(**spank(POLICY="exclusive"), time_limit=4294967295))
    (request,) = peer.requests
    assert request["time_limit"] == 4294967295
    assert request["batch"] is False and request["env"] == [] and request["het"] is False
    assert request["coloc"] == {"policy": "exclusive"}


REWRITE = {
    **GOOD,
    "admin_comment": MARK,
    "message.1": "shares a GPU: 12 of 39 GiB",
    "message.2": "100 % sure\n",
    "set.tres_per_node": "gres/nvme:1,gres/shard:12",
    "set.tres_per_job": "",
    "set.cpus_per_tres": "",
    "set.mem_per_tres": "",
    "set.cpus_per_task": "4",
    "set.min_mem_per_node": "2048",
    "set.requeue": "1",
    "env.SLURM_GPUS": "",
    "env.SLURM_ABSENT": "",
}
ASKED: dict[str, Any] = {
    "tres_per_node": "gres/nvme:1",
    "tres_per_job": "gres/gpu:1",
    "cpus_per_tres": "gres/gpu:4",
    "mem_per_tres": "gres/gpu:2048",
    "script": "#!/bin/sh",
    "environment": {"SLURM_GPUS": "1", "HOME": "/x"},
}


def test_a_decision_is_applied_and_told(hook: Hook) -> None:
    hook.serve(answering(REWRITE))
    (r,) = hook.run(submit(**spank(SUMMARY="eJw="), **ASKED))
    assert (r.called, r.rc, r.error) == (True, 0, [])
    assert r.fields["tres_per_node"] == "gres/nvme:1,gres/shard:12"
    assert not {"tres_per_job", "cpus_per_tres", "mem_per_tres"} & r.fields.keys()
    assert r.fields["cpus_per_task"] == "4" and r.fields["requeue"] == "1"
    assert r.fields["min_mem_per_node"] == "2048"
    assert r.fields["admin_comment"] == REWRITE["admin_comment"]
    assert r.env == {"SLURM_GPUS": "", "HOME": "/x"}
    assert r.user == ["coloc: shares a GPU: 12 of 39 GiB", "coloc: 100 % sure "]
    (line,) = r.info
    assert "decision=0123456789ab action=collocate reason=estimated" in line


COMMENTS = {
    "": MARK,
    "site": f"site; {MARK}",
    "tab\tnewline\nü": f"tab\tnewline\nü; {MARK}",
    "s" * 979: "s" * 979 + f"; {MARK}",
    "s" * 980: f"{MARK}; " + "s" * 980,
    "s" * 300_000: f"{MARK}; " + "s" * 300_000,
}


@pytest.mark.parametrize("answered", [MARK, f"site; {MARK}"])
def test_the_site_s_comment_is_kept_whole(hook: Hook, answered: str) -> None:
    """Also one that colocd would not take, and with its mark where squeue's column shows it."""
    assert len("s" * 979 + f"; {MARK}") == 1024
    peer = hook.serve(answering({**GOOD, "admin_comment": answered}))
    job = spank(SUMMARY="x")
    results = hook.run(*(submit(**job, admin_comment=site) for site in COMMENTS))
    assert [r.fields["admin_comment"] for r in results] == list(COMMENTS.values())
    assert all((r.called, r.rc, r.user) == (True, 0, []) for r in results)
    assert all("action=collocate" in r.info[0] for r in results)
    assert len(peer.lines) == len(COMMENTS) and max(map(len, peer.lines)) < 400
    edited = [modify(rec={"admin_comment": c}, tres_per_job="gpu:2") for c in COMMENTS.values()]
    assert [r.rc for r in hook.run(*edited)] == [ACCESS_DENIED] * len(COMMENTS)


def test_an_answer_without_a_mark_leaves_the_comment_alone(hook: Hook) -> None:
    hook.serve(answering({**GOOD, "action": "asis"}))
    plain, site = hook.run(
        submit(**spank(SUMMARY="x")), submit(**spank(SUMMARY="x"), admin_comment="s" * 5000)
    )
    assert "admin_comment" not in plain.fields and site.fields["admin_comment"] == "s" * 5000


def test_the_release_s_own_spelling(hook: Hook) -> None:
    hook.release = "22.05"
    hook.serve(answering({**GOOD, "set.tres_per_node": "gres/nvme:1,gres/shard:12"}))
    job = submit(**spank(SUMMARY="x"), tres_per_node="gres:nvme:1,gres:gpu:1")
    (r,) = hook.run(job)
    assert r.fields["tres_per_node"] == "gres:nvme:1,gres:shard:12"


def test_asis_changes_nothing_but_the_comment(hook: Hook) -> None:
    hook.serve(answering({**REWRITE, "action": "asis"}))
    (r,) = hook.run(submit(**spank(SUMMARY="x"), **ASKED))
    assert r.fields["tres_per_job"] == "gres/gpu:1" and r.fields["requeue"] == "65534"
    assert r.fields["admin_comment"] == REWRITE["admin_comment"]
    assert r.env["SLURM_GPUS"] == "1" and len(r.user) == 2


@pytest.mark.parametrize("field", ["tres_per_job", "requeue", "admin_comment", "min_mem_per_node"])
def test_an_error_while_writing_restores_everything(hook: Hook, field: str) -> None:
    hook.serve(answering(REWRITE))
    (r,) = hook.run(submit(fails=[field], **spank(SUMMARY="x"), **ASKED, min_mem_per_cpu=50))
    assert (r.called, r.rc) == (True, 0)
    for name in ("tres_per_node", "tres_per_job", "cpus_per_tres", "mem_per_tres"):
        assert r.fields[name] == ASKED[name]
    assert r.fields["cpus_per_task"] == "65534" and r.fields["requeue"] == "65534"
    assert r.fields["min_mem_per_cpu"] == "50" and "min_mem_per_node" not in r.fields
    assert r.env == ASKED["environment"]
    assert len(r.user) == 1 and "could not be rewritten" in r.user[0] and r.error


def test_the_off_file_needs_no_daemon(hook: Hook) -> None:
    peer = hook.serve(answering(REWRITE))
    hook.off_file.touch()
    asked, raw = hook.run(submit(**spank(SUMMARY="x"), **ASKED), submit(tres_per_node="gres/shard"))
    assert asked.rc == 0 and asked.fields["tres_per_job"] == "gres/gpu:1"
    assert "admin_comment" not in asked.fields
    assert len(asked.user) == 1 and "switched off" in asked.user[0]
    assert raw.rc == 0 and not raw.user
    assert peer.lines == []


RAW = [
    {"tres_per_node": "gres/shard:3"},
    {"tres_per_node": "gres:shard"},
    {"tres_per_node": "gres/nvme:1,gres/shard:a100:3"},
    {"tres_per_job": "gres/shard:3"},
    {"tres_per_task": "cpu=3,gres/shard=2"},
    {"tres_per_socket": "shard:1"},
    {"tres_per_node": "gres:Shard:1"},
]
NOT_RAW = [
    {"tres_per_node": "gres/gpu:shard:1"},
    {"tres_per_node": "gres/shardlike:1"},
    {"tres_per_node": "gres/gpu:1", "features": "shard"},
]


@pytest.mark.parametrize("request_", RAW)
def test_raw_shards_are_refused_with_the_hint(hook: Hook, request_: dict[str, Any]) -> None:
    user, root, own, taken = hook.run(
        submit(**request_),
        submit(uid=0, **request_),
        submit(uid=os.geteuid(), **request_),
        submit(**request_, **spank(SUMMARY="x")),
    )
    assert user.rc == ACCESS_DENIED and "sbatch --coloc" in user.user[0]
    assert root.rc == own.rc == 0 and not root.user and not own.user
    assert taken.rc == ACCESS_DENIED and "leave shards out" in taken.user[0]


@pytest.mark.parametrize("request_", NOT_RAW)
def test_other_words_are_no_shards(hook: Hook, request_: dict[str, Any]) -> None:
    (r,) = hook.run(submit(**request_))
    assert r.rc == 0 and not r.user


def test_a_site_may_allow_raw_shards(hook: Hook) -> None:
    hook.setup["raw_shard"] = "allow"
    submitted, edited = hook.run(
        submit(tres_per_node="gres/shard:3"), modify(tres_per_node="gres/shard:3")
    )
    assert submitted.rc == edited.rc == 0


def test_wrong_settings_are_logged_and_left_out(hook: Hook) -> None:
    hook.setup.update(deadline_ms="soon", raw_shard="maybe", nonsense=1, breaker_s=-1)
    hook.serve(answering(REWRITE))
    (r,) = hook.run(submit(**spank(SUMMARY="x"), **ASKED))
    assert r.rc == 0 and "shard:12" in r.fields["tres_per_node"]


def test_an_edit_of_a_taken_job(hook: Hook) -> None:
    edits: list[tuple[dict[str, Any], bool]] = [
        ({"time_limit": 5}, True),
        ({"tres_per_node": "gres/gpu:1"}, True),
        ({"tres_per_node": "gpu:a100:1", "tres_per_job": ""}, True),
        ({"tres_per_node": "gres/gpu:2"}, False),
        ({"tres_per_node": "gres/shard:1"}, False),
        ({"tres_per_node": "gres/gpu:1,gres/shard:1"}, False),
        ({"tres_per_node": ""}, False),
        ({"tres_per_job": "gres/gpu:1"}, False),
        ({"tres_per_node": "gres/gpu:1", "tres_per_task": "gres/gpu:1"}, False),
    ]
    results = hook.run(*(modify(rec=TAKEN, **edit) for edit, _ in edits))
    assert [r.rc == 0 for r in results] == [good for _, good in edits]
    for result, (edit, _) in zip(results, edits, strict=True):
        assert result.rc in (0, ACCESS_DENIED)
        for name, value in edit.items():
            assert result.fields.get(name, "") == str(value)
    assert len(results[3].user) == 1 and "gres/gpu:1" in results[3].user[0]


def test_an_edit_of_a_taken_job_on_22_05(hook: Hook) -> None:
    """There a GPU may be whole and shared at once, so no edit is safe."""
    hook.release = "22.05"
    edited, by_root = hook.run(
        modify(rec=TAKEN, tres_per_node="gres:gpu:1"),
        modify(uid=0, rec=TAKEN, tres_per_node="gres:gpu:1"),
    )
    assert edited.rc == ACCESS_DENIED and edited.fields["tres_per_node"] == "gres:gpu:1"
    assert by_root.rc == 0


def test_an_edit_of_an_untaken_job(hook: Hook) -> None:
    observed = {"admin_comment": "coloc:1:0123456789ab:asis:observe:0"}
    to_gpus, to_shards, observed_gpus, by_root = hook.run(
        modify(tres_per_node="gres/gpu:2"),
        modify(tres_per_node="gres/shard:2"),
        modify(rec=observed, tres_per_node="gres/gpu:2"),
        modify(uid=0, rec=TAKEN, tres_per_node="gres/shard:2"),
    )
    assert to_gpus.rc == observed_gpus.rc == by_root.rc == 0
    assert to_shards.rc == ACCESS_DENIED and "sbatch --coloc" in to_shards.user[0]


def test_a_broken_job_desc_never_raises(hook: Hook) -> None:
    """Whatever the binding does, slurmctld sees no Lua error: that would fail the submission."""
    odd: dict[str, Any] = {"spank_job_env": {0: "COLOC_V=1"}, "spank_job_env_size": "many"}
    (r,) = hook.run(submit(**odd))
    assert (r.called, r.rc) == (True, 0) and "goes as submitted" in r.error[0]
