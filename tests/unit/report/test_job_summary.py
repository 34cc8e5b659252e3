# SPDX-License-Identifier: Apache-2.0
"""What a run used as jobstats keeps it: read as its readers do, beside the job's mark."""

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.adapters.slurm.commands.accounting import parse_use
from slurm_coloc.adapters.slurm.commands.parse import limit_s, size_mib
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.report.job_summary import HostUse, comment_with_summary, summary_of
from slurm_coloc.core.slurm.job import mark_in
from slurm_coloc.core.slurm.jobstats import packed
from slurm_coloc.errors import SlurmError

MARK = "coloc:1:0123456789ab:collocate:fits:7"
HOST = HostUse(4, 120.5, 8192.0, 512.0)
GPU: dict[str, Any] = {"uuid": "GPU-1", "peak_mib": 2500, "total_mib": 40960, "smact_mean": 0.25}


def run(*gpus: dict[str, Any], share_mib: int | None = 7168) -> Run:
    return Run(
        "0123456789ab", 7, 0, uid=1, state="COMPLETED", start_s=100.0, end_s=160.0,
        share_mib=share_mib, used=[{"node": "n1", "gpus": list(gpus)}],
    )  # fmt: skip


def read(comment: str) -> dict[str, Any]:
    """As reportseff and jobstats take it: all behind the prefix, whatever follows."""
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(comment[4:])))
    return found


def test_a_share_is_its_reservation() -> None:
    assert summary_of(run(GPU), HOST) == {
        "gpus": 1,
        "nodes": {
            "n1": {
                "cpus": 4,
                "gpu_total_memory": {"0": 7168 * 2**20},
                "gpu_used_memory": {"0": 2500 * 2**20},
                "gpu_utilization": {"0": 25.0},
                "total_memory": 8192 * 2**20,
                "total_time": 120.5,
                "used_memory": 512 * 2**20,
            }
        },
        "total_time": 60,
    }


def test_whole_gpus_are_counted_from_0() -> None:
    found = summary_of(run(GPU, {**GPU, "uuid": "GPU-2", "smact_mean": 1.0}, share_mib=0), HOST)
    assert found is not None
    (node,) = found["nodes"].values()
    assert node["gpu_total_memory"] == {"0": 40960 * 2**20, "1": 40960 * 2**20}
    assert node["gpu_utilization"] == {"0": 25.0, "1": 100.0}


@pytest.mark.parametrize("missing", ("smact_mean", "total_mib"))
def test_what_was_not_measured_is_not_told_as_0(missing: str) -> None:
    assert summary_of(run({**GPU, missing: None}, share_mib=0), HOST) is None


def test_nothing_where_a_part_is_missing() -> None:
    assert summary_of(run(), HOST) is None
    assert summary_of(run(GPU), replace(HOST, used_mib=None)) is None
    several = run(GPU)
    several.used = [*(several.used or ()), {"node": "n2", "gpus": [GPU]}]
    assert summary_of(several, HOST) is None
    waited = run(GPU)
    waited.start_s = None
    assert summary_of(waited, HOST) is None


@given(st.integers(0, 10**6), st.floats(0, 1), st.sampled_from(("", MARK)))
def test_it_is_read_by_others_and_the_mark_stays(peak: int, smact: float, before: str) -> None:
    summary = summary_of(run({**GPU, "peak_mib": peak, "smact_mean": smact}), HOST)
    assert summary is not None
    comment = comment_with_summary(before, summary)
    assert comment is not None and mark_in(comment) == mark_in(before)
    (node,) = read(comment)["nodes"].values()
    assert node["gpu_used_memory"] == {"0": peak * 2**20}
    assert comment_with_summary(comment, summary) == comment, "a second time changes nothing"


@pytest.mark.parametrize("theirs", ("JS1:None", "JS1:Short", "JS1:H4sIAA=="))
def test_one_of_jobstats_is_replaced(theirs: str) -> None:
    new = packed({"gpus": 1})
    assert comment_with_summary(theirs, {"gpus": 1}) == new
    assert mark_in(comment_with_summary(f"{theirs}; {MARK}", {"gpus": 1}) or "") == mark_in(MARK)


@pytest.mark.parametrize("theirs", ("for billing", f"for billing; {MARK}", f"JS1:AA==; x; {MARK}"))
def test_what_a_site_wrote_is_not_lost(theirs: str) -> None:
    assert comment_with_summary(theirs, {"gpus": 1}) is None


@given(st.text(max_size=200))
def test_a_comment_of_any_text_has_a_mark_or_none(text: str) -> None:
    for comment in (text, f"JS1:{text}", packed({"coloc": text}), packed({"coloc": [text]})):
        mark_in(comment)
    bomb = packed({"coloc": MARK, "more": " " * 2**21})
    assert mark_in(bomb) is None, "it is not read to its end"


def row(*values: str) -> str:
    return "\x1f".join(values)


def test_the_job_and_its_steps_in_sacct() -> None:
    text = "\n".join(
        (
            row("9", "4", "00:02:00.500", "billing=4,cpu=4,mem=8G,node=1", "", "1700", MARK),
            row("9.batch", "4", "00:02:00", "cpu=4,mem=8G,node=1", "262144K", "1700", ""),
            row("9.0", "4", "00:00:00", "cpu=4,mem=8G,node=1", "536870912", "1700", ""),
        )
    )
    found = parse_use(text + "\n", 9)
    assert found is not None
    assert (found.host, found.end_s, found.comment) == (HOST, 1700.0, MARK)
    assert parse_use("", 9) is None
    with pytest.raises(SlurmError):
        parse_use("something else", 9)


def test_the_last_task_of_an_array_has_the_array_s_id() -> None:
    """So sacct answers with all tasks, and that one's is not the first."""
    text = "\n".join(
        (
            row("11", "1", "00:01:00", "cpu=1,mem=1G,node=1", "", "1650", "JS1:theirs"),
            row("11.batch", "1", "00:01:00", "cpu=1,mem=1G,node=1", "99999K", "1650", ""),
            row("9", "4", "00:02:00.500", "billing=4,cpu=4,mem=8G,node=1", "", "1700", MARK),
            row("9.batch", "4", "00:02:00", "cpu=4,mem=8G,node=1", "512M", "1700", ""),
        )
    )
    found = parse_use(text, 9)
    assert found is not None
    assert (found.host, found.end_s, found.comment) == (HOST, 1700.0, MARK)
    assert parse_use(text, 12) is None


def test_times_and_sizes() -> None:
    texts = ("1-02:03:04", "02:03:04", "03:04.567", "04", "", "-")
    assert [limit_s(text) for text in texts] == [93784.0, 7384.0, 184.567, 4.0, None, None]
    assert [size_mib(text, "B") for text in ("2048K", "3M", "4G", "1048576", "", "x")] == [
        2.0, 3.0, 4096.0, 1.0, None, None,
    ]  # fmt: skip
    assert size_mib("1000") == 1000, "in Slurm's TRES a bare number is MiB"
