# SPDX-License-Identifier: Apache-2.0
"""What a user sends costs slurmctld no more than an honest job does: every length is checked before
any work. Work is counted (harness.lua), never timed."""

import base64
import random
from typing import Any

import pytest

from tests.unit.lua.conftest import Hook, Lua, Result, modify, spank, submit
from tests.unit.lua.peer import GOOD, answering

ACCESS_DENIED = 2002
MARK = "coloc:1:0123456789ab:collocate:estimated:12"
HUGE = 30_000_000
REQUEST_MAX = 262_144  # bytes of one request, as colocd reads it


def rep(text: bytes, times: int) -> Lua:
    """This text, so many times, made by Lua: a scenario of 30 MB would have 120 MB of source."""
    escaped = "".join(f"\\{byte:03d}" for byte in text)
    return Lua(f'("{escaped}"):rep({times})')


def entries(*texts: str | Lua) -> dict[str, Any]:
    """spank_job_env as it stands, beside COLOC_V, COLOC_KIND and a summary."""
    given: list[str | Lua] = ["COLOC_V=1", "COLOC_KIND=batch", "COLOC_SUMMARY=eJw=", *texts]
    return {"spank_job_env": dict(enumerate(given)), "spank_job_env_size": len(given)}


def option(name: str, value: Lua) -> Lua:
    return Lua(f'"COLOC_{name}=" .. {value}')


def many(text: str, number: int) -> dict[str, Any]:
    """That many entries of spank_job_env; # in the text becomes the entry's number."""
    make = (
        f"(function() local t = {{[0]='COLOC_V=1'}} for i = 1, {number - 1} do "
        f"t[i] = ('{text}'):gsub('#', tostring(i)) end return t end)()"
    )
    return {"spank_job_env": Lua(make), "spank_job_env_size": number}


OPTIONS = {
    "BATCH_SIZE": "32", "SEQ_LEN": "512", "OPTIMIZER": "adamw-for-loop", "PRECISION": "bf16",
    "POLICY": "collocate", "SLOT": "3600", "MAX_SLOWDOWN": "1.25",
}  # fmt: skip
SUMMARY = base64.b64encode(random.Random(1).randbytes(49_152)).decode()
BATCH: dict[str, Any] = {
    "script": "#!/bin/sh\n# für dich\npython3 train.py\n" + "echo so it goes\n" * 4000,
    "argc": 3,
    "argv": {0: "/home/u/job.sh", 1: "--lr", 2: "0.1"},
    "environment": {"SLURM_GPUS": "1", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
}
FIELDS: dict[str, Any] = {
    "account": "physics", "partition": "main", "qos": "normal", "features": "ib",
    "tres_per_node": "gres/gpu:1", "tres_bind": "gres/gpu:closest", "req_nodes": "n[1-9]",
    "array_inx": "1-100%4", "admin_comment": "the site's own",
}  # fmt: skip


def honest() -> dict[str, Any]:
    """A large honest job: all options, a summary and a script as long as they may be."""
    return submit(**spank(SUMMARY=SUMMARY, AUTO="1", KIND="batch", **OPTIONS), **BATCH, **FIELDS)


def work(hook: Hook, *steps: dict[str, Any]) -> tuple[Result, list[Result], list[bytes]]:
    """What an honest job costs, what these cost, and what reached colocd of these."""
    hook.measure = True
    hook.setup["deadline_ms"] = 5000
    peer = hook.serve(answering({**GOOD, "action": "asis"}))
    first, *others = hook.run(honest(), *steps)
    assert "action=asis" in first.info[0] and not first.user
    return first, others, peer.lines[1:]


def assert_bounded(fair: Result, found: Result) -> None:
    assert (found.called, found.error) == (True, [])
    assert found.work["instructions"] <= 2 * fair.work["instructions"], (found.work, fair.work)
    assert found.work["kib"] <= 2 * fair.work["kib"], (found.work, fair.work)
    assert found.work["longest"] <= REQUEST_MAX


GARBAGE = (b"\xff", b"x", b"\x01", b'"', b"\xe4\xf6", b"\xc3\xa4\xff")
IGNORED = ["SUMMARY", *OPTIONS, "KIND", "AUTO"]


@pytest.mark.parametrize("name", IGNORED)
def test_a_huge_option_counts_as_not_given(hook: Hook, name: str) -> None:
    most = 65536 if name == "SUMMARY" else 64
    steps = [submit(**entries(option(name, rep(b"\xff", n)))) for n in (HUGE, most + 1)]
    fair, results, lines = work(hook, *steps, submit(**entries(option(name, rep(b"y", most)))))
    for found in results[:2]:
        assert_bounded(fair, found)
        assert found.user == [f"coloc: COLOC_{name} is longer than {most} bytes: ignored"]
        assert "action=asis" in found.info[0]
    assert results[2].user == [], "one that is as long as it may be goes along"
    assert [len(line) < 1000 for line in lines[:2]] == [True, True]
    assert b"y" * most in lines[2]


FORMS = {"SUMMARY": "base64", "TICKET": "ticket", "TEXT_SHA256": "hash"}


@pytest.mark.parametrize("name", ["TICKET", "TEXT_SHA256"])
def test_a_huge_ticket_counts_as_not_given(hook: Hook, name: str) -> None:
    steps = [submit(**entries(option(name, rep(g, n // len(g))))) for g in GARBAGE for n in SIZES]
    fair, results, lines = work(hook, *steps)
    for number, found in enumerate(results):
        assert_bounded(fair, found)
        said = "is longer than 64 bytes" if number % 2 == 0 else f"is no {FORMS[name]}"
        assert found.user == [f"coloc: COLOC_{name} {said}: ignored"]
        assert "action=asis" in found.info[0]
    assert all(len(line) < 1000 and b"ticket" not in line for line in lines)


SIZES = (HUGE, 60)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TICKET", "0" * 31),
        ("TICKET", "0" * 33),
        ("TICKET", "F" * 32),
        ("TICKET", "0" * 31 + "%"),
        ("TEXT_SHA256", "0" * 63),
        ("TEXT_SHA256", "0" * 63 + "\n"),
        ("SUMMARY", "eJw=%"),
    ],
)
def test_what_is_of_another_form_is_not_of_our_plugin(hook: Hook, name: str, value: str) -> None:
    peer = hook.serve(answering(GOOD))
    (r,) = hook.run(submit(**spank(**{"KIND": "batch", name: value})))
    assert peer.requests[0]["coloc"] == {"kind": "batch"}
    assert r.user == [f"coloc: COLOC_{name} is no {FORMS[name]}: ignored"]


def test_ticket_and_hash_go_along(hook: Hook) -> None:
    peer = hook.serve(answering(GOOD))
    ticket, text = "0123456789abcdef" * 2, "fedcba9876543210" * 4
    (r,) = hook.run(submit(**spank(TICKET=ticket, TEXT_SHA256=text)))
    assert not r.user
    assert peer.requests[0]["coloc"] == {"ticket": ticket, "text_sha256": text}


def test_an_oversized_summary_leaves_colocd_without_one(hook: Hook) -> None:
    """colocd then answers as to any job without a summary, by its own policy."""
    peer = hook.serve(answering(GOOD))
    given = [Lua('"COLOC_SUMMARY=" .. ("x"):rep(65537)'), "COLOC_V=1", "COLOC_KIND=batch"]
    (r,) = hook.run(submit(spank_job_env=dict(enumerate(given)), spank_job_env_size=3))
    assert peer.requests[0]["coloc"] == {"kind": "batch"}
    assert r.user == ["coloc: COLOC_SUMMARY is longer than 65536 bytes: ignored"]


def test_six_options_as_long_as_linux_lets_them_be(hook: Hook) -> None:
    """By sbatch's own options: 120 KB each."""
    names = list(OPTIONS)[:6]
    steps = [submit(**entries(*(option(n, rep(g, 120_000)) for n in names))) for g in GARBAGE]
    fair, results, lines = work(hook, *steps)
    for found in results:
        assert_bounded(fair, found)
        assert [line.split()[1] for line in found.user] == [f"COLOC_{name}" for name in names]
    assert max(map(len, lines)) < 1000


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_is_just_within_the_bounds(hook: Hook, garbage: bytes) -> None:
    """Every string as long as it may be, and nothing but what is costly to write as JSON."""

    def fill(size: int) -> Lua:
        return rep(garbage, size // len(garbage))

    job = entries(*(option(name, fill(64)) for name in OPTIONS), option("SUMMARY", fill(65536)))
    fields = {name: fill(1024) for name in FIELDS if name != "admin_comment"}
    del fields["tres_per_node"]
    fields |= dict.fromkeys(("exc_nodes", "req_nodes", "array_inx"), fill(16384))
    script = {"script": fill(60_000), "argc": 2, "argv": {0: "j.sh", 1: fill(5000)}}
    auto = entries("COLOC_AUTO=1", option("SUMMARY", fill(65536)))
    fair, results, lines = work(hook, submit(**job, **fields), submit(**auto, **script))
    for found in results:
        assert_bounded(fair, found)
        assert found.info and ("action=asis" in found.info[0] or "too_large" in found.info[0])
    assert all(len(line) <= REQUEST_MAX for line in lines)


@pytest.mark.parametrize(
    "text", ["X#=1", "COLOC_X#=1", "COLOC_OPTIMIZER=sgd", f"COLOC_SLOT=#{'9' * 60}"]
)
def test_crowds_of_entries(hook: Hook, text: str) -> None:
    """Those of other SPANK plugins are honest; thousands are not looked at, --coloc or not."""
    crowd = submit(**many(text, 100_000), tres_per_node="gres/gpu:1")
    fair, (found, most), lines = work(hook, crowd, submit(**many(text, 256)))
    for one in (found, most):
        assert_bounded(fair, one)
    assert found.rc == 0 and found.fields["tres_per_node"] == "gres/gpu:1"
    assert found.user == [
        "coloc: SPANK plugins sent more than 256 variables: --coloc is not looked at; "
        "the job goes as submitted"
    ]
    assert found.work["read"] < 1000, "the binding copies all of them where the table is read"
    assert "decision=" in most.info[0] and len(lines) == 1


STRINGS = {
    "account": 4096, "partition": 4096, "qos": 4096, "features": 4096, "reservation": 4096,
    "req_nodes": 16384, "exc_nodes": 16384, "tres_freq": 4096, "tres_bind": 4096,
    "cpus_per_tres": 4096, "mem_per_tres": 4096, "array_inx": 16384, "admin_comment": 524288,
}  # fmt: skip


@pytest.mark.parametrize("name", STRINGS)
def test_a_huge_field_costs_the_job_a_whole_gpu_and_nobody_else(hook: Hook, name: str) -> None:
    most = STRINGS[name]
    asked = entries()
    long = submit(**asked, **{name: rep(b"\xff", HUGE)})
    over = submit(**asked, **{name: rep(b"z", most + 1)})
    within = submit(**asked, **{name: rep(b"z", most)})
    fair, (huge, above, below), lines = work(hook, long, over, within)
    for found in (huge, above):
        assert_bounded(fair, found)
        assert found.fields["tres_per_node"] == "gres/gpu:1"
        assert found.user == [
            f"coloc: {name} is longer than {most} bytes; the job runs on a whole GPU"
        ]
    assert huge.long == {name: HUGE} and huge.work["read"] < 3 * HUGE, "left as it was"
    assert "action=asis" in below.info[0] and len(lines) == 1


def test_a_comment_beyond_all_measure_stays_and_has_no_mark(hook: Hook) -> None:
    huge = submit(**entries(), admin_comment=rep(b"s", HUGE))
    fair, (down, edited), _ = work(
        hook, huge, modify(rec={"admin_comment": rep(b"coloc:1:", 4_000_000)}, tres_per_job="gpu:2")
    )
    assert_bounded(fair, down)
    assert_bounded(fair, edited)
    assert down.long == {"admin_comment": HUGE} and edited.rc == 0


def test_the_site_s_comment_of_300_kb_still_has_its_mark(hook: Hook) -> None:
    hook.measure = True
    hook.serve(answering({**GOOD, "admin_comment": MARK}))
    (r,) = hook.run(submit(**entries(), admin_comment=rep(b"s", 300_000)))
    assert r.fields["admin_comment"] == f"{MARK}; " + "s" * 300_000
    assert r.work["longest"] <= 1024


TRES = ["tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket"]
LONG_TRES = [rep(b"gres/shard:1,", 1_000_000), rep(b"\xff", 10_000_000), rep(b"gres/gpu:1,", 94)]
CROWDED = [rep(b"a,", 512), rep(b"gres/shard:1,", 70)]


def edits(text: Lua) -> list[dict[str, Any]]:
    taken = {"admin_comment": MARK}
    return [
        modify(tres_per_node=text),
        modify(rec=taken, tres_per_node=text),
        modify(rec={**taken, "tres_per_task": text}, tres_per_task="gres/gpu:1"),
    ]


@pytest.mark.parametrize("field", TRES)
def test_a_tres_string_beyond_slurm_s_own_limit(hook: Hook, field: str) -> None:
    """slurmctld takes 1024 characters; shards must not hide behind them."""
    hook.setup.update(steered="a100", whole_type="a100")
    steps = [submit(**{field: text}) for text in LONG_TRES]
    steps += [submit(**entries(), **{field: text}) for text in LONG_TRES]
    fair, results, lines = work(hook, *steps, submit(uid=0, **{field: LONG_TRES[0]}))
    for found in results:
        assert_bounded(fair, found)
        assert f"coloc: {field} is longer than 1024 bytes" in found.user[0]
    assert [r.rc for r in results] == [ACCESS_DENIED] * 6 + [0] and not lines
    assert results[0].work["read"] < 14_000_000, "read once"
    assert results[-1].long == {field: 13_000_000}


@pytest.mark.parametrize("field", TRES)
def test_a_tres_string_of_many_items(hook: Hook, field: str) -> None:
    hook.setup.update(steered="a100", whole_type="a100")
    fair, results, lines = work(hook, *(submit(**{field: text}) for text in CROWDED))
    for found in results:
        assert_bounded(fair, found)
        assert found.rc == ACCESS_DENIED
        assert f"coloc: {field} names more than 64 resources" in found.user[0]
    assert not lines


def test_an_edit_to_a_long_tres_string(hook: Hook) -> None:
    steps = [step for text in (*LONG_TRES, *CROWDED) for step in edits(text)]
    fair, results, _ = work(hook, *steps)
    for found in results:
        assert_bounded(fair, found)
    assert [r.rc for r in results if r.fields or r.long] == [ACCESS_DENIED] * len(steps)


def test_a_site_that_allows_shards_lets_slurm_judge(hook: Hook) -> None:
    hook.setup["raw_shard"] = "allow"
    fair, results, _ = work(hook, *(submit(tres_per_node=text) for text in LONG_TRES))
    for found in results:
        assert_bounded(fair, found)
        assert found.rc == 0 and "the job goes as submitted" in found.user[0]


SCRIPTS: dict[str, dict[str, Any]] = {
    "script": {"script": rep(b"\xff", HUGE)},
    "one argument": {"script": "x", "argc": 2, "argv": {0: "j.sh", 1: rep(b"\xff", HUGE)}},
    "arguments": {
        "script": "x",
        "argc": 100_000,
        "argv": Lua(
            "(function() local t = {} for i = 0, 99999 do t[i] = ('x'):rep(300) end return t end)()"
        ),
    },
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("auto", [True, False])
def test_huge_scripts_and_arguments(hook: Hook, name: str, auto: bool) -> None:
    asked = entries("COLOC_AUTO=1") if auto else entries()
    fair, (found,), (line,) = work(hook, submit(**asked, **SCRIPTS[name]))
    assert_bounded(fair, found)
    assert "action=asis" in found.info[0] and b'"script"' not in line and len(line) < 1000
    assert found.work["read"] < HUGE + 1000, "what is large is copied once"
    if name == "arguments":
        assert found.work["read"] < 1000, "argc is enough"


def test_many_small_arguments(hook: Hook) -> None:
    """4096, as colocd takes them, are passed on; one more and the script is unknown."""

    def job(number: int) -> dict[str, Any]:
        make = f"(function() local t = {{}} for i = 0, {number} do t[i] = 'a' end return t end)()"
        return submit(**entries("COLOC_AUTO=1"), script="x", argc=number + 1, argv=Lua(make))

    peer = hook.serve(answering({**GOOD, "action": "asis"}))
    hook.run(job(4096), job(4097))
    most, over = (one["coloc"] for one in peer.requests)
    assert most["arguments"] == ["a"] * 4096 and "arguments" not in over


def test_arguments_stay_apart(hook: Hook) -> None:
    peer = hook.serve(answering({**GOOD, "action": "asis"}))
    given = ["", "\\u0000", 'a","b', "ü", "\x01", "\\"]
    argv = dict(enumerate(["j.sh", *given]))
    hook.run(submit(**entries("COLOC_AUTO=1"), script="x", argc=len(argv), argv=argv))
    assert peer.requests[0]["coloc"]["arguments"] == given


NAMES = {"SLURM_GPUS": 4096, "SLURM_TRES_PER_TASK": 4096}


@pytest.mark.parametrize("name", NAMES)
def test_a_huge_value_of_the_environment(hook: Hook, name: str) -> None:
    job: dict[str, Any] = {"script": "x", "environment": {name: rep(b"gpu:a100,", 4_000_000)}}
    hook.setup["steered"] = "a100"
    asked = {"tres_per_node": "gres/gpu:a100:1"}
    fair, (found, plain), lines = work(hook, submit(**entries(), **job), submit(**asked, **job))
    for one in (found, plain):
        assert_bounded(fair, one)
    assert found.user == [f"coloc: {name} is longer than 4096 bytes; the job runs on a whole GPU"]
    assert plain.rc == 0 and plain.fields["tres_per_node"] == "gres/gpu:1" and not lines


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_huge_options_of_the_allocator(hook: Hook, name: str) -> None:
    job: dict[str, Any] = {"script": "x", "environment": {name: rep(b"\xff", HUGE)}}
    fair, (found,), (line,) = work(hook, submit(**entries(), **job))
    assert_bounded(fair, found)
    assert found.user == [f"coloc: {name} is longer than 512 bytes: ignored"] and len(line) < 1000


def test_an_extra_of_the_user_s_own_is_left_alone(hook: Hook) -> None:
    pin = {**GOOD, "set.extra": "smact<60&(coloc1=1)"}
    fair, _, _ = work(hook)
    hook.serve(answering(pin))
    (r,) = hook.run(submit(**entries(), extra=rep(b"e", HUGE)))
    assert_bounded(fair, r)
    assert r.long == {"extra": HUGE} and r.work["read"] <= HUGE + 1000


def test_text_that_is_no_utf_8_keeps_its_ascii(hook: Hook) -> None:
    texts = {
        b"gr\xfc\xdfe": "gr\ufffd\ufffde",
        "grüße 漢字 😀".encode(): "grüße 漢字 😀",
        b"\xed\xa0\x80": "\ufffd" * 3,
        b"\xc3x\xa4": "\ufffdx\ufffd",
        b"\xf4\x90\x80\x80": "\ufffd" * 4,
        b"\xe0\x80\x80\xc0\xaf": "\ufffd" * 5,
    }
    peer = hook.serve(answering({**GOOD, "action": "asis"}))
    hook.run(*(submit(**entries(), partition=text) for text in texts))
    assert [one["partition"] for one in peer.requests] == list(texts.values())
