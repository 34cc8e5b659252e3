# SPDX-License-Identifier: Apache-2.0
"""`make gpu-estimates` without a GPU: its plan, its rows, how it goes on, its tables."""

import sys
from collections import Counter
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from estimator.measure import __main__ as program
from estimator.measure import measuring, texts
from estimator.measure.plan import CONTEXT, TIMM, Run, of_key, plan
from estimator.measure.rows import HEAD, OK, Row, append, read
from slurm_coloc.adapters.nvml import Gpu, Missing, Process
from slurm_coloc.errors import GpuError, UsageFault
from tests.unit.estimate.texts import example

RUN = Run("timm", "resnet50", 32, "fp32", "adam")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def test_the_plan_is_long_mixed_and_the_same_each_time() -> None:
    runs = plan()
    assert runs == plan() and len(runs) >= 500
    assert len({run.key for run in runs}) == len(runs)
    assert CONTEXT not in runs
    for name in ("precision", "optimizer", "kind"):
        count = Counter(getattr(run, name) for run in runs)
        assert len(count) >= 3 and min(count.values()) >= 60, (name, count)
    # Who stops after a fifth has seen all kinds.
    assert min(Counter(run.kind for run in runs[:100]).values()) >= 15
    for model in TIMM:
        assert len({run.batch for run in runs if run.model == model}) >= 4


def test_a_key_is_its_run() -> None:
    assert all(of_key(run.key) == run for run in plan())
    with pytest.raises(ValueError):
        of_key("timm:resnet50:32")


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "measured.csv"
    first = Row(RUN.key, OK, 5262, "process", 3400, 3000, 12.5, 'A "card", 40 GB', "1", "2", "12")
    second = Row("other", "failed: RuntimeError: two\nlines")
    append(path, first)
    append(path, second)
    assert read(path) == [first, Row("other", "failed: RuntimeError: two lines")]
    assert path.read_text().splitlines()[0] == ",".join(HEAD)


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    append(path, Row("a", OK, 1000))
    append(path, Row("b", OK, 1000))
    path.write_text(path.read_text()[:-9])
    assert [row.key for row in read(path)] == ["a"]
    append(path, Row("b", OK, 2000))
    assert [(row.key, row.nvml_mib) for row in read(path)] == [("a", 1000), ("b", 2000)]


def test_another_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("model,mib\nvgg16,8222\n")
    with pytest.raises(UsageFault, match="not a table of measured runs"):
        read(path)


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    runs = plan()[:4]
    asked: list[Run] = []

    def one(run: Run) -> Row:
        asked.append(run)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return Row(run.key, OK if len(asked) != 2 else "oom")

    with pytest.raises(KeyboardInterrupt):
        measuring.go_on(runs, path, one, tell=lambda line: None)
    rows = measuring.go_on(runs, path, one, tell=lambda line: None)
    assert asked == [*runs[:3], *runs[2:]]  # what ran out of memory does so again: not tried twice
    assert [row.key for row in rows] == [run.key for run in runs]


def test_out_of_time_nothing_is_begun(tmp_path: Path) -> None:
    said: list[str] = []

    def one(run: Run) -> Row:
        raise AssertionError("no time was left")

    assert measuring.go_on(plan(), tmp_path / "x.csv", one, until=0.0, tell=said.append) == []
    assert "out of time" in said[0]


@needs_torch
def test_out_of_time_it_says_what_has_no_recording_yet(tmp_path: Path) -> None:
    """A run without one is no failure then."""
    said: list[str] = []
    runs = plan()[:4]
    assert len({texts.recorded_path(tmp_path, run) for run in runs}) == 4
    texts.plain_path(tmp_path, runs[0]).write_text("there")
    texts.recorded_path(tmp_path, runs[0]).write_text("there")
    texts.make(runs, tmp_path, until=0.0, tell=said.append)
    assert "3 of 4 runs have no recording yet" in said[0] and len(said) == 1
    assert texts.plain_path(tmp_path, runs[0]).read_text() == "there"


@needs_torch
def test_what_is_there_needs_no_time(tmp_path: Path) -> None:
    said: list[str] = []
    runs = plan()[:2]
    for run in runs:
        texts.plain_path(tmp_path, run).write_text("there")
        texts.recorded_path(tmp_path, run).write_text("there")
    texts.make(runs, tmp_path, until=0.0, tell=said.append)
    assert said == []


class Card:
    """NVML as it looks before the training and while it holds its memory."""

    def __init__(self, after: tuple[Process, ...] | Missing) -> None:
        self._after = after
        self.looks = 0

    def look(self) -> Gpu:
        self.looks += 1
        held = self.looks > 1
        used, processes = (5700, self._after) if held else (500, ())
        return Gpu("GPU-1", 0, "0", "A card", 40000, 40000 - used, used, processes)


def child(folder: Path, code: str) -> tuple[str, ...]:
    """A program in place of the training."""
    path = folder / "child.py"
    path.write_text("import json, os, sys, time\n" + code)
    return (sys.executable, str(path))


ANSWER = """
card = os.environ["CUDA_VISIBLE_DEVICES"]
told = dict(status="ok", reserved_mib=3400, allocated_mib=3000, card=card, cuda="12",
            torch=sys.stdin.readline().strip())
print(json.dumps(told), flush=True)
sys.stdin.read()
"""


def test_memory_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is looked up by its own number, not by what the card has in use."""
    card = Card(())
    seen: list[int] = []
    popen = measuring.subprocess.Popen

    class Watched(popen):  # type: ignore[type-arg,misc,valid-type]
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **more)
            seen.append(self.pid)
            if len(seen) == 1:  # the one that waits for the next run has nothing there
                card._after = (Process(1, 99), Process(self.pid, 5262))

    monkeypatch.setattr(measuring.subprocess, "Popen", Watched)
    with measuring.Children("GPU-1", 1, child(tmp_path, ANSWER)) as children:
        row = measuring.measured(RUN, card.look, "570", children)
    assert (row.status, row.nvml_mib, row.how) == (OK, 5262, "process")
    assert (row.reserved_mib, row.allocated_mib, row.driver) == (3400, 3000, "570")
    assert row.card == "GPU-1" and row.torch == RUN.key  # the child's own words
    assert len(seen) == 2 and card.looks == 2


@pytest.mark.parametrize("after", [(), (Process(1, 99),), Missing("MIG")])
def test_memory_of_the_card_where_the_process_is_not_listed(
    tmp_path: Path, after: tuple[Process, ...] | Missing
) -> None:
    with measuring.Children("GPU-1", 1, child(tmp_path, ANSWER)) as children:
        row = measuring.measured(RUN, Card(after).look, "", children)
    assert (row.status, row.nvml_mib, row.how) == (OK, 5200, "card")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("print(json.dumps({'status': 'oom'}))", "oom"),
        ("sys.exit(3)", "failed: exit 3"),
        ("print('no json')", "failed: exit 0"),
        ("print('[]')", "failed: exit 0"),
        ("time.sleep(600)", "timeout"),
    ],
)
def test_a_run_that_gives_no_figure(tmp_path: Path, code: str, status: str) -> None:
    limit_s = 1.0 if status == "timeout" else 60.0
    with measuring.Children("GPU-1", 1, child(tmp_path, code)) as children:
        row = measuring.measured(RUN, Card(()).look, "", children, limit_s=limit_s)
    assert row.status == status and row.nvml_mib == 0


def texts_folder(folder: Path) -> Path:
    (folder / "timm-resnet50.plain").write_text(example("resnet50_torchinfo.txt"))
    return folder


def test_tables_name_card_driver_and_torch(tmp_path: Path) -> None:
    rows = [
        Row(CONTEXT.key, OK, 1000, "process", 400, card="A100", driver="570", torch="2.9"),
        Row(RUN.key, OK, 4000, "process", 3400, card="A100", driver="570", torch="2.9", cuda="12"),
        Row("timm:vgg16:8:fp32:sgd", "oom"),
        Row("timm:vgg11_bn:8:fp32:sgd", OK, 9000, card="A100"),  # no text
    ]
    text = program.tables([rows[0], rows[3], *rows[1:3]], texts_folder(tmp_path))
    head = "1 measured runs on A100, driver 570, torch 2.9, CUDA 12; context 600 MiB"
    assert text.startswith(head)
    assert "| text | 1 of 1 |" in text and "timm, 1 runs" in text and "fp32, 1 runs" in text
    assert "amp" not in text
    assert "nothing measured" in program.tables(rows[:1], tmp_path)


def test_hopper_has_larger_workspaces() -> None:
    row = Row(CONTEXT.key, OK, 1000, reserved_mib=400, card="NVIDIA H100 80GB HBM3")
    assert program.stack_of([row]).blas == 32 * 2**20
    assert program.stack_of([]).context_mib == program.DRY_CONTEXT_MIB


def test_a_dry_run_has_no_measured_column(tmp_path: Path) -> None:
    text = program.estimates([RUN, plan()[0]], texts_folder(tmp_path))
    assert "| text | 1 of 1 |" in text and "error" not in text and "under" not in text


def test_without_torch_it_says_so_and_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["measure", "--out", str(tmp_path / "out")])
    assert program.main() == 0
    out = capsys.readouterr().out
    assert "534 trainings" in out and "torch" in out and "pip install" in out
    assert not (tmp_path / "out").exists()


@needs_torch
@pytest.mark.parametrize("model", ["64-32x2", "64-32x2-bn-drop"])
@pytest.mark.parametrize("optimizer", ["sgd", "sgd-momentum", "adam", "adamw"])
def test_the_training_trains(model: str, optimizer: str) -> None:
    from estimator.measure.child import train

    train(Run("mlp", model, 8, "fp32", optimizer), device="cpu", steps=2)


@needs_torch
def test_models_are_those_of_their_names() -> None:
    from estimator.measure.models import job, tokens

    made = job(Run("mlp", "64-32x3-bn", 8, "fp32", "sgd"))
    assert sum(p.numel() for p in made.model.parameters()) == (
        64 * 32 + 32 + 2 * (32 * 32 + 32) + 3 * 64 + 32 * 100 + 100
    )
    assert tokens(Run("words", "bert-256x4-128", 1, "fp32", "sgd")) == 128
    assert tokens(RUN) is None


def test_from_plan_to_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole of it with a card and trainings that are stand-ins; a second call measures nothing
    and prints the same tables, and so does a machine without a GPU that has the rows."""
    command = child(tmp_path, ANSWER)
    calls: list[str] = []
    gone: list[bool] = []

    class Nvml(Card):
        def __init__(self) -> None:
            super().__init__(Missing("a stand-in"))

        def __enter__(self) -> "Nvml":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def all(self) -> list[Gpu]:
            if gone:
                raise GpuError("libnvidia-ml.so.1: not found", "no-nvml")
            return [Card(()).look()]

        def driver(self) -> str:
            return "570.1"

        def by_uuid(self, uuids: list[str]) -> list[Gpu]:
            return [self.look()]

    def measured(
        run: Run, look: measuring.Look, driver: str, children: measuring.Children, limit_s: float
    ) -> Row:
        calls.append(run.key)
        return measuring.measured(run, Card(()).look, driver, children, limit_s=limit_s)

    out = tmp_path / "out"
    texts_folder((out / "texts").mkdir(parents=True) or out / "texts")
    monkeypatch.setattr(program, "find_spec", lambda name: name)
    monkeypatch.setattr(program, "Nvml", Nvml)
    monkeypatch.setattr(program, "measured", measured)
    monkeypatch.setattr(program, "Children", partial(measuring.Children, command=command))
    monkeypatch.setattr(program, "plan", lambda: [RUN])
    monkeypatch.setattr(program.texts, "make", lambda runs, folder, until=None: None)
    monkeypatch.setattr(sys, "argv", ["measure", "--out", str(out)])
    assert program.main() == 0
    first = capsys.readouterr().out
    assert "1 measured runs on GPU-1, driver 570.1" in first and "| text | 1 of 1 |" in first
    assert calls == [CONTEXT.key, RUN.key]
    assert program.main() == 0
    assert calls == [CONTEXT.key, RUN.key]
    assert "1 measured runs on GPU-1, driver 570.1" in capsys.readouterr().out
    gone.append(True)
    assert program.main() == 0
    said = capsys.readouterr().out
    assert "no GPU here" in said and "1 measured runs on GPU-1, driver 570.1" in said
    assert "dry run" not in said
