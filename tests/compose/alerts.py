# SPDX-License-Identifier: Apache-2.0
"""Each alert of etc/prometheus/rules.yml, made to fire: the series of one that is due and of one
that is not, for `promtool test rules` (docs of Prometheus: Unit testing for rules)."""

import json
from typing import Any, NamedTuple

AGENT, COLOCD = 'instance="g1:9836"', 'instance="controller:9837"'
HOUR = 60  # of samples, one a minute
GIB = 2**30


class Alert(NamedTuple):
    """``due`` and ``quiet``: series with their values, a minute apart; ``at``: minutes until it
    fires; ``labels``, ``summary``: of what is sent then."""

    due: dict[str, str]
    quiet: dict[str, str]
    at: int
    labels: dict[str, str]
    summary: str


def _slow(seconds: str) -> dict[str, str]:
    """A hundred submissions a minute, all of them up to ``seconds``."""
    les = ("0.05", "0.1", "0.25", "+Inf")
    return {
        f'coloc_submission_seconds_bucket{{{COLOCD},le="{le}"}}': "0+100x60"
        if le == "+Inf" or float(le) >= float(seconds)
        else "0x60"
        for le in les
    }


def _ended(bad: int) -> dict[str, str]:
    """A hundred runs with a share an hour, ``bad`` of them out of memory."""
    labels = f'{COLOCD},shared="yes",verdict=""'
    return {
        f'coloc_runs_ended_total{{{labels},outcome="{outcome}"}}': f"0+{runs}x300"
        for outcome, runs in (("oom-gpu", bad), ("completed", 100 - bad))
    }


GPU = f'{AGENT},gpu="2"'
JOB = f'{AGENT},slurmjobid="4711"'
WARNING = {"severity": "warning"}
G1 = WARNING | {"instance": "g1:9836"}
ALERTS = {
    "ColocdNotThere": Alert(
        {}, {f"coloc_daemon_info{{{COLOCD}}}": "1x60"}, 6, {"severity": "critical"},
        "Nothing is known of colocd. Jobs with --coloc get whole GPUs while it is away.",
    ),
    "ColocAgentNotLinked": Alert(
        {f"coloc_agent_linked{{{AGENT}}}": "0x60"}, {f"coloc_agent_linked{{{AGENT}}}": "1x60"},
        11, G1, "The agent on g1:9836 has no link to colocd.",
    ),
    "ColocNodeSilent": Alert(
        {f'coloc_node_heard_seconds{{{COLOCD},node="g1"}}': "600x60"},
        {f'coloc_node_heard_seconds{{{COLOCD},node="g1"}}': "20x60"},
        6, WARNING | {"instance": "controller:9837", "node": "g1"},
        "colocd has not heard the agent of node g1 for 10m 0s.",
    ),
    "ColocNoSamples": Alert(
        {f"coloc_agent_sample_age_seconds{{{AGENT}}}": "90x60"},
        {f"coloc_agent_sample_age_seconds{{{AGENT}}}": "1x60"},
        6, G1, "The driver on g1:9836 does not answer the agent.",
    ),
    "ColocReportsWait": Alert(
        {f"coloc_agent_spooled_reports{{{AGENT}}}": "3x60"},
        {f"coloc_agent_spooled_reports{{{AGENT}}}": "0x60"},
        31, G1, "3 reports of ended jobs on g1:9836 were not taken by colocd.",
    ),
    "ColocSubmissionsSlow": Alert(
        _slow("0.25"), _slow("0.05"), 40, WARNING,
        "colocd needs 248.5ms for 1 of 100 submissions; slurmctld waits for it.",
    ),
    "ColocOverrun": Alert(
        {f"coloc_job_overrun_bytes{{{JOB}}}": f"{3 * GIB}x60"},
        {f"coloc_job_overrun_bytes{{{JOB}}}": "0x60"},
        3, G1 | {"slurmjobid": "4711"},
        "Job 4711 on g1:9836 holds 3GiB more than it was promised.",
    ),
    "ColocForeignMemory": Alert(
        {f"coloc_gpu_memory_foreign_bytes{{{GPU}}}": f"{2 * GIB}x60"},
        {f"coloc_gpu_memory_foreign_bytes{{{GPU}}}": f"{GIB // 2}x60"},
        11, G1 | {"gpu": "2"}, "Processes of no job hold 2GiB of GPU 2 on g1:9836.",
    ),
    "ColocIdleGPU": Alert(
        {f"coloc_job_idle_seconds{{{JOB}}}": "18000x60"},
        {f"coloc_job_idle_seconds{{{JOB}}}": "3600x60"},
        1, {"severity": "info", "instance": "g1:9836", "slurmjobid": "4711"},
        "Job 4711 on g1:9836 has held a GPU without activity for 5h 0m 0s.",
    ),
    "ColocManyOutOfMemory": Alert(
        _ended(10), _ended(1), 2 * HOUR, WARNING,
        "10% of the runs with a share ran out of GPU memory today.",
    ),
}  # fmt: skip


def _test(name: str, series: dict[str, str], at: int, expected: list[dict[str, Any]]) -> Any:
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{at}m", "alertname": name, "exp_alerts": expected},
        ],
    }


def tests(rules: str) -> str:
    """The file for `promtool test rules`, which reads ``rules`` beside it (JSON is YAML)."""
    found = []
    for name, one in ALERTS.items():
        fires = {"exp_labels": one.labels, "exp_annotations": {"summary": one.summary}}
        found += [_test(name, one.due, one.at, [fires]), _test(name, one.quiet, one.at, [])]
    return json.dumps({"rule_files": [rules], "evaluation_interval": "1m", "tests": found})
