# SPDX-License-Identifier: Apache-2.0
"""Nodes and login nodes that reach colocd over TCP alone, on a real Slurm and a real munged."""

import json
import pwd
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.link.client import Me, NetWire
from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.lab import procs
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, ask, desk, known, until
from tests.harness.other_user import as_user


def liar(seconds: int) -> str:
    """A job that runs out of GPU memory after so many seconds in its first run."""
    return f"""#!/bin/bash
if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then
  sleep {seconds}
  echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 38.00 GiB. GPU 0 has a" \\
       "total capacity of 39.39 GiB of which 37.00 GiB is free." >&2
  exit 1
fi
"""


@pytest.fixture(scope="module")
def net(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """One lab with two nodes whose hooks and users have no Unix socket."""
    from slurm_coloc.lab.spec import LabSpec
    from tests.cluster.conftest import PATIENT_MS, PREFIX, lab_of

    with lab_of(
        request,
        LabSpec(name=f"{PREFIX}net", nodes=2, users=2, network=True, deadline_ms=PATIENT_MS),
    ) as lab:
        yield lab
    assert not procs.leftovers(lab.dir, frozenset()), "agents that nobody recorded end too"


@pytest.fixture
def linked(net: Lab) -> Iterator[Lab]:
    """The lab with colocd and both agents at work, before and after."""
    for name in ("colocd", "agent-n1", "agent-n2"):
        if not net.daemon(name).alive():
            net.restart(name)
    until(lambda: ask(net, op="status")["linked_nodes"] == 2, 40, "both agents are linked")
    yield net
    net.clear()


def submit(me: Desk, *args: str, **job: str) -> int:
    """A job that colocd has decided. Where colocd has just come back, jobs get whole GPUs for a
    while."""
    found: list[int] = []

    def taken() -> bool:
        found.append(me.submit(*args, **job))
        if "coloc:1:" in me.lab.job(found[-1]).get("AdminComment", ""):
            return True
        me.lab.run(["scancel", str(found[-1])])
        return False

    until(taken, 60, "colocd decides a submission")
    return found[-1]


def login(lab: Lab, *args: str, user: str | None) -> Any:
    """`coloc ... --json` as from a login node."""
    env = {"COLOC_CONFIG": f"{lab.dir}/login.toml"}
    return json.loads(lab.run(["coloc", *args, "--json"], user=user, env=env).stdout)


def target(lab: Lab) -> str:
    """host:port of the lab's colocd."""
    text = (lab.dir / "login.toml").read_text()
    return text.split('controllers = ["', 1)[1].split('"', 1)[0]


def wire(lab: Lab, node: str | None) -> NetWire:
    """A connection of root's that says it comes from ``node``."""
    uid = pwd.getpwnam("slurm").pw_uid
    return NetWire(target(lab), Me(uid, "", node, lab.dir / "munge" / "socket"), 10)


def reports(lab: Lab, node: str) -> list[Path]:
    return sorted((lab.dir / "nodes" / node / "reports").glob("*.json"))


def told(lab: Lab, job_id: int) -> dict[str, Any]:
    found = ask(lab, op="explain", job_id=job_id)
    assert found["ok"], found
    return found


@pytest.mark.smoke
def test_recovery_with_the_report_over_tcp(linked: Lab) -> None:
    lab = linked
    me = desk(lab, 211)
    job_id = submit(me, "--mem=100", script=liar(0))
    until(lambda: lab.job(job_id)["Restarts"] == "1", 60, "the job is requeued")
    lab.wait(job_id, "COMPLETED", 90)

    def outcomes() -> list[str]:
        return [run["outcome"] for run in told(lab, job_id)["runs"]]

    until(lambda: outcomes() == ["oom-gpu", "completed"], 60, "both ends are recorded")
    assert not reports(lab, "n1") and not reports(lab, "n2")
    shown = login(lab, "explain", str(job_id), user=me.user)
    assert shown["runs"][0]["evidence"]["oom"] is True
    assert any(line["kind"] == "launch" for line in shown["story"])


@pytest.mark.smoke
def test_a_running_job_shows_its_gpu(linked: Lab) -> None:
    lab = linked
    me = desk(lab, 212)
    job_id = submit(me, "--mem=100", wrap="sleep 600")
    job = lab.wait(job_id, "RUNNING")
    rows = login(lab, "jobs", user=me.user)["jobs"]
    row = next(row for row in rows if row["job_id"] == job_id)
    assert row["node"] == job["NodeList"]
    assert len(row["gpu_uuids"]) == 1 and row["gpu_uuids"][0].startswith("GPU-")
    state_file = lab.dir / "nodes" / job["NodeList"] / "jobs" / f"{job_id}.json"
    state = json.loads(state_file.read_text())
    held = state["reservation"]
    assert held["available"] is True, held
    assert (held["action"], held["shards"]) == ("collocate", row["shards"])
    assert held["decision"] in job["AdminComment"]
    assert [one["uuid"] for one in state["gpu"]["devices"]] == row["gpu_uuids"]


@pytest.mark.smoke
def test_a_job_that_ends_while_colocd_is_away_is_recovered(linked: Lab) -> None:
    lab = linked
    me = desk(lab, 213)
    # Nobody asks or looks until the report has come.
    job_id = submit(me, "--mem=100", script=liar(3))
    lab.wait(job_id, "RUNNING")
    lab.stop("colocd")
    lab.wait(job_id, "FAILED", 60)
    node = lab.job(job_id)["NodeList"]
    until(lambda: reports(lab, node), 20, "the Epilog has spooled its report")
    lab.restart("colocd")
    until(lambda: not reports(lab, node), 20, "the agent has brought the report")
    until(lambda: lab.job(job_id)["Restarts"] == "1", 30, "the job is requeued")
    lab.wait(job_id, "COMPLETED", 90)


def test_a_job_starts_and_ends_without_colocd(linked: Lab) -> None:
    lab = linked
    me = desk(lab, 214)
    job_id = submit(me, "--mem=100", "--hold", wrap="true")
    lab.stop("colocd")
    lab.run(["scontrol", "release", str(job_id)])
    job = lab.wait(job_id, "COMPLETED", 60)
    assert job["ExitCode"] == "0:0"
    states = lab.run(["sinfo", "-h", "-o", "%T"]).stdout
    assert "drain" not in states and "down" not in states
    until(lambda: reports(lab, job["NodeList"]), 20, "the report is spooled")
    done = lab.run(["coloc", "jobs"], check=False, env={"COLOC_CONFIG": f"{lab.dir}/login.toml"})
    assert done.returncode == 6, done.stderr


def test_a_cut_link_comes_back(linked: Lab) -> None:
    lab = linked
    lab.stop("agent-n2")
    lab.restart("colocd")  # cuts the link of agent-n1

    def links() -> dict[str, bool]:
        return {row["node"]: row["linked"] for row in ask(lab, op="status")["links"]}

    until(lambda: links() == {"n1": True, "n2": False}, 30, "agent-n1 is linked again")
    checks = {row["check"]: row for row in coloc_doctor(lab)}
    assert checks["agent-links"]["status"] == "warn"
    assert "n2" in checks["agent-links"]["found"]


def coloc_doctor(lab: Lab) -> list[dict[str, str]]:
    done = lab.run(["coloc", "doctor", "--json"], check=False)
    rows: list[dict[str, str]] = json.loads(done.stdout)["checks"]
    return rows


@pytest.mark.smoke
def test_doctor_finds_the_network_in_order(linked: Lab) -> None:
    found = {row["check"]: row["status"] for row in coloc_doctor(linked)}
    for name in ("network-listen", "munge", "network-answer", "agent-links"):
        assert found[name] == "ok", found


def forged(job_id: int, node: str) -> dict[str, Any]:
    evidence = {"oom": True, "kind": "cuda_oom", "line": "CUDA out of memory"}
    return {"job_id": job_id, "restart": 0, "node": node, "evidence": evidence}


def test_a_node_speaks_only_for_itself(linked: Lab) -> None:
    """n1 and n2 are one host here, so each may claim the other's name, but not other nodes', nor
    speak of jobs that never were on the node that it claims to be."""
    lab = linked
    me = desk(lab, 215)
    job_id = submit(me, "--mem=100", "--nodelist=n1", wrap="sleep 600")
    lab.wait(job_id, "RUNNING")
    for claim, spoken, code in (
        ("n9", "n9", "not-allowed"),
        ("n2", "n1", "not-yours"),
        ("n2", "n2", "not-yours"),
        (None, "n1", "not-allowed"),
    ):
        with wire(lab, claim) as link:
            answer = link.call("report", **forged(job_id, spoken))
            assert answer["error"]["code"] == code, (claim, answer)
            answer = link.call("launch", job_id=job_id, restart=0, node=spoken, gpus=[])
            assert answer["error"]["code"] == code, (claim, answer)
    with wire(lab, "n1") as link:
        answer = link.call("report", **forged(job_id, "n1") | {"restart": 1})
        assert answer["error"]["code"] == "not-yours"
        for op in ("submit", "reload"):
            assert link.call(op)["error"]["code"] == "not-allowed"
        answer = link.call("launch", job_id=job_id, restart=0, node="n1", gpus=[])
        assert answer["reservation"]["shards"] > 0
    lab.run(["scancel", str(job_id)])
    lab.wait(job_id, "CANCELLED")


def test_an_address_that_is_not_the_nodes_is_refused(make_lab: Callable[..., Lab]) -> None:
    """The node's address in Slurm is another than where the claim comes from."""
    extra = (
        "NodeName=n7 NodeAddr=192.0.2.7 NodeHostname=n7.invalid CPUs=1 State=FUTURE"
        " Gres=gpu:a100:2,shard:78"
    )
    lab = make_lab(users=1, network=True, slurm_conf_extra=extra)
    until(lambda: ask(lab, op="status")["linked_nodes"] == 1, 40, "the agent is linked")
    with wire(lab, "n7") as link:
        answer = link.call("beat")
        assert answer["error"]["code"] == "not-allowed", answer


def as_first_user(lab: Lab, what: Callable[[], Any]) -> Any:
    who = pwd.getpwnam(lab.users[0])
    return as_user(who.pw_uid, what, who.pw_gid)


def test_a_user_can_neither_report_nor_launch(linked: Lab) -> None:
    lab = linked
    me = desk(lab, 216)
    job_id = submit(me, "--mem=100", "--nodelist=n1", wrap="sleep 600")
    lab.wait(job_id, "RUNNING")

    def codes() -> list[str]:
        found = []
        for claim in (None, "n1"):
            with wire(lab, claim) as link:
                for op in ("report", "launch", "beat", "submit", "reload"):
                    answer = link.call(op, **forged(job_id, "n1"))
                    found.append(answer["error"]["code"])
        return found

    assert as_first_user(lab, codes) == ["not-allowed"] * 10
    with wire(lab, "n1") as link:  # the same words of root's on the node are taken
        assert link.call("launch", job_id=job_id, restart=0, node="n1", gpus=[])["ok"]


def test_a_replayed_or_forged_hello_is_refused(linked: Lab) -> None:
    lab = linked
    host, _, port = target(lab).rpartition(":")

    def connection() -> tuple[socket.socket, Any, str]:
        sock = socket.create_connection((host, int(port)), 10)
        lines = sock.makefile("rb")
        return sock, lines, lines.readline().split()[1].decode()

    honest = wire(lab, "n1")
    hello = honest._first
    request = honest._seal(b'{"v":1,"op":"ping"}')
    for _ in range(2):  # the first time munge itself has not seen it yet: the nonce tells
        sock, lines, _nonce = connection()
        sock.sendall(request)
        answer = lines.readline()
        assert answer.startswith(b"refused "), answer
        assert lines.readline() == b""
        sock.close()
    sock, lines, _nonce = connection()
    sock.sendall(hello[:60] + b"AAAA" + hello[64:])
    assert lines.readline().startswith(b"refused ")
    honest.close()
    # Whoever takes over an authenticated connection cannot speak on it.
    link = wire(lab, "n1")
    assert link.call("ping")["ok"]
    link._sock.sendall(b"0" * 64 + b' {"v":1,"op":"beat"}\n')
    with pytest.raises(DaemonUnreachable):
        link.call("ping")


def test_others_jobs_as_private_data_says(linked: Lab) -> None:
    lab = linked
    me, other = desk(lab, 217), lab.users[1]
    job_id = submit(me, "--mem=100", wrap=me.train(memory_mib=60000, smact=0.2, work_s=1))
    until(lambda: lab.job(job_id)["Restarts"] == "2", 90, "more memory, then a whole GPU")
    lab.wait(job_id, "FAILED", 60)

    def ends() -> int:
        return len([run for run in told(lab, job_id)["runs"] if run["outcome"]])

    until(lambda: ends() == 3, 60, "all ends are recorded")
    mine = login(lab, "explain", str(job_id), user=me.user)
    line = mine["runs"][0]["evidence"]["line"]
    theirs = login(lab, "explain", str(job_id), user=other)
    text = json.dumps(theirs)
    assert theirs["runs"][0]["outcome"] == "oom-gpu"
    assert line[:40] not in text and "out of memory. Tried" not in text
    assert theirs["decision"]["features"] == {} and "fingerprint" in theirs["decision"]
    assert not login(lab, "jobs", user=other)["jobs"]
    rows = login(lab, "jobs", "--all", user=other)["jobs"]
    assert job_id in {row["job_id"] for row in rows}
    assert all(row["evidence"] is None for row in rows if row["job_id"] == job_id)
    conf = lab.dir / "slurm.conf"
    before = conf.read_text()
    conf.write_text(before + "PrivateData=jobs\n")
    try:
        lab.run(["scontrol", "reconfigure"])

        def hidden() -> bool:
            return not login(lab, "jobs", "--all", user=other)["jobs"]

        until(hidden, 30, "colocd has read PrivateData")
        env = {"COLOC_CONFIG": f"{lab.dir}/login.toml"}
        done = lab.run(["coloc", "explain", str(job_id)], user=other, check=False, env=env)
        assert done.returncode == 1 and "may see" in done.stderr
        assert login(lab, "explain", str(job_id), user=me.user)["job_id"] == job_id
        assert not login(lab, "jobs", "--user", str(me.user), user=other)["jobs"]
    finally:
        conf.write_text(before)
        lab.run(["scontrol", "reconfigure"])


@pytest.mark.smoke
def test_a_lost_database_is_made_up_for_from_the_marks(linked: Lab) -> None:
    """As after a failover to a colocd with a database of its own."""
    lab = linked
    me = desk(lab, 218)
    job_id = submit(me, "--mem=100", script=liar(4))
    lab.wait(job_id, "RUNNING")
    lab.stop("colocd")
    for file in (lab.dir / "coloc" / "state").glob("coloc.db*"):
        file.unlink()
    lab.restart("colocd")
    until(lambda: lab.job(job_id)["Restarts"] == "1", 90, "the job is requeued")
    job = lab.wait(job_id, "COMPLETED", 90)
    whole = "shard:39" if lab.release < (23, 11) else "gpu:1"
    assert job["TresPerNode"].endswith(whole)
    story = " / ".join(line["text"] for line in told(lab, job_id)["story"])
    assert "taken over from its mark" in story


def test_what_it_waits_for_on_the_node_that_it_asked_for(
    linked: Lab, slurm_version: tuple[int, int]
) -> None:
    """The other node is free, and `coloc explain` does not say that the job would fit there."""
    lab = linked
    me = desk(lab, 211)
    all_of_it = lab.sbatch("--exclusive", "--nodelist=n2", wrap="sleep 300", user=me.user)
    lab.wait(all_of_it, "RUNNING")
    asks = me.submit("--mem=100", "--nodelist=n2", wrap="sleep 300")
    # 22.05's squeue has no word in its column of excluded nodes.
    how = "--exclude=n1" if slurm_version >= (24, 11) else "--nodelist=n2"
    shuns = me.submit("--mem=100", how, wrap="sleep 300")

    def bound_by(job_id: int) -> Any:
        return known(lab, "explain", str(job_id), user=me.user).get("binding")

    for job_id in (asks, shuns):
        bound = until(lambda job_id=job_id: bound_by(job_id), 30, "what it waits for")
        assert bound["node"] == "n2" and "cpus on n2" in bound["text"], bound
    lab.run(["scancel", *map(str, (all_of_it, asks, shuns))], user=me.user)
