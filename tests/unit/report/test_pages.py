# SPDX-License-Identifier: Apache-2.0
"""The pages: one file, nothing from outside, no text that is taken for markup."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.cli.listing import listing
from slurm_coloc.cli.report import charts
from slurm_coloc.cli.report.cluster import cluster_page
from slurm_coloc.cli.report.compare import COLUMNS, compare_page
from slurm_coloc.cli.report.job import job_page
from slurm_coloc.cli.report.markup import element, page, table
from slurm_coloc.cli.report.write import write_page
from slurm_coloc.core.recover.next_try import VICTIMS
from slurm_coloc.core.recover.outcome import Blame, Outcome
from slurm_coloc.core.report.cluster import report
from slurm_coloc.errors import UsageFault
from tests.unit.report.test_cluster import run

VOID = {"meta", "link", "br"}


class Reader(HTMLParser):
    """Tags that are open, and everything that a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "action", "xlink:href") or name.startswith("on"):
                self.outside.append(f"{tag} {name}={value}")
        if tag in ("script", "iframe", "object", "link", "img"):
            self.outside.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(text: str) -> Reader:
    assert text.startswith("<!DOCTYPE html>\n")
    found = Reader()
    found.feed(text)
    assert found.open == []
    assert found.outside == []
    assert not re.search(r"https?://|url\(|@import", text)
    return found


def many(count: int = 40) -> list[Any]:
    return [
        run(n / 2, n / 2 + 2, f"G{n % 3}", peak_mib=3000 + 200 * n, uid=1000 + n % 3,
            outcome="oom-gpu" if n % 9 == 0 else "completed", blame="neighbour", idle=n == 5)
        for n in range(count)
    ]  # fmt: skip


def test_the_page_of_a_cluster() -> None:
    found = read(cluster_page(report(many()), 0.0, 86400.0, whose="all users", more=False))
    text = " ".join(found.text)
    for words in (
        "40 runs of --coloc jobs of all users on 3 GPUs", "GPU time that sharing saved",
        "Day by day", "How runs ended", "out of GPU memory", "caused by a neighbour",
        "Estimate and peak", "Speed", "Partitions", "Accounts", "Users", "runs held a GPU",
        "GPUs held without activity",
    ):  # fmt: skip
        assert words in text, words
    assert "left out" not in text.replace("Older", "")


def test_no_runs_at_all() -> None:
    found = read(cluster_page(report([]), 0.0, 86400.0, whose="ada", more=False))
    assert "0 runs of --coloc jobs of ada" in " ".join(found.text)


def test_a_page_does_not_grow_with_its_runs() -> None:
    """Ten times the runs in the same time: nearly the same page."""
    few = cluster_page(report(many(100)), 0.0, 1.0, whose="x", more=False)
    most = [one for one in many(100) for _ in range(10)]
    assert len(cluster_page(report(most), 0.0, 1.0, whose="x", more=True)) < 1.2 * len(few)


def test_names_are_text() -> None:
    evil = '<script>alert(1)</script>"\x1b[2J'
    runs = [run(0, 2, "A", account=evil, partition=evil), run(1, 2, "A", outcome=evil)]
    text = cluster_page(report(runs, lambda uid: evil), 0.0, 1.0, whose=evil, more=False)
    found = read(text)
    assert "<script>alert(1)</script>" in "".join(found.text)
    assert "\x1b" not in text


def test_words_and_no_codes() -> None:
    """Every end and every blame; memory that the job fragmented itself is its own doing."""
    runs = [run(0, 1, "A", outcome=str(one)) for one in Outcome if one is not Outcome.PUT_BACK]
    runs += [run(0, 1, "A", outcome="oom-gpu", blame=str(one)) for one in Blame]
    found = read(cluster_page(report(runs), 0.0, 1.0, whose="x", more=False))
    text = " ".join(found.text)
    for code in (*Outcome, *Blame):
        assert "-" not in code or str(code) not in text, code
    assert f"{len(Blame) + 2} runs ran out of GPU memory, {len(VICTIMS)} by no doing" in text


def test_elements() -> None:
    made = page("t", element("p", "a", element("b", "c", class_="x"), "d", None, "<&>"))
    assert '<p>a<b class="x">c</b>d&lt;&amp;&gt;</p>' in made
    cells = page("t", table(("NAME", "N>"), [("a", 1)]))
    assert '<td>a</td><td class="n">1</td>' in cells


@pytest.mark.parametrize(
    ("value", "end"), [(0, 1), (0.3, 0.4), (1, 1), (2.2, 4), (23, 40), (99, 100), (101, 200)]
)
def test_axes_end_at_round_figures(value: float, end: float) -> None:
    assert charts.nice(value) == pytest.approx(end)


def test_pictures_of_little() -> None:
    read(page("t", charts.columns([], "none"), charts.near([], "none"), charts.near([(1, 1)], "x")))
    read(page("t", charts.line([None, None], "held", ("a", "b"), "gaps", bound=3.0)))


ANSWER = {
    "job_id": 7,
    "run": {"job_id": 7, "array_job_id": None, "array_task": None},
    "reserved_mib": 8192,
    "series": {"step_s": 10, "memory_mib": [100, None, 6000, 6000], "smact": [0.1, None, 0.5, 0.6]},
    "use": {"smact_how": "split"},
    "neighbours": [
        {"job_id": 8, "uid": 0, "start_s": 1.0, "end_s": None, "smact": 0.4},
        {"job_id": None, "uid": None, "start_s": 1.0, "end_s": 2.0, "smact": None},
    ],
    "events": [{"at_s": 1.0, "kind": "overrun", "text": "<b>holds</b> 9 GiB"}],
}


def test_the_page_of_a_job() -> None:
    found = read(job_page(ANSWER, [("Memory", "peak 5.9 GiB"), ("Fence", "<i>")]))
    text = " ".join(found.text)
    for words in (
        "Job 7", "peak 5.9 GiB", "<i>", "GPU memory", "reserved", "SM activity",
        "divided, not measured", "still there", "another user's", "<b>holds</b> 9 GiB",
    ):  # fmt: skip
        assert words in text, words


def test_the_page_of_a_job_that_nobody_measured() -> None:
    answer = ANSWER | {"series": None, "neighbours": [], "events": []}
    assert "no agent measured it" in " ".join(read(job_page(answer, [])).text)


def test_where_a_page_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_page("<p>é</p>", None)
    assert capsys.readouterr().out == "<p>é</p>"
    write_page("<p>é</p>", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == "<p>é</p>"
    assert " kB" in capsys.readouterr().out
    with pytest.raises(UsageFault, match="No such file"):
        write_page("x", tmp_path / "none" / "page.html")


def of_sweep(job_id: int, batch: int, **changes: Any) -> dict[str, Any]:
    """The report of a run of one model at a batch size."""
    run = {
        "job_id": job_id, "restart": 0, "outcome": "completed", "state": "COMPLETED",
        "start_s": 1000.0, "end_s": 1000.0 + 90 * batch, "peak_mib": 200 * batch, "node": "g1",
        "gpus": [1], "gpu_uuids": ["GPU-1"], "array_task": None, "array_job_id": None,
    }  # fmt: skip
    features = {"batch_size": batch, "optimizer": "adam", "precision": "amp"}
    answer = {
        "run": run, "decision": {"fingerprint": "f", "features": features}, "reserved_mib": 6144,
        "use": {"smact": 0.4, "smact_how": "alone", "energy_j": 90_000.0, "nodes": []},
        "neighbours": [], "slower": 1.25, "slower_how": "predicted",
        "series": {"step_s": 30.0, "memory_mib": [100, 200 * batch, None, 90], "smact": [0.1, 0.5]},
    }  # fmt: skip
    return answer | changes


def test_runs_of_one_model_side_by_side() -> None:
    sweep = [of_sweep(7, 16), of_sweep(8, 32), of_sweep(9, 64, series=None)]
    found = read(compare_page(sweep))
    text = " ".join(found.text)
    for words in ("Jobs 7, 8, 9", "16", "adam", "~1.25x", "GPU memory", "SM activity", "48m"):
        assert words in text, words
    assert "not all of one model" not in text
    head, *rows = listing(COLUMNS, sweep, None)
    assert head.split()[:3] == ["JOB", "STATE", "BATCH"]
    assert [row.split()[2] for row in rows] == ["16", "32", "64"]
    assert all(len(row) <= 80 for row in listing(COLUMNS, sweep, 80))


def test_other_models_are_named_and_series_that_nobody_took() -> None:
    other = of_sweep(8, 32, series=None, decision={"fingerprint": "g", "features": {}})
    text = " ".join(read(compare_page([of_sweep(7, 16, series=None), other])).text)
    assert "not all of one model" in text and "None of these runs has figures" in text


def test_every_line_of_a_picture_keeps_its_own_time() -> None:
    """A run that is half as long ends in the middle; each has a colour of its own."""
    drawn = [([1.0, 2.0, 3.0], 20.0, "c0"), ([1.0, None, 3.0], 10.0, "c1")]
    found = charts.lines(drawn, ("0", "1m"), "two runs")
    first, second = (one for one in found.iter("path") if one.get("class", "")[0] == "c")
    ends = [float(re.findall(r"[ML]([\d.]+) ", one.get("d", ""))[-1]) for one in (first, second)]
    assert ends[1] - charts.LEFT == pytest.approx((ends[0] - charts.LEFT) / 2, abs=0.2)
    assert second.get("d", "").count("M") == 2
