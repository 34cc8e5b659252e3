# SPDX-License-Identifier: Apache-2.0
"""colocd's two processes, in the default configuration: what users send reaches neither the log nor
the process that slurmctld waits for."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_coloc.flow.client.request import call_socket
from tests.harness.other_user import as_user
from tests.unit.front.conftest import ADA, BEN, EVE, Colocd, talk, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


def test_a_user_cannot_fill_the_log(shared: Colocd) -> None:
    """S3: an id that no database column holds was a traceback in the log for each request."""
    before = shared.log.stat().st_size
    hostile = [
        {"op": "explain", "job_id": 2**70},
        {"op": "usage", "job_id": 2**64},
        {"op": "jobs", "user": 2**80},
        {"op": "explain", "job_id": -1},
        {"op": ["jobs"]},
        {"op": {"a": 1}, "job_id": 2**70},
    ]
    told = as_user(ADA, lambda: talk(shared.socket, *hostile * 3))
    written = shared.log.read_bytes()[before:]
    assert b"Traceback" not in written
    assert len(written) < 1000, written
    assert isinstance(told, list), told
    assert {one["error"]["code"] for one in told} == {"bad-request"}


def test_a_user_asks_so_often_and_others_are_answered(shared: Colocd) -> None:
    """A flood of one user's questions is told so politely; another user does not notice."""
    questions = [{"op": "history"}] * 24
    told = as_user(EVE, lambda: talk(shared.socket, *questions))
    codes = [one.get("error", {}).get("code") for one in told]
    assert codes[:20] == [None] * 20
    assert "busy" in codes
    assert "more than 5 requests a second" in told[codes.index("busy")]["error"]["message"]
    assert as_user(BEN, lambda: call_socket(shared.socket, "history"))["runs"] == []


def test_a_report_of_many_is_of_ones_own_runs(shared: Colocd) -> None:
    """Root gets everybody's; a user never, whatever he asks for."""
    asked = {"since_s": 0, "uid": 0, "user": 0, "all": True}
    told = as_user(ADA, lambda: call_socket(shared.socket, "past", **asked))
    assert (told["all"], told["rows"]) == (False, [])
    assert as_user(ADA, lambda: call_socket(shared.socket, "mine", **asked))["jobs"] == []
    assert call_socket(shared.socket, "past")["all"] is True
    wrong = [{"op": "past", "since_s": one} for one in ("x", -1, True)]
    told = as_user(BEN, lambda: talk(shared.socket, *wrong))
    assert [one["error"]["code"] for one in told] == ["bad-request"] * 3
    # Thousands of runs an answer: nobody asks for them again and again.
    told = as_user(EVE, lambda: talk(shared.socket, *[{"op": "past"}] * 6))
    codes = [one.get("error", {}).get("code") for one in told]
    assert codes[:4] == [None] * 4
    assert "more than one request in 5 s" in told[codes.index("busy")]["error"]["message"]


def test_nobody_reaches_the_sockets_of_the_hook(colocd: Colocd) -> None:
    assert stat.S_IMODE(colocd.hook.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(colocd.hook.stat().st_mode) == 0o600
    found = as_user(ADA, lambda: talk(colocd.hook, {"op": "ping"}))
    assert found == {"error": "PermissionError"}
    colocd.hook.parent.chmod(0o777)
    colocd.hook.chmod(0o666)
    told = as_user(ADA, lambda: call_socket(colocd.hook, "ping"))
    assert told == {"error": "not-allowed"}, "the peer is looked at as well"
    assert talk(colocd.hook, {"op": "ping"}) == [{"v": 1, "ok": True, "pid": colocd.process.pid}]


def test_an_old_hook_is_answered_at_the_public_socket(shared: Colocd) -> None:
    """A job_submit.lua from before still names it; a user may not do that."""
    message = {"op": "submit", "uid": 1000, "partition": "main", "coloc": {}}
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(str(shared.socket))
        sock.sendall(json.dumps({"v": 1, "flat": True, **message}).encode() + b"\n")
        lines = sock.makefile("rb")
        assert lines.readline() == b"v=1\n"
    assert as_user(ADA, lambda: call_socket(shared.socket, **message)) == {"error": "not-allowed"}


def test_a_front_that_dies_is_started_again(colocd: Colocd) -> None:
    first = colocd.front()
    assert first != colocd.process.pid
    os.kill(first, signal.SIGKILL)
    assert talk(colocd.hook, {"op": "ping"})[0]["ok"], "slurmctld is answered meanwhile"
    until(lambda: colocd.serves() and colocd.front() != first, "another front")


def test_the_front_ends_with_colocd(colocd: Colocd) -> None:
    front = colocd.front()
    colocd.process.kill()
    colocd.process.wait()

    def gone() -> bool:
        try:
            state = Path(f"/proc/{front}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state == "Z"

    until(gone, "the front of a killed colocd has ended")
    colocd.start()
    assert colocd.serves(), "the sockets of the killed one are in nobody's way"
    front = colocd.front()
    os.kill(front, signal.SIGTERM)  # systemd sends it to both
    colocd.process.terminate()
    colocd.process.wait(20)
    until(gone, "the front has ended")
    assert not colocd.socket.exists() and not colocd.hook.exists()


@pytest.mark.parametrize("kind", ["link", "another's"])
def test_a_folder_of_the_hook_that_is_not_ours_is_refused(tmp_path: Path, kind: str) -> None:
    colocd = Colocd(tmp_path)
    if kind == "link":
        (tmp_path / "there").mkdir()
        colocd.hook.parent.symlink_to(tmp_path / "there")
    else:
        colocd.hook.parent.mkdir()
        os.chown(colocd.hook.parent, ADA, ADA)
    colocd.start()
    assert colocd.process.wait(20) == 3
    assert str(colocd.hook.parent) in colocd.log.read_text()
    assert not (tmp_path / "there" / "colocd.sock").exists()


def test_a_second_colocd_is_refused(shared: Colocd) -> None:
    env = {**os.environ, "COLOC_CONFIG": str(shared.config)}
    second = [sys.executable, "-m", "slurm_coloc", "serve"]
    done = subprocess.run(second, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "another colocd is listening" in done.stderr
    assert shared.serves(), "the first one goes on"
