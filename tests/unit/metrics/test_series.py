# SPDX-License-Identifier: Apache-2.0
"""The catalog, histograms, and the text that prometheus_client makes of series."""

import re

import pytest

from slurm_coloc.adapters.prometheus.text import Writer
from slurm_coloc.core.metrics import catalog as m
from slurm_coloc.core.metrics.cluster import of_cluster
from slurm_coloc.core.metrics.series import Histogram, Series, single
from slurm_coloc.core.records.queries import OpenRuns, Tally

EVERY = [*(each for group in m.OF_AGENT.values() for each in group), *m.OF_COLOCD]
OPEN = "application/openmetrics-text; version=1.0.0"


def test_names_are_prometheus_own() -> None:
    names = [each.name for each in EVERY]
    assert len(set(names)) == len(names)
    for each in EVERY:
        assert re.fullmatch(r"[a-z][a-z0-9_]*|nvidia_gpu_job[IU]i?d", each.name), each.name
        assert not each.name.endswith(("_total", "_info", "_bucket"))
        assert each.text.endswith(".") or each.text.endswith(")")
        assert bool(each.bounds) == (each.kind == "histogram")
        assert "le" not in each.labels


def test_a_value_is_in_the_bucket_that_ends_at_it() -> None:
    found = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        found.see(value)
    assert found.buckets() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]
    assert found.total == 14.0


def test_a_histogram_survives_the_channel() -> None:
    found = Histogram(m.SUBMISSION.bounds)
    found.see(0.003)
    again = Histogram.of(m.SUBMISSION, found.plain())
    assert (again.buckets(), again.total) == (found.buckets(), found.total)
    with pytest.raises(ValueError, match="counts"):
        Histogram.of(m.SUBMISSION, {"counts": [1], "total": 1.0})


def test_every_kind_is_written() -> None:
    times = Histogram(m.PROLOG.bounds)
    times.see(0.004)
    series = [
        Series(m.AGENT, [(("9.9",), 1.0)]), single(m.OVERRUNS, 3.0), single(m.PROLOG, times),
        Series(m.GPU_JOBS, [(("0", "GPU-1", ""), 2.0)]), Series(m.JOB_IDLE),
    ]  # fmt: skip
    text, content_type = Writer().text(series, OPEN)
    lines = text.decode().splitlines()
    assert content_type.startswith("application/openmetrics-text")
    for line in (
        'coloc_agent_info{version="9.9"} 1.0',
        "coloc_overruns_total 3.0",
        'coloc_prolog_seconds_bucket{le="0.005"} 1.0',
        "coloc_prolog_seconds_count 1.0",
        'coloc_gpu_jobs{GPU_I_ID="",UUID="GPU-1",gpu="0"} 2.0',
        "# EOF",
    ):
        assert (
            line in lines
            or line.replace('GPU_I_ID="",UUID="GPU-1",gpu="0"', 'gpu="0",UUID="GPU-1",GPU_I_ID=""')
            in lines
        ), text
    assert "coloc_job_idle_seconds" not in text.decode()  # no series: no metric


def test_the_older_format_is_written_too() -> None:
    text, content_type = Writer().text([single(m.OVERRUNS, 3.0)], "")
    assert content_type.startswith("text/plain")
    assert "coloc_overruns_total 3.0" in text.decode()
    assert "# EOF" not in text.decode()


STATUS = {
    "mode": "on", "role": "active", "cluster": "lab", "slurm": None, "gpu_nodes": 2, "gpus": 8,
    "shards": 312, "linked_nodes": 1, "submissions": Histogram(m.SUBMISSION.bounds).plain(),
    "links": [{"node": "g1", "last_s": 90.0}, {"node": "g2", "last_s": None}],
}  # fmt: skip


def test_colocd_from_its_tallies() -> None:
    tallies = [
        Tally("decisions", ("collocate", "fits", "on"), 7.0),
        Tally("runs", ("completed", "none", "yes"), 5.0),
        *(Tally("estimate", (str(end),), 1.0) for end in (16, 20, 21, 80)),
        Tally("estimate", (), 7.7),
    ]
    found = {
        each.metric: each.rows
        for each in of_cluster("1", STATUS, tallies, [OpenRuns("RUNNING", "collocate", 3)], 2, 100)
    }
    assert set(found) == set(m.OF_COLOCD)
    assert found[m.DAEMON] == [(("1", "on", "active", "lab", ""), 1.0)]
    assert found[m.DECISIONS] == [(("collocate", "fits", "on"), 7.0)]
    assert found[m.RUNS] == [(("RUNNING", "collocate"), 3.0)]
    assert found[m.NODE_SEEN] == [(("g1",), 10.0)]
    ((_, ratios),) = found[m.PEAK_TO_ESTIMATE]
    assert isinstance(ratios, Histogram)
    # Bin 16 ends at 0.8, 20 at 1, 21 at 1.05; 80 is beyond the last bound.
    up_to = dict(ratios.buckets())
    assert (up_to["0.75"], up_to["0.9"], up_to["1.0"], up_to["1.05"]) == (0, 1, 2, 3)
    assert (up_to["2.0"], up_to["+Inf"], ratios.total) == (3, 4, 7.7)


def test_every_bound_of_a_ratio_ends_a_bin() -> None:
    for bound in m.RATIOS:
        assert abs(bound * 20 - round(bound * 20)) < 1e-9
