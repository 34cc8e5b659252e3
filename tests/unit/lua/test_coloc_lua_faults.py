# SPDX-License-Identifier: Apache-2.0
"""etc/coloc.lua when colocd is dead, stopped, slow, or talks rubbish; and hostile bytes."""

import base64
import os
import random
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.unit.lua.conftest import Hook, Result, spank, submit
from tests.unit.lua.peer import GOOD, Behaviour, Peer, answering, closing, dripping, flat

DEADLINE_MS = 400
# What a call may take beyond its deadline on a busy machine of two cores.
SLACK_MS = 600


def assert_whole_gpu(r: Result, reason: str) -> None:
    assert (r.called, r.rc) == (True, 0), r
    assert r.fields["tres_per_node"] == "gres/gpu:1"
    assert r.fields["admin_comment"] == f"coloc:1:000000000000:exclusive:{reason}:0"
    assert len(r.user) == 1 and r.user[0].endswith("; the job runs on a whole GPU"), r.user
    assert "\n" not in r.user[0]


def reason(r: Result) -> str:
    return r.fields["admin_comment"].split(":")[4]


BAD_ANSWERS: dict[str, bytes] = {
    "garbage": b"\x00\xff\x00garbage\n\n",
    "json": b'{"v":1,"ok":true}\n\n',
    "empty": b"\n\n",
    "no version": b"ok=1\naction=asis\n\n",
    "no ok": b"v=1\n\n",
    "version 2": flat({**GOOD, "v": "2"}),
    "no action": flat({k: v for k, v in GOOD.items() if k != "action"}),
    "unknown action": flat({**GOOD, "action": "fly"}),
    "no decision": flat({**GOOD, "decision": "x:y"}),
    "blank reason": flat({**GOOD, "reason": "a b"}),
    "twice": b"v=1\nok=1\n" + flat(GOOD),
    "bad escape": flat(GOOD)[:-1] + b"message.1=a\\tb\n\n",
    "carriage return": flat(GOOD)[:-1] + b"message.1=a\rb\n\n",
    "nul": flat(GOOD)[:-1] + b"message.1=a\0b\n\n",
    "unknown field": flat({**GOOD, "set.user_id": "0"}),
    "script": flat({**GOOD, "set.script": "#!/bin/sh"}),
    "priority": flat({**GOOD, "set.priority": "4294967295"}),
    "number": flat({**GOOD, "set.cpus_per_task": "4x"}),
    "hexadecimal": flat({**GOOD, "set.cpus_per_task": "0x10"}),
    "negative": flat({**GOOD, "set.min_mem_per_node": "-1"}),
    "huge": flat({**GOOD, "set.min_mem_per_node": "9" * 30}),
    "requeue": flat({**GOOD, "set.requeue": "2"}),
    "hostile tres": flat({**GOOD, "set.tres_per_node": "gres/gpu:1;rm"}),
    "long tres": flat({**GOOD, "set.tres_per_node": "x" * 1025}),
    "environment value": flat({**GOOD, "env.SLURM_GPUS": "2"}),
    "environment name": flat({**GOOD, "env.LD_PRELOAD": ""}),
    "comment": flat({**GOOD, "admin_comment": "a\nb"}),
    "long mark": flat({**GOOD, "admin_comment": f"coloc:1:{'a' * 300}:asis:off:0"}),
    "long": b"v=1\n" + b"message.1=" + b"x" * 70000 + b"\n\n",
    "endless": b"v=1\n" * 70000,
    "more": flat(GOOD) + b"v=1\n",
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_bad_answer_is_not_applied(hook: Hook, name: str) -> None:
    """... and costs its own job only: the next one's answer is asked for and applied."""
    hook.serve(answering(BAD_ANSWERS[name]), answering({**GOOD, "action": "asis"}))
    job = submit(**spank(SUMMARY="x"))
    r, after = hook.run(job, job)
    assert_whole_gpu(r, "bad_answer")
    assert r.fields["user_id"] == "1000"
    assert "action=asis" in after.info[0] and not after.user


def test_a_refusal_is_told_and_leaves_the_breaker_alone(hook: Hook) -> None:
    refusal = {"v": "1", "ok": "0", "code": "forbidden", "message": "not SlurmUser"}
    hook.serve(answering(refusal), answering({**GOOD, "action": "asis"}))
    first, second = hook.run(submit(**spank(SUMMARY="x")), submit(**spank(SUMMARY="x")))
    assert_whole_gpu(first, "colocd_forbidden")
    assert "not SlurmUser" in first.user[0] and "action=asis" in second.info[0]


def test_no_daemon_then_one(hook: Hook) -> None:
    hook.setup["refused_s"] = 0
    (dead,) = hook.run(submit(**spank(SUMMARY="x")))
    assert_whole_gpu(dead, "colocd_down")
    peer = hook.serve(closing)
    (cut,) = hook.run(submit(**spank(SUMMARY="x")))
    assert_whole_gpu(cut, "colocd_down")
    assert len(peer.lines) == 1


def test_a_dead_socket_file(hook: Hook) -> None:
    hook.serve(closing).close()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(hook.socket))
    (r,) = hook.run(submit(**spank(SUMMARY="x")))
    assert_whole_gpu(r, "colocd_down")


def hang(peer: Peer) -> None:
    """No answer for longer than the deadline; the thread is free again soon after."""
    peer.stop.wait(2 * DEADLINE_MS / 1000)


def test_the_breaker_costs_nothing_and_closes_again(hook: Hook) -> None:
    hook.setup.update(breaker_s=0.5, deadline_ms=DEADLINE_MS)
    peer = hook.serve(answering(b"v=1\n"), answering({**GOOD, "action": "asis"}))
    job = submit(**spank(SUMMARY="x"))
    peer._behaviours[0] = lambda _conn, _line: hang(peer)
    slow, *skipped, after = hook.run(job, job, job, {"op": "sleep", "s": 0.6}, job)
    assert_whole_gpu(slow, "colocd_slow")
    assert DEADLINE_MS - 1 <= slow.ms < DEADLINE_MS + SLACK_MS
    assert "400 ms" in slow.user[0]
    for r in skipped:
        assert_whole_gpu(r, "breaker")
        assert "400 ms" in r.user[0]
    # The two in between were no connection at all.
    assert "action=asis" in after.info[0] and len(peer.lines) == 2


def test_one_late_answer_closes_the_breaker_for_a_second_only(hook: Hook) -> None:
    hook.setup.update(breaker_s=10, deadline_ms=DEADLINE_MS)
    peer = hook.serve(answering(b""), answering(b""), answering({**GOOD, "action": "asis"}))
    peer._behaviours[0] = peer._behaviours[1] = lambda _conn, _line: hang(peer)
    job, second = submit(**spank(SUMMARY="x")), {"op": "sleep", "s": 1.05}
    results = hook.run(job, second, job, second, job, second, job)
    reasons = [reason(r) for r in results[:3]]
    assert reasons == ["colocd_slow", "colocd_slow", "breaker"]  # 1 s, then 2 s
    assert "action=asis" in results[3].info[0]


def cut(conn: socket.socket, _line: bytes) -> None:
    """Hang up within the answer."""
    conn.sendall(b"v=1\nok=1\nact")


@pytest.mark.parametrize("hang_up", [closing, cut])
def test_a_hang_up_counts_for_a_short_while_only(hook: Hook, hang_up: Behaviour) -> None:
    """refused_s each time, however many in a row, and nothing that makes a late answer dearer."""
    hook.setup.update(refused_s=0.3, breaker_s=10, deadline_ms=DEADLINE_MS)
    peer = hook.serve(*[hang_up] * 3, answering(b""), answering({**GOOD, "action": "asis"}))
    peer._behaviours[3] = lambda _conn, _line: hang(peer)
    job, pause, second = (
        submit(**spank(SUMMARY="x")),
        {"op": "sleep", "s": 0.35},
        {"op": "sleep", "s": 1.05},
    )
    results = hook.run(job, job, pause, job, pause, job, pause, job, job, second, job)
    assert [reason(r) for r in results[:6]] == [
        "colocd_down", "breaker", "colocd_down", "colocd_down", "colocd_slow", "breaker",
    ]  # fmt: skip
    assert "action=asis" in results[6].info[0]


def test_drop_by_drop(hook: Hook) -> None:
    """The deadline is for the whole answer, not for each byte of it."""
    hook.setup["deadline_ms"] = DEADLINE_MS
    peer = hook.serve(answering(b""))
    peer._behaviours[0] = dripping(flat(GOOD), 0.02, peer.stop)
    (r,) = hook.run(submit(**spank(SUMMARY="x")))
    assert_whole_gpu(r, "colocd_slow")
    assert DEADLINE_MS - 1 <= r.ms < DEADLINE_MS + SLACK_MS
    hook.setup["deadline_ms"] = 20_000  # some 100 pieces on a busy machine
    peer = hook.serve(answering(b""))
    peer._behaviours[0] = dripping(flat({**GOOD, "action": "asis"}), 0.0005, peer.stop)
    (r,) = hook.run(submit(**spank(SUMMARY="x")))
    assert "action=asis" in r.info[0]


STOPPED = """
import os, signal, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(0)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_stopped_daemon_whose_backlog_is_full(hook: Hook) -> None:
    """A connect would block for ever here: EAGAIN, then given up after 50 ms."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(hook.socket)], stdout=subprocess.PIPE, text=True
    ) as daemon:
        fillers = []
        try:
            assert daemon.stdout and daemon.stdout.readline() == "ready\n"
            while True:
                filler = socket.socket(socket.AF_UNIX)
                fillers.append(filler)
                filler.setblocking(False)
                try:
                    filler.connect(str(hook.socket))
                except BlockingIOError:
                    break
            job = submit(**spank(SUMMARY="x"))
            full, after = hook.run(job, job)
        finally:
            for filler in fillers:
                filler.close()
            os.kill(daemon.pid, signal.SIGKILL)
    assert_whole_gpu(full, "colocd_slow")
    assert "accepts no connection" in full.user[0] and full.ms < 50 + SLACK_MS
    assert_whole_gpu(after, "breaker")


def test_a_large_summary_goes_through_a_small_buffer(hook: Hook) -> None:
    """64 KiB and more: the send meets EAGAIN or a partial write and goes on."""
    peer = hook.serve(answering({**GOOD, "action": "asis"}))
    summary = base64.b64encode(random.Random(1).randbytes(49152)).decode()
    # A control character has six bytes in JSON, a line's end two.
    large: dict[str, Any] = {
        "script": "\n" * 60_000,
        "req_nodes": "\1" * 4000,
        "exc_nodes": "n" * 16_000,
    }
    job = spank(SUMMARY=summary, AUTO="1")
    (r,) = hook.run(submit(**job, **large))
    assert "action=asis" in r.info[0]
    assert len(peer.lines[0]) > 220_000
    assert peer.requests[0]["coloc"]["summary"] == summary
    (r,) = hook.run(submit(**job, **{**large, "req_nodes": "\1" * 16_000}))
    assert_whole_gpu(r, "too_large")


WHOLE: list[tuple[dict[str, Any], dict[str, str | None], str]] = [
    ({}, {"tres_per_node": "gres/gpu:1"}, "whole GPU"),
    ({"tres_per_node": "gres/nvme:1"}, {"tres_per_node": "gres/nvme:1,gres/gpu:1"}, "whole GPU"),
    ({"tres_per_task": "cpu=3"}, {"tres_per_node": "gres/gpu:1"}, "whole GPU"),
    ({"tres_per_job": "gres/gpu:a100:1"}, {"tres_per_node": None}, "whole GPU"),
    ({"tres_per_task": "gres/gpu=2"}, {"tres_per_node": None}, "whole GPUs, as submitted"),
    ({"tres_per_job": "gres/gpu:0"}, {"tres_per_node": None}, "as submitted, without a GPU"),
]


@pytest.mark.parametrize(("asked", "then", "words"), WHOLE)
def test_the_safe_side(
    hook: Hook, asked: dict[str, Any], then: dict[str, str | None], words: str
) -> None:
    (r,) = hook.run(submit(**spank(POLICY="exclusive"), **asked))
    assert r.rc == 0 and words in r.user[0]
    for name, value in then.items():
        assert r.fields.get(name) == value
    for name, value in asked.items():
        if name not in then:
            assert r.fields[name] == value


def test_the_safe_side_remembers_what_a_whole_gpu_is(hook: Hook) -> None:
    hook.release = "22.05"
    good = answering({**GOOD, "action": "asis", "exclusive_gres": "gres/shard:39"})
    hook.serve(good, closing)
    job = submit(**spank(SUMMARY="x"))
    _, after = hook.run(job, job)
    assert after.fields["tres_per_node"] == "gres:shard:39"


def test_the_site_s_comment_is_kept(hook: Hook) -> None:
    job = spank(SUMMARY="x")
    short, full, huge = hook.run(
        *(submit(**job, admin_comment=c) for c in ("site", "s" * 1020, "s" * 300_000))
    )
    mark = "coloc:1:000000000000:exclusive:"
    assert short.fields["admin_comment"].startswith(f"site; {mark}")
    for r, length in ((full, 1020), (huge, 300_000)):
        assert r.fields["admin_comment"].startswith(mark)
        assert r.fields["admin_comment"].endswith("; " + "s" * length)
        assert r.rc == 0 and r.fields["tres_per_node"] == "gres/gpu:1"


def test_a_plugin_of_another_version(hook: Hook) -> None:
    (r,) = hook.run(submit(**spank(v="2", SUMMARY="x")))
    assert_whole_gpu(r, "plugin_version")


def test_every_byte_survives_the_way_to_json(hook: Hook) -> None:
    """All bytes but NUL can be in a user's strings; JSON must stay one valid line."""
    peer = hook.serve(answering({**GOOD, "action": "asis"}))
    rng = random.Random(7)
    texts = [
        bytes(range(1, 256)),
        "ä€😀\u2028".encode(),
        b"\xed\xa0\x80\xc0\xaf\xe0\x80\x80\xf4\x90\x80\x80",
    ]
    texts += [bytes(rng.randrange(1, 256) for _ in range(rng.randrange(60))) for _ in range(60)]
    texts += [b'"},"op":"reload","x":{"', b"\\", b'\\"', b"a\nb"]
    results = hook.run(*(submit(**spank(SUMMARY=t), partition=b"p" + t) for t in texts))
    assert all("action=asis" in r.info[0] for r in results)
    assert len(peer.lines) == len(texts)
    for text, line, request in zip(texts, peer.lines, peer.requests, strict=True):
        assert line.count(b"\n") == 1 and line.endswith(b"\n")
        assert request["op"] == "submit" and request["uid"] == 1000
        assert request["partition"] == "p" + as_told(text)


def as_told(text: bytes) -> str:
    """In a text that is no UTF-8 each byte beyond ASCII is U+FFFD."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 128 else "\ufffd" for byte in text)


def test_random_answers_never_raise(hook: Hook) -> None:
    """Mutations of a good answer: applied whole, or a whole GPU; nothing in between."""
    rng = random.Random(11)
    good = flat({**GOOD, "set.tres_per_node": "gres/shard:3", "message.1": "a\\b"})
    answers = []
    for _ in range(150):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data) - 2)] = rng.choice(b"\n=\\:.,sgx0\xff\r ")
        answers.append(bytes(data) + b"\n\n")
    hook.setup.update(breaker_s=0, refused_s=0)
    hook.serve(*(answering(a) for a in answers))
    results = hook.run(*(submit(**spank(SUMMARY="x")) for _ in answers))
    for r in results:
        assert (r.called, r.rc) == (True, 0)
        gres = r.fields.get("tres_per_node")
        whole = "exclusive:" in r.fields.get("admin_comment", "")
        assert (gres == "gres/gpu:1") if whole else gres is None or gres != "gres/gpu:1"


def test_without_lua_posix(hook: Hook) -> None:
    """Found at the first --coloc job; jobs without --coloc never need it."""
    blocked = hook.folder / "posix"
    blocked.mkdir()
    (blocked / "poll.lua").write_text('error("not here")', encoding="ascii")
    path = f"{hook.folder}/?.lua;;"
    env = {**os.environ, "LUA_PATH": path, "LUA_PATH_5_3": path, "LUA_PATH_5_4": path}
    job = submit(**spank(SUMMARY="x"))
    plain, first, second = hook.run(submit(), job, job, env=env)
    assert plain.rc == 0 and not plain.error
    for r in (first, second):
        assert_whole_gpu(r, "no_lua_posix")
        assert "lua-posix is not installed" in r.user[0]


def test_without_colocd_a_component_without_a_gpu_stays_without(hook: Hook) -> None:
    """sbatch gives --coloc to every component of a heterogeneous job; one may be for CPUs alone, in
    a partition without GPUs."""
    (r,) = hook.run(submit(**spank(SUMMARY="x"), het_job_offset=1))
    assert "tres_per_node" not in r.fields, r.fields
    assert reason(r) and r.fields["admin_comment"].split(":")[3] == "asis"
    assert r.user[0].endswith("; the job goes as submitted")
