# SPDX-License-Identifier: Apache-2.0
"""From a run's end to the next submission's reservation, and what must not be learned."""

import asyncio
import base64
import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, parse_config
from slurm_coloc.core.records.culprits import NamedCulprit
from slurm_coloc.core.records.runs import Report, Run, StoredDecision
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.slurm.script import normal, script_fingerprint
from slurm_coloc.estimate.request import WARM_UP
from slurm_coloc.flow.submit.decide import Decider
from slurm_coloc.flow.submit.tickets import Texts
from slurm_coloc.flow.watch.record import Recorder
from tests.unit.flow.test_store import run_row
from tests.unit.flow.texts import teach

GPU, OTHER = "GPU-1", "GPU-2"
PACKED = base64.b64encode(zlib.compress(WARM_UP.encode())).decode()
SHAPE = ClusterShape(
    "c",
    (24, 11, 5),
    (NodeShape("g1", ("main",), (), "a100", 2, 78, cpus=32),),
    (PartitionShape("main", default=True, exclusive_user=True),),
)
SCRIPT = "#!/bin/bash\npython train.py\n"


class Desk:
    """colocd's decider and recorder on one database, without daemons."""

    def __init__(self, folder: Path, **estimate: object) -> None:
        self.config: Config = parse_config(
            {"version": 1, "mode": {"default": "on"}, "estimate": estimate}, "test"
        )
        self.store = Store.open(folder)
        self.texts = Texts()
        self.decider = Decider(self.config, self.store, texts=self.texts)
        self.recorder = Recorder(self.config, self.store, lambda node: "a100")
        self.jobs = 0

    def submit(self, uid: int = 1000, gpus: int = 1, **coloc: object) -> tuple[StoredDecision, str]:
        """The decision and the line for the user."""
        options = {"summary": PACKED, "batch_size": 40_000, **coloc}
        message: dict[str, Any] = {
            "uid": uid,
            "tres_per_node": f"gres/gpu:{gpus}",
            "coloc": {name: value for name, value in options.items() if value is not None},
        }
        if "summary" in message["coloc"]:
            teach(self.texts, self.config.estimate, uid, message["coloc"])
        answer = asyncio.run(self.decider.submit(message, SHAPE))
        row = self.store.decisions.of(answer["decision"])
        assert row is not None
        return row, answer["message.1"]

    def run(
        self,
        decision: StoredDecision,
        peak_mib: int | None,
        outcome: Outcome = Outcome.COMPLETED,
        *,
        lasted_s: float = 600.0,
        gpu: str = GPU,
        alone: bool = True,
        ends: bool = True,
        used: Any = None,
    ) -> Run:
        """A run of a decision that ends now; ``used``: what its agent saw of it."""
        self.jobs += 1
        now = time.time()
        tres = "gres/gpu:1"
        if decision.action == "collocate":
            tres = f"gres/shard:{decision.shards}"
        start_s = now - lasted_s
        row = Run(
            decision=decision.id, job_id=self.jobs, restart=0, uid=decision.uid,
            submit_s=start_s, state="RUNNING", node="g1", tres=tres, start_s=start_s,
        )  # fmt: skip
        self.store.runs.see(row)
        self.store.runs.launched(decision.id, self.jobs, 0, [gpu])
        run = self.store.runs.of_job(self.jobs)[0]
        if ends:
            view = JobView(self.jobs, outcome.value.upper(), start_s=start_s, end_s=now)
            report = Report(peak_mib=peak_mib, alone=alone, gpu_uuids=(gpu,), used=used)
            if used is not None:
                body = json.dumps(asdict(report))
                self.store.reports.add("c", self.jobs, 0, "g1", now, body)
            self.recorder.end(run, outcome, view, report)
        return self.store.runs.of_job(self.jobs)[0]

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    one = Desk(tmp_path)
    yield one
    one.close()


def test_a_measured_run_corrects_the_next(desk: Desk) -> None:
    first, line = desk.submit()
    assert "earlier" not in line
    peak = first.memory_mib - 400
    assert desk.run(first, peak).peak_mib == peak
    second, line = desk.submit()
    assert second.learning is not None
    assert f"1 earlier run of this model used {peak} MiB at most" in second.learning["why"]
    assert f"(earlier runs: {peak / 1024:.1f}, at most" in line
    assert second.memory_mib == peak
    assert second.features["without_mib"] == first.memory_mib, "as it was told"
    assert "without_mib" not in first.features
    assert peak < second.upper_mib < first.upper_mib
    assert desk.submit(uid=1001)[0].memory_mib == first.memory_mib, "another user's"
    assert desk.submit(gpus=2)[0].memory_mib == first.memory_mib, "another request"
    assert desk.submit(optimizer="sgd")[0].memory_mib != peak
    other = desk.submit(batch_size=60_000)[0].learning
    assert other and "with batch size 40000 used" in other["why"]


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    desk = Desk(tmp_path, history=False)
    first, _ = desk.submit()
    desk.run(first, 2000)
    assert desk.submit()[0].memory_mib == first.memory_mib
    assert "needs estimate.history" in desk.submit(summary=None, auto=True, script=SCRIPT)[1]
    desk.close()


@pytest.mark.parametrize(
    ("outcome", "lasted_s"),
    [(Outcome.FAILED, 600), (Outcome.CANCELLED, 600), (Outcome.COMPLETED, 5)],
)
def test_a_run_that_ended_early_never_lowers(desk: Desk, outcome: Outcome, lasted_s: float) -> None:
    first, _ = desk.submit()
    desk.run(first, 1950, outcome, lasted_s=lasted_s)
    assert desk.submit()[0].upper_mib == first.upper_mib
    high = first.upper_mib + 500
    desk.run(first, high, outcome, lasted_s=lasted_s, gpu=OTHER)
    assert desk.submit()[0].upper_mib > high


def test_what_a_neighbour_may_have_used_is_not_learned(desk: Desk) -> None:
    first, _ = desk.submit()
    assert desk.run(first, 9000, alone=False).peak_mib is None
    desk.run(first, 1, ends=False, lasted_s=300)  # goes on beside the next
    assert desk.run(first, 9000).peak_mib is None
    assert desk.run(first, 2200, gpu="GPU-3").peak_mib == 2200


def test_who_came_and_went_within_a_second_may_have_been_there(desk: Desk) -> None:
    """Slurm's clock has whole seconds, and the driver's sum has everybody's memory."""
    first, _ = desk.submit()
    desk.run(first, 12_000, lasted_s=0)
    assert desk.run(first, 15_900, Outcome.OOM_GPU, lasted_s=0).peak_mib is None
    assert desk.run(first, 2200, lasted_s=0, gpu="GPU-3").peak_mib == 2200


def test_what_ended_in_the_second_of_the_start_was_before(desk: Desk) -> None:
    first, _ = desk.submit()
    end_s = desk.run(first, 2000).end_s
    other = run_row(decision="other", job_id=99, node=None)
    assert len(desk.store.runs.beside(other, end_s - 1, end_s + 10)) == 1
    assert desk.store.runs.beside(other, end_s, end_s + 10) == []


def test_an_out_of_memory_keeps_out_of_that_share_until_it_was_measured(desk: Desk) -> None:
    first, _ = desk.submit()
    desk.run(first, None, Outcome.OOM_GPU)
    second, line = desk.submit()
    assert second.action == "exclusive" and "this model ran out of GPU memory" in line
    peak = first.shards * 1024 + 300
    assert desk.run(second, peak, alone=False).peak_mib == peak, "it had the GPU whole"
    third, _ = desk.submit()
    assert third.action == "collocate" and third.shards > first.shards


def test_a_peak_above_a_gpu_is_told(desk: Desk) -> None:
    first, _ = desk.submit()
    desk.run(first, 39_900)
    second, line = desk.submit()
    assert second.action == "exclusive"
    assert "1 earlier run of this model used 39900 MiB at most" in second.detail
    assert line.startswith("whole GPU: it needs more than a share")


def test_auto(desk: Desk) -> None:
    asked: dict[str, object] = {"summary": None, "batch_size": None, "auto": True}
    first, line = desk.submit(**asked, script=SCRIPT)
    assert first.reason == "first-run"
    assert SCRIPT not in str(first), "the text is not stored"
    desk.run(first, 9000)
    second, line = desk.submit(**asked, script=SCRIPT + "# a comment\n")
    assert (second.action, second.estimator) == ("collocate", "history")
    assert "(earlier runs: at most 9.4)" in line
    for other in (
        {"script": SCRIPT + "true\n"},
        {"script": SCRIPT, "arguments": ["x"]},
        {"script": SCRIPT, "uid": 1001},
        {"script": SCRIPT, "batch_size": 8},
        {"script": SCRIPT, "alloc_conf": "expandable_segments:True"},
    ):
        assert desk.submit(**{**asked, **other})[0].reason == "first-run"  # type: ignore[arg-type]
    assert desk.submit(**asked)[0].reason == "no-script"


def taken(*memory_mib: int) -> dict[str, object]:
    """The record of a run whose memory went like this, on a card of 40 GiB."""
    return {
        "since_s": time.time() - 600, "neighbours": [], "why": {}, "complete": True,
        "gpus": [{"uuid": GPU, "peak_mib": max(memory_mib), "total_mib": 40960}],
        "series": {"start_s": 1.0, "step_s": 5, "memory_mib": memory_mib, "smact": []},
    }  # fmt: skip


def test_memory_that_the_user_names(desk: Desk) -> None:
    """In place of the estimate, of none, and of what history says; a run is remembered all the
    same, and an out-of-memory keeps out of such a share."""
    plain, _ = desk.submit()
    assert plain.upper_mib is not None
    less, line = desk.submit(memory_mib=100)
    assert (less.action, less.shards, less.upper_mib, less.estimator) == (
        "collocate",
        5,
        100,
        "user",
    )
    assert line.endswith("(as --coloc-memory says)")
    assert f"without it {plain.upper_mib} MiB would be reserved" in less.features["notes"]
    more, line = desk.submit(memory_mib=20_000)
    assert (more.shards, "without it" in more.features["notes"]) == (20, False)
    assert desk.submit(memory_mib=39_500)[0].reason == "fills-gpu"
    desk.run(more, 9_000)
    learned, line = desk.submit()
    assert learned.memory_mib == 9_000
    assert desk.submit(memory_mib=20_000)[0].shards == 20
    failed = desk.submit(uid=1001, memory_mib=6_000)[0]
    desk.run(failed, 6_000, Outcome.OOM_GPU)
    assert desk.submit(uid=1001, memory_mib=6_000)[0].reason == "history-oom"
    assert desk.submit(uid=1001, memory_mib=12_000)[0].shards == 12


def test_the_site_s_share_where_there_is_no_estimate(tmp_path: Path) -> None:
    """Of a text that cannot be read and a script that never ran; an out-of-memory keeps out of the
    next one. A named memory counts before it, and by default there is none."""
    desk = Desk(tmp_path, unknown_share_mib=8_000)
    damaged = base64.b64encode(zlib.compress(b"no model\n")).decode()
    first, line = desk.submit(summary=damaged, batch_size=None)
    assert (first.action, first.shards, first.estimator) == ("collocate", 8, "site")
    assert line.endswith("(no estimate: the site's share)")
    assert "cannot be used" in first.features["notes"]
    auto = {"summary": None, "auto": True, "batch_size": None, "script": SCRIPT}
    script = desk.submit(**auto)[0]
    assert (script.shards, script.estimator) == (8, "site")
    desk.run(script, 3_000)
    assert desk.submit(**auto)[0].shards < 8, "what was measured counts"
    assert desk.submit(**auto, memory_mib=20_000)[0].shards == 20
    assert desk.submit()[0].estimator != "site", "a text with an estimate has its own"
    desk.run(first, 8_000, Outcome.OOM_GPU)
    assert desk.submit(summary=damaged, batch_size=None)[0].reason == "history-oom"
    assert desk.submit(uid=1001, summary=damaged, batch_size=None)[0].shards == 8
    missing = desk.submit(summary=None, batch_size=None)[0]
    assert (missing.action, missing.reason) == ("exclusive", "no-summary")
    desk.close()


def test_memory_without_a_model(desk: Desk) -> None:
    auto = {"summary": None, "auto": True, "batch_size": None, "script": SCRIPT}
    assert desk.submit(**auto)[0].reason == "first-run"
    named, line = desk.submit(**auto, memory_mib=10_240)
    assert (named.action, named.shards) == ("collocate", 10)
    assert line == "shares a GPU: 10.0 of 39.0 GiB (as --coloc-memory says)"
    desk.run(named, 3_000)
    assert desk.submit(**auto)[0].memory_mib == 3_000
    assert desk.submit(**auto, memory_mib=10_240)[0].shards == 10
    bare = {"summary": None, "auto": True, "batch_size": None, "kind": "salloc"}
    assert desk.submit(**bare, memory_mib=10_240)[0].shards == 10


def test_who_names_memory_without_a_model_is_known_again(desk: Desk) -> None:
    """salloc has no script: what such a run did to a neighbour, and an out-of-memory, count for
    this user's next one, and for nobody else's."""
    blame = {"version": 1, "mode": {"default": "on"}, "blame": {"culprit": "exclusive"}}
    desk.decider = Decider(parse_config(blame, "test"), desk.store, texts=desk.texts)
    bare = {"summary": None, "auto": True, "batch_size": None, "kind": "salloc"}
    small = desk.submit(uid=1002, **bare, memory_mib=6_000)[0]
    desk.run(small, 6_000, Outcome.OOM_GPU)
    assert desk.submit(uid=1002, **bare, memory_mib=6_000)[0].reason == "history-oom"
    assert desk.submit(uid=1002, **bare, memory_mib=8_000)[0].action == "collocate"
    first = desk.submit(**bare, memory_mib=6_000)[0]
    desk.store.culprits.add(
        NamedCulprit(
            decision=first.id, job_id=1, restart=0, uid=1000, fingerprint=first.fingerprint or "",
            victim_decision="v", victim_job=2, victim_restart=0, held_mib=30_000,
            promised_mib=6_144, at_s=time.time(),
        )
    )  # fmt: skip
    assert desk.submit(**bare, memory_mib=7_000)[0].reason == "held-more"
    assert desk.submit(uid=1001, **bare, memory_mib=7_000)[0].action == "collocate"


def test_memory_beside_a_summary_that_cannot_be_used(desk: Desk) -> None:
    broken = base64.b64encode(zlib.compress(b"no summary")).decode()
    named, _ = desk.submit(summary=broken, memory_mib=10_240)
    assert (named.action, named.shards) == ("collocate", 10)
    assert "the model summary cannot be used" in named.features["notes"]


def test_a_card_that_a_framework_took_at_once_is_not_learned(desk: Desk) -> None:
    """JAX with its preallocation: what the model needs is not known, and its owner is told."""
    asked: dict[str, object] = {"summary": None, "batch_size": None, "auto": True}
    first, _ = desk.submit(**asked, script=SCRIPT)
    run = desk.run(first, None, used=taken(400, 30720, 30720, 30720, 30720))
    [event] = [one for one in desk.store.events(first.id, run.job_id) if one.kind == "history"]
    assert "took most of the GPU at once" in event.text
    second, _ = desk.submit(**asked, script=SCRIPT)
    assert second.reason == "first-run"
    desk.run(second, None, used=taken(400, 5000, 9000, 9000, 9000))
    assert desk.submit(**asked, script=SCRIPT)[0].action == "collocate"


def test_history_that_cannot_be_read_costs_no_submission(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = desk.submit()

    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(desk.store.peaks, "of", broken)
    assert desk.submit()[0].upper_mib == first.upper_mib


def test_forgotten_with_the_history(desk: Desk) -> None:
    first, _ = desk.submit()
    desk.run(first, 2200)
    desk.store.forget_history(time.time() + 10)
    assert desk.submit()[0].memory_mib == first.memory_mib


def test_what_counts_of_a_script() -> None:
    same = "#!/bin/bash\n#SBATCH --job-name=x\n\npython train.py   \n  # note\n"
    assert normal(same) == normal(SCRIPT)
    assert normal("#!/bin/sh\npython train.py") != normal(SCRIPT)


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_arguments_are_kept_apart(one: list[str], two: list[str]) -> None:
    same = script_fingerprint(1, SCRIPT, one) == script_fingerprint(1, SCRIPT, two)
    assert same == (one == two)
    assert script_fingerprint(1, SCRIPT, one) != script_fingerprint(2, SCRIPT, one)


@pytest.mark.parametrize(("beside", "known"), [(0, True), (2, False)])
def test_sm_activity_alone_is_learned(desk: Desk, beside: int, known: bool) -> None:
    """Beside others a training keeps the GPU less busy than alone: that says nothing."""
    first, _ = desk.submit()
    used = {
        "since_s": time.time() - 600, "neighbours": [], "why": {},
        "gpus": [{"uuid": GPU, "peak_mib": 3000, "smact_mean": 0.321, "smact_how": "alone",
                  "neighbours_max": beside}],
    }  # fmt: skip
    desk.run(first, 3000, used=used)
    second, _ = desk.submit()
    assert (second.smact == 0.321) is known
    smaller, _ = desk.submit(batch_size=20_000)
    assert smaller.smact != 0.321
