# SPDX-License-Identifier: Apache-2.0
"""What the thesis' workloads reserve by colocd's own estimates. Texts are made up here."""

from pathlib import Path

import pytest

from estimator.evaluate.configs import workloads
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.trace import TraceJob
from tests.paper import facts
from tests.tracelab import own
from tests.tracelab.summaries import linear

GPU = 39
WHERE = facts.folder()
pytestmark = pytest.mark.skipif(WHERE is None, reason="the thesis' workloads are not here")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A text for each workload, of a network that is none of theirs."""
    assert WHERE is not None
    for run in workloads(WHERE / "workloads.csv")[0]:
        (tmp_path / f"{run.text}.plain").write_text(linear(100), encoding="utf-8")
    return tmp_path


def job(name: str, gpus: int = 1) -> TraceJob:
    return TraceJob(1, name, 0.0, gpus, 60.0, 30_000, Activity(0.5))


def test_a_job_reserves_what_its_text_tells_and_nothing_of_its_truth(texts: Path) -> None:
    (one,) = own.asked([job("resnet50|imagenet|bs64")], texts, GPU, several=False)
    assert 0 < one.shards * 1024 < 30_000
    assert one.smact is not None and one.smact != 0.5
    assert one.words == ("--coloc-batch-size=64", "--coloc-optimizer=adam")


def test_several_gpus_are_one_process_each(texts: Path) -> None:
    two = [job("gpt2_large|wiki|bs8", gpus=2)]
    (whole,) = own.asked(two, texts, GPU, several=False)
    (shared,) = own.asked(two, texts, GPU, several=True)
    assert (whole.shards, shared.shards > 0) == (0, True)
    assert shared.words[:2] == ("--coloc-batch-size=4", "--coloc-seq-len=512")


def test_what_has_no_text_is_refused(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="no text of mine"):
        own.asked([job("mine")], texts, GPU, several=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageFault, match=r"no text \S+ in "):
        own.asked([job("resnet50|imagenet|bs64")], empty, GPU, several=True)
