# SPDX-License-Identifier: Apache-2.0
"""The short way to an operator's shapes gives what FakeTensorMode gives."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: coloc summarize needs it")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from slurm_coloc.estimate.replay.recording import Event, Recording  # noqa: E402
from slurm_coloc.summarize.fake.mode import fake  # noqa: E402
from slurm_coloc.summarize.fake.shapes import ACTIVE, Shapes  # noqa: E402
from slurm_coloc.summarize.step import record  # noqa: E402


class Branches(nn.Module):
    """Convolutions of every kind, norms, gates, a concatenation, products, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.groups = nn.GroupNorm(4, 16)
        self.bare = nn.GroupNorm(1, 16, affine=False)
        self.wide = nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=4, bias=False)
        self.each = nn.Conv2d(16, 16, (1, 5), padding=(0, 2), groups=16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.gate = nn.Linear(16, 16)
        self.after = nn.LayerNorm(24)
        self.qkv = nn.Linear(24, 72)
        self.head = nn.Linear(24, 10)
        self.scale = nn.Parameter(torch.ones(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        x = self.groups(x) + self.bare(x.transpose(2, 3)).transpose(2, 3)
        gate = torch.sigmoid(self.gate(x.mean((2, 3))))
        x = F.gelu(self.wide(x)) * gate[:, :, None, None] + F.silu(self.each(x))
        x = torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(self.up(x), 4)], 1)
        x = self.after(x.flatten(2).transpose(1, 2).contiguous()) * self.scale
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 4, 6).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape) + x
        return self.head(F.hardswish(x).mean(1))


@pytest.fixture(params=["one", "other"])
def size(request: Any) -> Iterator[tuple[int, ...]]:
    yield {"one": (4, 3, 32, 32), "other": (3, 3, 48, 32)}[request.param]


def recorded(size: tuple[int, ...], precision: str = "fp32") -> Recording:
    with fake():
        model = Branches().train()
        images, classes = torch.randn(size), torch.zeros(size[0], dtype=torch.long)
        return record(
            model, (images,), lambda out: F.cross_entropy(out, classes), precision=precision
        )


def ordered(step: Recording) -> list[Event]:
    """Frees that follow each other, sorted: autocast drops its copies in the order of addresses."""
    events: list[Event] = []
    for free, group in groupby(step.events, lambda event: isinstance(event, int) and event < 0):
        found = list(group)
        events += sorted(found) if free else found
    return events


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_the_same_events(
    size: tuple[int, ...], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    own = Shapes.__call__

    def counted(self: Shapes, *given: Any) -> Any:
        found = own(self, *given)
        if found is not NotImplemented:
            asked.append(given[0])
        return found

    monkeypatch.setattr(Shapes, "__call__", counted)
    short = recorded(size, precision)
    assert len(set(asked)) > 20
    monkeypatch.setattr(Shapes, "__call__", lambda *given: NotImplemented)
    long = recorded(size, precision)
    assert ordered(long) == ordered(short)
    assert replace(long, events=()) == replace(short, events=())


def test_known_values_stay_known_until_they_are_written() -> None:
    with fake():
        rates = torch.linspace(0, 0.3, 4)
        assert [round(float(x), 1) for x in rates] == [0.0, 0.1, 0.2, 0.3]
        assert int((torch.arange(4) + 1).sum()) == 10
        count = torch.zeros(())
        count.add_(torch.randn(()))
        assert count.item() == 0.0  # not known: what lets a step go on
        norm = nn.BatchNorm1d(2).train()
        norm(torch.randn(3, 2))
        assert norm.running_mean is not None and norm.running_mean.constant is None


def test_layer_norm_gives_contiguous_tensors_as_on_cuda() -> None:
    with fake():
        x = torch.randn(2, 8, 4, requires_grad=True).transpose(1, 2)
        out = F.layer_norm(x, (8,))
        assert not x.is_contiguous() and out.is_contiguous() and out.shape == x.shape


def test_a_wrong_shape_is_still_told() -> None:
    with fake(), pytest.raises(RuntimeError):
        nn.Linear(3, 4)(torch.randn(2, 5))
    with fake(), pytest.raises(RuntimeError):
        nn.Conv2d(3, 4, 3)(torch.randn(2, 5, 8, 8))


def test_copies_of_modules() -> None:
    """As nn.TransformerEncoder makes its layers, and scripts their averaged models."""
    with fake():
        first = nn.Linear(3, 4)
        first.bias.requires_grad_(False)
        second = copy.deepcopy(nn.ModuleList([first, first]))
        assert second[0] is second[1] and second[0].weight is not first.weight
        assert isinstance(second[0].weight, nn.Parameter) and not second[0].bias.requires_grad
        assert second[0](torch.randn(2, 3)).shape == (2, 4)


def test_what_was_seen_is_made_again() -> None:
    """With the same layout, in a storage of its own; not of other shapes, types or numbers."""
    roll = torch.ops.aten.roll.default
    with fake():
        shapes = ACTIVE[-1]
        x = torch.randn(2, 3, 4).transpose(0, 1)
        assert shapes(roll, (x, [1], [0]), {}) is NotImplemented
        first = torch.roll(x, 1, 0)
        again = shapes(roll, (x.detach(), [1], [0]), {})
        assert (again.shape, again.stride(), again.dtype) == (
            first.shape, first.stride(), first.dtype,
        )  # fmt: skip
        held = {one.untyped_storage()._cdata for one in (x, first, again)}
        assert len(held) == 3
        for other in (x.contiguous(), x.double(), torch.randn(3, 2, 5)):
            assert shapes(roll, (other, [1], [0]), {}) is NotImplemented
        assert shapes(roll, (x, [2], [0]), {}) is NotImplemented
        whole = torch.randint(9, (5,))
        kinds = [torch.remainder(whole, by).dtype for by in (2, 2.0, 2, 2.0)]
        assert kinds == [torch.int64, torch.float32] * 2


def test_views_and_writes_are_never_made_again() -> None:
    with fake():
        shapes = ACTIVE[-1]
        x = torch.randn(4, 4)
        for _ in range(2):
            assert x.diagonal().untyped_storage()._cdata == x.untyped_storage()._cdata
            assert x.clamp_min_(0) is x
        assert shapes(torch.ops.aten.diagonal.default, (x,), {}) is NotImplemented
        assert shapes(torch.ops.aten.clamp_min_.default, (x, 0), {}) is NotImplemented


def test_a_view_of_known_values_has_no_storage_of_its_own() -> None:
    with fake():
        table = torch.zeros(2, 3, 4)
        table[1, 2] = torch.arange(4.0)
        views = (table.permute(2, 0, 1), table.transpose(0, 1), table[1:], *table.unbind(0))
        for one in views:
            assert one.untyped_storage()._cdata == table.untyped_storage()._cdata
        assert table.permute(2, 0, 1)[3, 1, 2].item() == 3.0
        table.mul_(2).add_(1)
        assert [x.item() for x in views[-1][2]] == [1.0, 3.0, 5.0, 7.0]
        assert torch.zeros(100, 100).constant is None and torch.zeros(64, 64).constant is not None
