# SPDX-License-Identifier: Apache-2.0
"""coloc explain, jobs, history and doctor on a real Slurm: what binds a job, and where it runs."""

from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, coloc, desk, known, until

CPUS, MEMORY_MIB = 32, 128_000  # of the lab's one node


def _told(me: Desk, job_id: int) -> dict[str, Any]:
    """The explanation, once colocd has seen the job (it looks once a second in a lab)."""

    def seen() -> dict[str, Any]:
        return known(me.lab, "explain", str(job_id), user=me.user)

    found = until(seen, 20, "colocd sees the job")
    assert isinstance(found, dict)
    return found


def _bound(me: Desk, job_id: int) -> dict[str, Any]:
    """The explanation of a waiting job, once Slurm has given a reason."""

    def reasoned() -> dict[str, Any] | None:
        told = _told(me, job_id)
        live = told["live"]
        waits = live and live["state"] == "PENDING" and live["reason"] not in ("", "None")
        return told if waits and told["binding"] else None

    found = until(reasoned, 20, "Slurm says why the job waits")
    assert isinstance(found, dict)
    return found


def _shorts(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["resource"]: one for one in told["binding"]["shorts"]}


def test_a_task_of_an_array_by_its_name(lab: Lab) -> None:
    """As squeue shows it; a task that waits is a part of its array's record."""
    me = desk(lab, 306)
    array = me.submit("--mem=100", "--array=1-3%2", wrap="sleep 600")
    name = f"{array}_2"

    def task(number: int) -> dict[str, Any]:
        return known(lab, "explain", f"{array}_{number}", user=me.user)

    def started() -> dict[str, Any] | None:
        found = task(2)
        return found if found and found["runs"][-1]["array_task"] == 2 else None

    found = until(started, 30, "its second task is known by its name")
    assert found["runs"][-1]["job_id"] != array and found["live"]["state"] == "RUNNING"
    shown = lab.run(["coloc", "explain", name], user=me.user).stdout
    assert shown.startswith("Job") and f"{name} of " in shown and "partition default" not in shown
    assert name in lab.run(["coloc", "jobs"], user=me.user).stdout
    assert f"{name} of " in lab.run(["coloc", "report", name], user=me.user).stdout
    waiting = task(3)
    assert waiting is not None and waiting["live"]["state"] == "PENDING"
    none = lab.run(["coloc", "explain", f"{array}_9"], user=me.user, check=False)
    wrong = lab.run(["coloc", "explain", f"{array}_2_1"], user=me.user, check=False)
    assert none.returncode == 1 and f"job {array}_9: not a --coloc job" in none.stderr
    assert wrong.returncode == 2 and "is no job, such as" in wrong.stderr
    lab.run(["scancel", str(array)])


@pytest.mark.smoke
def test_shards_bind(lab: Lab, slurm_version: tuple[int, int]) -> None:
    me = desk(lab, 300)
    first = me.submit("--mem=100", wrap="sleep 600")
    told = _told(me, first)
    per_job, per_gpu = told["decision"]["shards"], told["decision"]["shards_per_gpu"]
    fit = per_gpu // per_job
    others = [me.submit("--mem=100", wrap="sleep 600") for _ in range(2 * fit - 1)]
    for job_id in (first, *others):
        lab.wait(job_id, "RUNNING")
    waits = me.submit("--mem=100", wrap="sleep 600")
    told = _bound(me, waits)
    shorts = _shorts(told)
    assert set(shorts) == {"shards"}, told["binding"]
    assert shorts["shards"]["needed"] == per_job
    assert shorts["shards"]["free"] == per_gpu - fit * per_job
    assert shorts["shards"]["total"] == per_gpu
    assert told["binding"]["possible"] is True
    assert told["binding"]["per_gpu_known"] is (slurm_version >= (24, 11))
    shown = lab.run(["coloc", "explain", str(waits)], user=me.user).stdout
    assert "What binds it  shards on n1" in shown


def test_where_it_runs(lab: Lab) -> None:
    me = desk(lab, 300)
    job_id = me.submit(wrap="sleep 600")
    lab.wait(job_id, "RUNNING")
    live = until(lambda: _told(me, job_id)["live"], 20)
    assert live["placement"] == "n1 GPU 0"
    rows = coloc(lab, "jobs", user=me.user)["jobs"]
    assert job_id in {row["job_id"] for row in rows}

    def cells() -> list[str]:
        shown = lab.run(["coloc", "jobs", "-j", str(job_id)], user=me.user).stdout
        return shown.splitlines()[-1].split()

    until(lambda: "n1:0" in cells(), 40, "its GPU by number, as its node tells it")
    assert cells()[:3] == [str(job_id), "wrap", me.user] and "RUNNING" in cells()


def test_another_user_s_job_name_steers_no_terminal(lab: Lab) -> None:
    """Names are what a user chooses, and others see them, as in squeue."""
    me, other = desk(lab, 307), lab.users[1]
    job_id = me.submit("--mem=100", "-J", "x\x1b[31m\x1b]0;y\x07", wrap="sleep 60")
    until(lambda: me.explain(job_id)["runs"][-1]["state"] == "RUNNING", 30, "it runs")
    for words in (["jobs", "--all"], ["top", "--once"]):
        shown = lab.run(["coloc", *words], user=other).stdout
        assert str(job_id) in shown and "\x1b" not in shown and "x?[31m" in shown
    lab.run(["scancel", str(job_id)])


@pytest.mark.parametrize(
    ("taken", "asks", "resource"),
    [
        ([f"--cpus-per-task={CPUS - 1}", "--mem=100"], ["--cpus-per-task=2", "--mem=100"], "cpus"),
        ([f"--mem={MEMORY_MIB - 1000}"], ["--mem=2000"], "memory"),
    ],
)
def test_cpus_or_memory_bind(lab: Lab, taken: list[str], asks: list[str], resource: str) -> None:
    me = desk(lab, 300)
    first = me.submit(*taken, wrap="sleep 600")
    lab.wait(first, "RUNNING")
    told = _bound(me, me.submit(*asks, wrap="sleep 600"))
    assert set(_shorts(told)) == {resource}, told["binding"]


@pytest.mark.needs_slurm("24.11", "a whole GPU is all of its shards there")
def test_a_whole_gpu_binds(lab: Lab) -> None:
    me = desk(lab, 300)
    whole = lab.sbatch("--gpus=1", "--mem=100", wrap="sleep 600", user=me.user)
    shared = me.submit("--mem=100", wrap="sleep 600")
    for job_id in (whole, shared):
        lab.wait(job_id, "RUNNING")
    told = _bound(
        me, me.submit("--coloc-policy=exclusive", "--gpus=1", "--mem=100", wrap="sleep 600")
    )
    assert set(_shorts(told)) == {"gpu"}, told["binding"]
    wanted = {"resource": "gpu", "needed": 1, "free": 0, "total": 2, "gpus": 1}
    assert _shorts(told)["gpu"] == wanted


def test_held_job_has_no_shortage(lab: Lab) -> None:
    me = desk(lab, 300)
    told = _told(me, me.submit("--hold", wrap="true"))
    assert told["live"]["reason"] == "JobHeldUser"
    assert told["binding"] is None


def test_slurm_away(make_lab: Any) -> None:
    """Without slurmctld the decision and the story are still told."""
    lab = make_lab(users=1)
    me = desk(lab, 300)
    job_id = me.submit(wrap="sleep 600")
    assert _told(me, job_id)["live"]["state"] in ("PENDING", "RUNNING")
    lab.stop("slurmctld")
    told = me.explain(job_id)
    assert told["live"] is None and told["slurm_error"]
    assert told["decision"]["shards"] > 0


@pytest.mark.smoke
def test_doctor_finds_a_lab_in_order(lab: Lab, slurm_version: tuple[int, int]) -> None:
    told = coloc(lab, "doctor")
    status = {row["check"]: row["status"] for row in told["checks"]}
    assert told["ok"] is True, told
    assert status["slurm-release"] == ("ok" if slurm_version >= (24, 11) else "warn")
    for name in ("colocd", "socket", "job-submit-lua", "spank-plugin", "prolog", "epilog"):
        assert status[name] == "ok", told


def test_doctor_while_colocd_is_dead(make_lab: Any) -> None:
    lab = make_lab(users=1)
    lab.stop("colocd")
    done = lab.run(["coloc", "doctor"], check=False)
    assert done.returncode == 1
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("fail")] == [
        "colocd"
    ]
