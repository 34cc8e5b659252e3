# SPDX-License-Identifier: Apache-2.0
"""The table that is written while a model runs is torchinfo's."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: coloc summarize needs it")

from torch import nn  # noqa: E402

from slurm_coloc.estimate.parsers import parse_summary  # noqa: E402
from slurm_coloc.summarize.fake.mode import fake  # noqa: E402
from slurm_coloc.summarize.rows import Rows  # noqa: E402
from slurm_coloc.summarize.step import record  # noqa: E402
from slurm_coloc.summarize.table import shown, table  # noqa: E402
from tests.unit.summarize.models import Small, WithKeywords  # noqa: E402


class Twice(nn.Module):
    """Modules in lists, one that runs twice, one that never runs, parameters of its own, a frozen
    one, a class with a long name deep inside."""

    class OneWithAVeryLongNameOfItsOwnInside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.deep = nn.Sequential(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2)))
            self.scale = nn.Parameter(torch.ones(8, 1, 1))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return self.deep(x) * self.scale, 3

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 8, 1, 1))
        self.stem = nn.Conv2d(3, 8, (1, 3), padding=(0, 1), bias=False)
        self.stem.weight.requires_grad_(False)
        self.blocks = nn.ModuleList([self.OneWithAVeryLongNameOfItsOwnInside() for _ in range(3)])
        self.between = nn.ModuleDict({"norm": nn.BatchNorm2d(8), "act": nn.GELU()})
        self.unused = nn.Linear(5, 5)
        self.empty = nn.Sequential()
        self.recurrent = nn.LSTM(8, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.stem(x) + self.token
        for block in self.blocks:
            x = self.between["act"](self.between["norm"](block(x)[0]))
        x, _ = self.recurrent(self.empty(x).flatten(2).transpose(1, 2))
        x = self.head(self.between["act"](x))
        return {"rest": x, "out": self.head(x.repeat(1, 1, 2)).mean(1)}


def images(batch: int = 4) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 8, 8),)


def words() -> tuple[torch.Tensor, ...]:
    return torch.zeros(2, 7, dtype=torch.long), torch.ones(2, 7)


MODELS = [(Small, images), (Twice, images), (WithKeywords, words)]


def torchinfos(model: nn.Module, given: Any) -> str:
    torchinfo = pytest.importorskip("torchinfo", reason="torchinfo is not installed")
    names = ("input_size", "output_size", "num_params", "kernel_size")
    text = torchinfo.summary(
        model, input_data=given, depth=20, mode="train", col_names=names, verbose=0, device="cpu"
    )
    # Since Python 3.11 or 3.12 its units are printed as members of an enumeration.
    return f"{text}\n".replace("Units.MEGABYTES", "M").replace("Units.GIGABYTES", "G")


@pytest.mark.parametrize(("model", "given"), MODELS)
def test_it_is_torchinfos(model: Callable[[], nn.Module], given: Callable[[], Any]) -> None:
    with fake():
        one, read = model().train(), given()
        ours = table(one, read)
        assert ours == torchinfos(one, list(read))


def test_a_recording_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the recorded forward, without torchinfo, which changes no recording."""
    monkeypatch.setitem(sys.modules, "torchinfo", None)
    with fake():
        model, given = Small().train(), images()
        before = record(model, given, lambda out: out.sum())
        rows = Rows(model)
        assert record(model, given, lambda out: out.sum(), rows=rows) == before
        text = shown(model, rows, before.inputs)
        assert text == table(model, given)
        record(model, given, lambda out: out.sum())
        assert len(rows.taken()) == 5, "nothing is noted when the forward is over"
    found = parse_summary(text)
    assert found.format == "torchinfo" and found.batch_in_text == 4 and not found.notes
    assert found.parameters == sum(p.numel() for p in model.parameters())


def test_autocast_halves_no_size() -> None:
    with fake():
        model, given = Small().train(), images()
        rows = Rows(model, whole=True)
        step = record(model, given, lambda out: out.float().sum(), precision="amp", rows=rows)
        assert shown(model, rows, step.inputs) == table(model, given)


def test_a_model_that_does_not_run_is_printed() -> None:
    with fake():
        text = table(Small(), (torch.randn(4, 5, 8, 8),))
    assert text.startswith("Small(") and "Total params: 10,538" in text
    assert parse_summary(text).parameters == sum(p.numel() for p in Small().parameters())


def test_a_module_that_runs_inside_itself() -> None:
    class Down(nn.Module):
        def forward(self, x: torch.Tensor, times: int = 2) -> torch.Tensor:
            return self(x, times - 1) * 2 if times else x

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.out = Down(), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.down(x))

    with fake():
        given = (torch.randn(3, 4),)
        assert table(Wrapper().train(), given) == torchinfos(Wrapper().train(), list(given))
