# SPDX-License-Identifier: Apache-2.0
"""On a real Slurm: what a user's names, files and messages can change outside of their own job.

Nothing. The list of threats, and where each is tested, is docs/threats.md.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, ask, desk, shards, until

#: what a user may say to colocd's socket, word by word
SPEAK = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as peer:
    peer.settimeout(10)
    peer.connect(sys.argv[1])
    peer.sendall(sys.argv[2].encode() + b"\\n")
    print(peer.makefile("rb").readline().decode())
"""


def said(lab: Lab, user: str, text: str) -> dict[str, Any]:
    """The answer of colocd to a user's line."""
    sock = str(lab.dir / "coloc" / "colocd.sock")
    done = lab.run([sys.executable, "-c", SPEAK, sock, text], user=user, check=False)
    if done.returncode or not done.stdout.strip():
        return {"ok": False, "error": {"code": "no-answer", "message": done.stderr[-200:]}}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def jobs_dir(lab: Lab) -> Path:
    return lab.dir / "nodes" / "n1" / "jobs"


@pytest.fixture
def running(lab: Lab) -> tuple[Desk, int]:
    """A job of the first user that trains."""
    me = desk(lab, 231)
    job_id = me.submit(
        "--mem=50", "--no-requeue", wrap=me.train(memory_mib=3000, smact=0.1, work_s=600)
    )
    lab.wait(job_id, "RUNNING")
    until(lambda: "step " in lab.output(job_id), 40, "it trains")
    return me, job_id


def test_forged_messages_of_a_user(lab: Lab, running: tuple[Desk, int]) -> None:
    me, job_id = running
    before = me.explain(job_id)["runs"]
    for user in lab.users[:2]:  # the owner, and another
        for op in ("report", "launch", "beat", "submit", "reload"):
            forged = {
                "v": 1,
                "op": op,
                "job_id": job_id,
                "restart": 0,
                "node": "n1",
                "gpus": [],
                "exit_code": 1,
                "peak_mib": 2**63,
                "evidence": {"oom": True, "kind": "torch", "line": "CUDA out of memory"},
                "used": {"v": 1, "job_id": job_id, "restart": 0},
            }
            answer = said(lab, user, json.dumps(forged))
            assert answer["ok"] is False
            assert answer["error"]["code"] in ("not-allowed", "no-answer"), (op, answer)
    after = me.explain(job_id)["runs"]
    assert before == after
    assert lab.job(job_id)["JobState"] == "RUNNING"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        '{"v": 1, "op": "explain", "job_id": 1e999}',
        '{"v": 1, "op": "explain", "job_id": "1; DROP TABLE runs"}',
        '{"v": 1, "op": {"$gt": ""}}',
        '{"v": 1, "op": "\\u0000"}',
        "\\x00\\xff",
        "%s%n",
    ],
)
def test_colocd_outlives_a_users_words(lab: Lab, text: str) -> None:
    answer = said(lab, lab.users[0], text)
    assert answer["ok"] is False
    assert ask(lab, op="ping")["ok"]


def test_absurd_figures_of_a_forged_agent(lab: Lab, running: tuple[Desk, int]) -> None:
    """Root's on a node may report; what it says is bounded, and nothing more."""
    _, job_id = running
    absurd: list[dict[str, Any]] = [
        {"peak_mib": 2**63},
        {"peak_mib": -1},
        {"ended_s": -5},
        {"exit_code": 2**70},
        {"node": "../../etc/passwd"},
        {"gpu_uuids": ["\x1b]0;owned\x07"]},
        {"notes": ["x" * 100_000]},
    ]
    for wrong in absurd:
        report = {"job_id": job_id, "restart": 0, "node": "n1", "exit_code": 1, **wrong}
        answer = ask(lab, op="report", **report)
        assert answer["ok"] is False
        assert answer["error"]["code"] == "bad-request", answer
    assert ask(lab, op="ping")["ok"]
    assert lab.job(job_id)["JobState"] == "RUNNING"


def test_a_user_cannot_plant_a_thing(lab: Lab, running: tuple[Desk, int]) -> None:
    _, job_id = running
    jobs = jobs_dir(lab)
    mps = next(jobs.glob("mps/*/daemon.json")).parent
    places = [
        jobs / f"{job_id}.share",
        jobs / f"{job_id}.fence",
        jobs / f"{job_id + 1}.json",
        jobs / "use" / "1.0.json",
        mps / "daemon.json",
        mps / "jobs" / "1.0.0",
        mps / "lock",
        mps.parent / ".old" / "planted",
        lab.dir / "coloc" / "coloc.db",
        lab.dir / "coloc" / "off",
    ]
    for user in lab.users[:2]:
        for place in places:
            before = place.read_bytes() if place.is_file() else None
            script = f'ln -sf /etc/passwd "{place}"; echo forged > "{place}"; rm -f "{place}"'
            lab.run(["/bin/sh", "-c", script], user=user, check=False)
            assert not place.is_symlink()
            assert (place.read_bytes() if place.is_file() else None) == before, (user, place)
    # The pipe folder is the owner's own; another user's hands do not reach into it.
    pipes = list(mps.glob("[0-9]*/pipe"))
    assert len(pipes) == 1
    lab.run(["/bin/sh", "-c", f"rm -rf {pipes[0]}/* {pipes[0]}"], user=lab.users[1], check=False)
    assert (pipes[0] / "control").is_socket()


def test_a_user_cannot_hold_the_hooks_lock(lab: Lab, running: tuple[Desk, int]) -> None:
    """flock needs no more than to read: whoever holds it keeps MPS from everybody on that GPU."""
    locks = list(jobs_dir(lab).glob("mps/*/lock"))
    assert locks
    for user in lab.users[:2]:
        for lock in locks:
            done = lab.run(["flock", "-n", str(lock), "true"], user=user, check=False)
            assert "Permission denied" in done.stderr, done


def test_a_user_reads_nothing_of_others_jobs(lab: Lab, running: tuple[Desk, int]) -> None:
    """Its name, the path of its log, what it uses: what PrivateData hides stands on the node."""
    _, job_id = running
    jobs = jobs_dir(lab)
    use = jobs / "use" / f"{job_id}.0.json"
    until(use.exists, 30, "the agent has written its record")
    files = [*jobs.glob(f"{job_id}.*"), use, *jobs.glob("mps/*/jobs/*"), *jobs.glob("mps/*/*.json")]
    assert len(files) >= 6
    for file in files:
        done = lab.run(["cat", str(file)], user=lab.users[1], check=False)
        assert "Permission denied" in done.stderr, file
    for folder in (jobs, jobs / "use", *jobs.glob("mps/*/jobs")):
        done = lab.run(["ls", str(folder)], user=lab.users[1], check=False)
        assert "Permission denied" in done.stderr, folder


@pytest.mark.parametrize(
    "name",
    ["../../../../tmp/coloc-owned", "%s%n%x", "$(touch /tmp/coloc-owned)", "a b;c'd\"e", "-rf"],
)
def test_a_jobs_name_and_its_log_stay_the_users(lab: Lab, name: str) -> None:
    me = desk(lab, 232)
    home = lab.home(me.user or "")
    secret = lab.dir / "secret"
    secret.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 13.00 MiB.")
    secret.chmod(0o600)
    log = home / "log-link"
    log.unlink(missing_ok=True)
    job_id = me.submit(
        *("--mem=50", f"--job-name={name}", f"--output={home}/log-%j", "--no-requeue"),
        # The user puts a link to root's file where the Epilog looks.
        wrap=f"rm -f {home}/log-$SLURM_JOB_ID; ln -s {secret} {home}/log-$SLURM_JOB_ID; exit 1",
    )
    lab.wait(job_id, "FAILED", 60)
    until(lambda: not (jobs_dir(lab) / f"{job_id}.json").exists(), 30, "the Epilog has ended")
    assert not Path("/tmp/coloc-owned").exists()
    assert "13.00 MiB" not in json.dumps(me.explain(job_id))
    assert secret.read_text().endswith("13.00 MiB.")
    assert [file.name for file in jobs_dir(lab).glob(f"{job_id}.*")] == []
    assert "DRAIN" not in lab.run(["scontrol", "show", "node", "-o"]).stdout.upper()


def test_variables_that_a_user_exports_reach_no_hook(lab: Lab) -> None:
    me = desk(lab, 233)
    forged = ",".join(
        f"{name}=/tmp/coloc-owned"
        for name in ("COLOC_PROGRAM", "COLOC_CONFIG", "LD_PRELOAD_X", "PYTHONPATH", "SPANK_COLOC_V")
    )
    job_id = me.submit("--mem=50", f"--export=ALL,{forged}", wrap="true")
    lab.wait(job_id, "COMPLETED", 60)
    held = shards(lab.job(job_id))
    assert held > 0
    assert f"{held}.0 GiB for this job" in lab.output(job_id)
