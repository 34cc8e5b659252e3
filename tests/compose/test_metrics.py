# SPDX-License-Identifier: Apache-2.0
"""Metrics on the whole cluster: 28 shares on 6 GPUs, read by Debian's Prometheus, which is asked by
our dashboard and rules, by slurm-job-exporter's dashboards and by jobstats (COLOC_PROFILE=metrics).
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.cluster.jobs import mlp_summary
from tests.compose import alerts
from tests.compose.cluster import ROOT, Cluster, ClusterError

MIB = 2**20
HELD = 3000  # MiB of each training, all of its processes
#: shares in each partition: 16 on four A100, 12 on two H100
SHARES = {"a100": 16, "h100": 12}
DASHBOARD = ROOT / "etc/grafana/slurm-coloc.json"
RULES = ROOT / "etc/prometheus/rules.yml"


@pytest.fixture(scope="module")
def prometheus() -> str:
    try:
        Cluster.find().container("prometheus")
    except ClusterError:
        pytest.skip("no Prometheus here: COLOC_PROFILE=metrics")
    return "prometheus"


def api(cluster: Cluster, path: str, **query: str) -> Any:
    """The data of an answer of Prometheus."""
    url = f"http://localhost:9090/api/v1/{path}?{urlencode(query)}"
    answer = json.loads(cluster.run(["curl", "-s", url], on="prometheus").stdout)
    assert answer["status"] == "success", (query, answer)
    return answer["data"]


def ask(cluster: Cluster, query: str) -> list[tuple[dict[str, str], float]]:
    """The labels and the value of each series that a query finds."""
    found = api(cluster, "query", query=query)["result"]
    return [(one["metric"], float(one["value"][1])) for one in found]


def one(cluster: Cluster, query: str) -> float:
    found = ask(cluster, query)
    assert len(found) == 1, (query, found)
    return found[0][1]


@pytest.fixture(scope="module")
def shares(prometheus: str) -> Iterator[tuple[Cluster, dict[int, str]]]:
    """28 jobs with shares that run and hold their memory, and that Prometheus has seen; by job id
    their partition."""
    cluster = Cluster.find()
    jobs: dict[int, str] = {}
    # A model of its own: what other tests' jobs held of theirs would make these shares larger.
    path = "/home/ada/metrics.txt"
    cluster.put(path, mlp_summary(211), user="ada")
    try:
        for partition, count in SHARES.items():
            for _ in range(count):
                words = [f"--coloc={path}", "--gpus=1", "-p", partition, "--mem=10"]
                train = f"emu-train --memory-mib {HELD} --smact 0.1 --work-s 900"
                job_id = cluster.sbatch(*words, wrap=train)
                jobs[job_id] = partition
        told = f"count(coloc_job_memory_bytes > {HELD * MIB - 1} and coloc_job_sm_activity_ratio)"
        cluster.until(
            lambda: [value for _, value in ask(cluster, told)] == [len(jobs)], 90, "all are told"
        )
        yield cluster, jobs
    finally:
        cluster.clear()


Shares = tuple[Cluster, dict[int, str]]


def test_each_share_is_told_with_its_own_figures(shares: Shares) -> None:
    cluster, jobs = shares
    held = {int(s["slurmjobid"]): v for s, v in ask(cluster, "coloc_job_memory_bytes")}
    assert held == dict.fromkeys(jobs, float(HELD * MIB))

    def reserved() -> dict[int, float]:
        found = {
            int(s["slurmjobid"]): v for s, v in ask(cluster, "coloc_job_memory_reserved_bytes")
        }
        return found if found.keys() == jobs.keys() else {}

    # Their Prologs began within seconds on two cores. What one of them could not learn in its half
    # second its agent learns with a heartbeat.
    promised = cluster.until(reserved, 90, "every job's promise is known")
    for job_id, upper in promised.items():
        assert HELD * MIB < upper <= cluster.job(job_id).shards * 1024 * MIB
    owners = {(s["user"], s["account"]) for s, _ in ask(cluster, "coloc_job_info")}
    assert owners == {("ada", "physics")}
    on = [value for _, value in ask(cluster, "coloc_gpu_jobs")]
    assert len(on) == 6
    assert sum(on) == len(jobs)
    activity = {int(s["slurmjobid"]): v for s, v in ask(cluster, "coloc_job_sm_activity_ratio")}
    assert activity.keys() == jobs.keys()
    # Its part, and not the GPU's, which four to six of them keep busy.
    assert 0 < min(activity.values()) <= max(activity.values()) < 0.25
    power = one(cluster, "sum(coloc_job_power_watts) / sum(coloc_gpu_power_watts)")
    assert power == pytest.approx(1.0, rel=0.1)


def test_queries_of_others_answer_right_for_shares(shares: Shares) -> None:
    """Those of jobstats' command and dashboard, and of dashboards on slurm-job-exporter."""
    cluster, jobs = shares
    known = {int(s["slurmjobid"]) for s, _ in ask(cluster, "coloc_job_memory_reserved_bytes")}
    job_id = min(known & {job for job, partition in jobs.items() if partition == "a100"})
    held = {
        "max_over_time((nvidia_gpu_memory_used_bytes{cluster='mycluster'}"
        f" and nvidia_gpu_jobId == {job_id})[20s:])": HELD * MIB,
        f'sum(slurm_job_memory_usage_gpu{{slurmjobid="{job_id}"}})': HELD * MIB,
        f"nvidia_gpu_memory_used_bytes and nvidia_gpu_jobId == {job_id}": HELD * MIB,
        f"count(nvidia_gpu_duty_cycle and nvidia_gpu_jobId == {job_id})": 1,
        f'count(slurm_job_utilization_gpu{{user="ada", slurmjobid="{job_id}"}})': 1,
        f'slurm_job_memory_total_gpu{{slurmjobid="{job_id}"}}'
        f' - on (slurmjobid) coloc_job_memory_reserved_bytes{{slurmjobid="{job_id}"}}': 0,
    }
    for query, expected in held.items():
        assert one(cluster, query) == expected, query
    # jobstats reads node, minor number and value of each series.
    [(labels, _)] = ask(cluster, f"nvidia_gpu_memory_used_bytes and nvidia_gpu_jobId == {job_id}")
    assert labels["instance"].split(":")[0] == "g1"
    assert labels["minor_number"].isdigit()
    join = "coloc_gpu_sm_activity_ratio * on (UUID, GPU_I_ID) group_right () coloc_job_info"
    assert len(ask(cluster, join)) == len(jobs)


def test_every_query_of_the_dashboard_is_answered(shares: Shares) -> None:
    cluster, jobs = shares
    words = {"$cluster": ".*", "$job": str(next(iter(jobs)))}
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    empty = set()
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"]
            for word, value in words.items():
                query = query.replace(word, value)
            if not ask(cluster, query):
                empty.add(panel["title"])
    # Nothing is wrong here: no job is idle, and no run of a model has ended yet, perhaps.
    may = {"Jobs that hold a GPU without activity", "Why whole GPUs (a day)", "Peak over estimate"}
    may |= {"Ended runs with a share (an hour)", "Prolog and Epilog, 99 %"}
    assert empty <= may, empty


def test_the_rules_are_taken_and_none_is_ill(shares: Shares) -> None:
    cluster, _ = shares

    def rules() -> list[dict[str, Any]]:
        groups = api(cluster, "rules")["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    found = cluster.until(rules, 30, "all rules are evaluated")
    named = re.findall(r"^      - (?:alert|record): (\S+)", RULES.read_text("utf-8"), re.MULTILINE)
    assert sorted(rule["name"] for rule in found) == sorted(named)
    assert [rule for rule in found if rule["health"] != "ok"] == []
    page = (ROOT / "docs/admin/metrics.md").read_text("utf-8")
    for rule in found:
        if rule["type"] == "alerting":
            assert rule["name"] in page, rule["name"]


def test_each_alert_fires_when_it_is_due_and_not_before(prometheus: str) -> None:
    cluster = Cluster.find()
    named = re.findall(r"^      - alert: (\S+)", RULES.read_text("utf-8"), re.MULTILINE)
    assert sorted(alerts.ALERTS) == sorted(named)
    cluster.put("/tmp/alerts.yml", alerts.tests("/usr/local/lib/cluster/prometheus/rules.yml"),
                on=prometheus)  # fmt: skip
    done = cluster.run(["promtool", "test", "rules", "/tmp/alerts.yml"], on=prometheus, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_scrape_costs(shares: Shares, record_property: Any) -> None:
    """Told, for tests/bench/RESULTS.md; bounded only in series."""
    cluster, _ = shares
    for instance in ("g1:9836", "g2:9836", "controller:9837"):
        size = cluster.run(["curl", "-s", f"http://{instance}/metrics"], on="prometheus").stdout
        series = one(cluster, f'scrape_samples_scraped{{instance="{instance}"}}')
        # The jobs' shares of 3 names with 6, 7 and 6 series, the GPUs', and the rest.
        assert series < 600, instance
        took = one(cluster, f'avg_over_time(scrape_duration_seconds{{instance="{instance}"}}[1m])')
        line = f"{instance}: {series:.0f} series, {len(size)} bytes, {1000 * took:.1f} ms"
        record_property(instance, line)
        print(line)
