# SPDX-License-Identifier: Apache-2.0
"""Accounting and limits on a real slurmdbd: what sacct has, and that a limit in GPUs keeps its
meaning for shares (admin/rules/limit_plan has the rule)."""

import json
import random
import time
from collections.abc import Iterator

import pytest

from tests.compose.accounts import Accounts, mark, share, tres
from tests.compose.cluster import Cluster, ClusterError

pytestmark = pytest.mark.needs_slurm(
    "23.11", "before 23.11.5 Slurm shares whole GPUs, so that exclusive is all shards of one"
)

COLUMNS = ("State", "Restarts", "Account", "AllocTRES", "AdminComment")


@pytest.fixture
def accounts(cluster: Cluster) -> Iterator[Accounts]:
    found = Accounts(cluster)
    yield found
    found.restore()


def action(cluster: Cluster, *args: str, user: str = "ada") -> str:
    """What colocd decides for a share submitted now, as ``action:reason``; the job is ended."""
    job = share(cluster, "--hold", *args, user=user)
    decided = mark(cluster, job).split(":")
    cluster.run(["scancel", str(job)], on="controller")
    return ":".join(decided[3:5])


def once_known(cluster: Cluster, wanted: str, *args: str) -> None:
    """Wait until colocd has read the limits that lead to ``wanted``."""
    cluster.until(lambda: action(cluster, *args) == wanted, 60, f"colocd decides {wanted}")


def pending(cluster: Cluster, job: int, reason: str) -> None:
    """Wait until Slurm says that the job waits for this reason."""

    def waits() -> bool:
        found = cluster.job(job)
        assert found.state == "PENDING", found
        return found.reason == reason

    cluster.until(waits, 60, f"job {job} waits for {reason}: {cluster.job(job)}")


def limits_told(cluster: Cluster, job: int, user: str = "ada") -> str:
    """The limits that `coloc explain` names for a waiting job."""
    live = cluster.coloc("explain", str(job), user=user, on="controller")["live"]
    return "; ".join([live["reason_text"], *live["limits"]])


# what sacct has


def test_states_tres_and_billing(cluster: Cluster) -> None:
    whole = cluster.sbatch("-p", "a100", "--gres=gpu:1", wrap="true")
    shared = share(cluster, work_s=1)
    failed = cluster.sbatch("-p", "h100", "--gres=gpu:1", wrap="exit 3", user="ben")
    ended = share(cluster, user="ben")
    cluster.wait(ended, "RUNNING")
    cluster.run(["scancel", str(ended)], user="ben")
    for job in (whole, shared, failed, ended):
        cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED")
    wanted = {
        whole: ("COMPLETED", "physics", {"gres/gpu": 1, "billing": 39}),
        failed: ("FAILED", "biology", {"gres/gpu": 1, "billing": 79}),
        shared: ("COMPLETED", "physics", {}),
        ended: ("CANCELLED", "biology", {}),
    }
    for job, (state, account, counts) in wanted.items():
        [run] = cluster.until(
            lambda job=job: [  # type: ignore[misc]
                run for run in cluster.sacct(job, *COLUMNS) if run["State"] != "RUNNING"
            ],
            30,
            f"slurmdbd has job {job}",
        )
        assert (run["State"].split()[0], run["Account"], run["Restarts"]) == (state, account, "0")
        found = tres(run["AllocTRES"])
        assert {name: found[name] for name in counts} == counts, run
        if not counts:  # a share costs its shards of the GPU's 39, and no GPU
            assert found["billing"] == found["gres/shard"] < 39 and "gres/gpu" not in found, run


@pytest.mark.parametrize(
    ("partition", "gres", "billing"),
    [("a100", "shard:39", 39), ("h100", "shard:79", 79),
     ("a100", "gpu:1", 39), ("h100", "gpu:1", 79),
     ("main", "gpu:a100:1", 39), ("main", "gpu:h100:1", 79), ("main", "shard:20", 20)],
)  # fmt: skip
def test_all_shards_of_a_gpu_cost_the_gpu(
    cluster: Cluster, partition: str, gres: str, billing: int
) -> None:
    # Users may not ask for shards themselves: with slurm-coloc off they may.
    off = "/etc/slurm-coloc/off"
    cluster.run(["touch", off], on="controller")
    try:
        job = cluster.sbatch("-p", partition, f"--gres={gres}", wrap="true")
    finally:
        cluster.run(["rm", off], on="controller")
    cluster.wait(job)
    [run] = cluster.sacct(job, "AllocTRES")
    assert tres(run["AllocTRES"])["billing"] == billing


def test_a_requeued_job_has_a_line_a_run_and_the_mark_in_each(cluster: Cluster) -> None:
    job = share(cluster, work_s=5)
    cluster.wait(job, "RUNNING")
    cluster.run(["scontrol", "requeue", str(job)], user="ada")

    def goes_on() -> bool:
        found = cluster.job(job)
        # Slurm lets a requeued job wait for two minutes; at once would meet a revoked credential.
        if found.state == "PENDING" and found.start > time.time() + 20:
            words = ["scontrol", "update", f"JobId={job}", "StartTime=now+5"]
            cluster.run(words, on="controller", check=False)
        return found.restarts == 1 and found.state in ("RUNNING", "COMPLETED")

    cluster.until(goes_on, 60, "the second run")
    cluster.wait(job)
    runs = cluster.until(
        lambda: len(found := cluster.sacct(job, *COLUMNS)) == 2 and found, 30, "two runs in sacct"
    )
    # The first run's line may carry the new count already: Slurm writes it while it requeues.
    assert runs[1]["Restarts"] == "1", runs
    assert runs[0]["State"].split()[0] in ("REQUEUED", "PREEMPTED", "CANCELLED"), runs
    assert runs[1]["State"] == "COMPLETED"
    marks = {run["AdminComment"] for run in runs}
    assert len(marks) == 1 and next(iter(marks)).startswith("coloc:1:"), runs
    assert len(cluster.sacct(job, *COLUMNS, runs=False)) == 1


# a limit of N GPUs


def test_one_limit_over_whole_gpus_and_shares(cluster: Cluster, accounts: Accounts) -> None:
    accounts.qos("few", "MaxTRESPerUser=gres/gpu=1")
    accounts.one_price()
    told = accounts.limits()
    assert (told["way"], told["each"]) == ("billing", 1000), told["why"]
    assert told["commands"] == [
        "sacctmgr modify qos where name=few set MaxTRESPerUser=billing=1000"
    ]
    accounts.limits("--apply", "--yes")
    assert accounts.limits()["commands"] == []
    whole = cluster.sbatch("-p", "h100", "--qos=few", "--gres=gpu:1", wrap="sleep 600")
    cluster.wait(whole, "RUNNING")
    first = share(cluster, "--qos=few")
    pending(cluster, first, "QOSMaxBillingPerUser")
    cluster.until(
        lambda: "QOS few allows a user at most billing=1000" in limits_told(cluster, first),
        30,
        "explain names the limit",
    )
    other = share(cluster, "--qos=few", user="ben")  # the limit is one of each user
    cluster.wait(other, "RUNNING")
    cluster.run(["scancel", str(whole)], user="ada")
    cluster.wait(first, "RUNNING")
    # N x S shards: as many as fit one GPU, and not one more, though three GPUs are free.
    more = [share(cluster, "--qos=few") for _ in range(39 // cluster.job(first).shards)]
    for job in more[:-1]:
        cluster.wait(job, "RUNNING")
    pending(cluster, more[-1], "QOSMaxBillingPerUser")
    refused = cluster.sbatch("-p", "a100", "--qos=few", "--gres=gpu:1", wrap="true")
    pending(cluster, refused, "QOSMaxBillingPerUser")
    accounts.limits("--undo", "--apply", "--yes")
    shown = accounts.sacctmgr("-nP", "show", "qos", "few", "format=MaxTRESPU").strip()
    assert shown == "gres/gpu=1"
    cluster.wait(more[-1], "RUNNING")


def test_where_types_have_their_prices_shares_are_limited_beside(
    cluster: Cluster, accounts: Accounts
) -> None:
    accounts.qos("few", "MaxTRESPerUser=gres/gpu=1")
    told = accounts.limits("--apply", "--yes")
    assert (told["way"], told["each"]) == ("gres/shard", 39)
    whole = cluster.sbatch("-p", "a100", "--qos=few", "--gres=gpu:1", wrap="sleep 600")
    first = share(cluster, "--qos=few")
    cluster.wait(whole, "RUNNING")
    cluster.wait(first, "RUNNING")
    more = [share(cluster, "--qos=few") for _ in range(39 // cluster.job(first).shards)]
    for job in more[:-1]:
        cluster.wait(job, "RUNNING")
    pending(cluster, more[-1], "QOSMaxGRESPerUser")
    second = cluster.sbatch("-p", "a100", "--qos=few", "--gres=gpu:1", wrap="true")
    pending(cluster, second, "QOSMaxGRESPerUser")


def test_a_gpu_jobs_only_qos_takes_shares(cluster: Cluster, accounts: Accounts) -> None:
    accounts.qos("gpuonly", "MinTRESPerJob=gres/gpu=1", "flags=DenyOnLimit")
    # As it stands a share would be refused by our own rewrite: colocd leaves the whole GPU.
    cluster.until(lambda: _decided(cluster, "--qos=gpuonly") == "exclusive:limit", 60, "limit")
    job = share(cluster, "--qos=gpuonly", work_s=1)
    cluster.wait(job)
    why = cluster.coloc("explain", str(job), user="ada", on="controller")["decision"]["why"]
    assert "QOS gpuonly: at least gres/gpu=1 for a job, 0 asked" in why
    # With its equivalent it is a GPU job like others, and a job without GPU still is none.
    accounts.one_price()
    accounts.limits("--apply", "--yes")
    once_known(cluster, "collocate:fits", "--qos=gpuonly")
    shared = share(cluster, "--qos=gpuonly")
    cluster.wait(shared, "RUNNING")
    with pytest.raises(ClusterError, match="QOSMinBilling"):
        cluster.sbatch("-p", "a100", "--qos=gpuonly", wrap="true")


def _decided(cluster: Cluster, *args: str) -> str:
    """Like ``action``, where sbatch may refuse the job as long as colocd knows too little."""
    try:
        return action(cluster, *args)
    except ClusterError:
        return "refused"


def test_a_limit_of_shards_a_job_means_a_whole_gpu(cluster: Cluster, accounts: Accounts) -> None:
    accounts.qos("thin", "MaxTRESPerJob=gres/shard=2")
    once_known(cluster, "exclusive:limit", "--qos=thin")
    assert action(cluster) == "collocate:fits"


def test_limits_are_kept_while_slurmdbd_is_away(cluster: Cluster, accounts: Accounts) -> None:
    accounts.qos("thin", "MaxTRESPerJob=gres/shard=2")
    once_known(cluster, "exclusive:limit", "--qos=thin")
    cluster.daemon("dbd", "stop", "slurmdbd")
    try:
        cluster.until(lambda: "limits" in _colocd_log(cluster), 60, "colocd missed slurmdbd")
        assert action(cluster, "--qos=thin") == "exclusive:limit"
    finally:
        cluster.daemon("dbd", "start", "slurmdbd")
    words = ["sacctmgr", "-n", "show", "cluster"]
    cluster.until(lambda: cluster.run(words, on="controller", check=False).stdout, 60, "slurmdbd")


def _colocd_log(cluster: Cluster) -> str:
    words = ["grep", "level=warning event=read_limits", "/var/log/slurm/colocd.out"]
    return cluster.run(words, on="controller", check=False).stdout


# recovery


def test_a_recovery_beyond_a_limit_waits_and_says_why(cluster: Cluster, accounts: Accounts) -> None:
    accounts.qos("shares", "MaxTRESPerJob=gres/gpu=0", "flags=DenyOnLimit")
    # Far more memory than was estimated, beside a neighbour; a whole GPU is not for this QOS.
    neighbour = share(cluster, user="ben", memory_mib=4000, work_s=600)
    cluster.wait(neighbour, "RUNNING")
    # A batch size of its own, and a sequence length, on which a CNN has no dependence: colocd
    # learns from the out-of-memory, and other tests shall share.
    number = random.randrange(40, 60)
    own = (f"--coloc-batch-size={number}", f"--coloc-seq-len={number}")
    job = share(cluster, "--qos=shares", *own, memory_mib=38_000, work_s=2)
    # After a try with more memory, or without where its log tells how much it wanted.
    cluster.until(lambda: cluster.job(job).tres_per_node.endswith("gpu:1"), 150, "more did not do")
    pending(cluster, job, "QOSMaxGRESPerJob")
    cluster.until(
        lambda: "QOS shares allows a job at most gres/gpu=0" in limits_told(cluster, job),
        30,
        "explain names the limit",
    )
    found = cluster.job(job)
    assert found.restarts in (1, 2) and found.shards == 0, found
    story = cluster.coloc("explain", str(job), user="ada", on="controller")["story"]
    assert (
        sum(one["text"] == "put back into the queue, held" for one in story) == found.restarts
    )  # nothing loops
    # The limit is lifted, and the job goes on: nothing was lost.
    accounts.set("shares", "MaxTRESPerJob=gres/gpu=1")
    cluster.wait(job)
    runs = cluster.sacct(job, *COLUMNS)
    assert [run["Restarts"] for run in runs] == [str(n) for n in range(found.restarts + 1)], runs
    assert "gres/shard" in tres(runs[0]["AllocTRES"]) and "gres/gpu" in tres(runs[-1]["AllocTRES"])
    assert runs[-1]["State"] == "COMPLETED"


# the decision is found again


# 26.05 does not start on a job_state that somebody removed, so the daemon itself clears it.
CLEAR = """
slurmctld -D -c >/dev/null 2>&1 & pid=$!
for _ in $(seq 300); do scontrol ping | grep -q 'is UP' && break; sleep 0.2; done
kill $pid; wait $pid
"""


def _forget_everything(cluster: Cluster, first_id: int) -> None:
    """`slurmctld -c`: nothing of the queue is left. Ids go on from ``first_id``, so that sacct
    does not hold two jobs of one id for the tests after this one."""
    conf = "/etc/slurm/slurm.conf"
    cluster.daemon("controller", "stop", "slurmctld")
    cluster.run(["sed", "-i", f"1a FirstJobId={first_id}", conf], on="controller")
    cluster.run(["bash", "-c", CLEAR], on="controller", check=False, timeout=90)
    cluster.daemon("controller", "start", "slurmctld")
    ping = ["scontrol", "ping"]
    cluster.until(lambda: " is UP" in cluster.run(ping, check=False).stdout, 60, "slurmctld")
    cluster.run(["sed", "-i", "/^FirstJobId=/d", conf], on="controller")


def test_the_decision_is_found_after_the_job_left_memory(cluster: Cluster) -> None:
    job = share(cluster, work_s=1)
    cluster.wait(job)
    decided = cluster.coloc("explain", str(job), user="ada", on="controller")["decision"]
    cluster.until(lambda: cluster.sacct(job, "AdminComment")[0]["AdminComment"], 30, "the mark")
    _forget_everything(cluster, first_id=job + 100)
    with pytest.raises(ClusterError, match=r"Invalid job id|knows no job"):
        cluster.job(job)
    # From colocd's own database ...
    again = cluster.coloc("explain", str(job), user="ada", on="controller")
    assert again["decision"]["id"] == decided["id"] and again["live"] is None
    # ... from Slurm's accounting alone ...
    [run] = cluster.sacct(job, "AdminComment")
    assert run["AdminComment"] == f"coloc:1:{decided['id']}:collocate:fits:{decided['shards']}"
    # ... and by `coloc explain` when colocd has lost its history.
    cluster.daemon("controller", "stop", "colocd")
    move = ["sh", "-c", "mkdir -p /root/kept && mv /var/lib/slurm-coloc/* /root/kept"]
    cluster.run(move, on="controller")
    try:
        cluster.daemon("controller", "start", "colocd")
        ping = ["coloc", "explain", str(job), "--json"]
        done = cluster.until(
            lambda: (d := cluster.run(ping, on="controller", check=False)).returncode == 0 and d,
            30,
            "colocd answers from slurmdbd",
        )
        answer = json.loads(done.stdout)
        assert answer["source"] == "slurmdbd"
        assert answer["decision"]["shards"] == decided["shards"] > 0
        assert answer["decision"]["id"] == decided["id"]
        assert answer["runs"][0]["state"] == "COMPLETED"
        shown = cluster.run(["coloc", "explain", str(job)], user="ada", on="controller").stdout
        assert "Slurm's accounting alone" in shown and "shares a GPU" in shown
        asked = ["coloc", "explain", str(job)]
        foreign = cluster.run(asked, user="ben", on="controller", check=False)
        assert foreign.returncode != 0 and "may see" in foreign.stderr
    finally:
        cluster.daemon("controller", "stop", "colocd")
        back = ["sh", "-c", "rm -rf /var/lib/slurm-coloc/* && mv /root/kept/* /var/lib/slurm-coloc"]
        cluster.run(back, on="controller")
        cluster.daemon("controller", "start", "colocd")
