# SPDX-License-Identifier: Apache-2.0
"""Options of the caching allocator: what their text says, and what they do to a figure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.allocator import DRIVER_PAGE, MIB, Rules, replay
from slurm_coloc.estimate.replay.allocconf import rules_of
from slurm_coloc.estimate.replay.stack import Stack
from tests.unit.estimate.texts import example

RESNET = parse_summary(example("resnet50_torchinfo.txt"))


def test_what_the_text_says() -> None:
    assert rules_of("") == (Rules(), ())
    assert rules_of(" expandable_segments:True , pinned_use_background_threads:True") == (
        Rules(expandable=True),
        (),
    )
    assert rules_of("max_split_size_mb:128,backend:native")[0] == Rules(max_split=128 * MIB)
    assert rules_of("backend:cudaMallocAsync")[0].driver_pool
    found, notes = rules_of("garbage_collection_threshold:0.8,max_split_size_mb:20")
    assert found.max_split == 20 * MIB and "garbage_collection_threshold" in notes[0]


def test_divisions() -> None:
    assert rules_of("roundup_power2_divisions:4")[0].divisions == (4,) * 16
    # The example of c10/core/AllocatorConfig.h: MiB of the size, parts.
    found = rules_of("roundup_power2_divisions:[64:8,256:4,1024:4,>:1]")[0].divisions
    assert found == (8,) * 7 + (1, 4, 1, 4) + (1,) * 5
    # 1200 MiB in 4 parts of the power of two below, the docs' own example: 1280.
    assert Rules(divisions=(4,) * 16).rounded(1200 * MIB) == 1280 * MIB
    assert Rules(divisions=(4,) * 16).rounded(1024 * MIB) == 1024 * MIB
    assert Rules(divisions=(4,) * 16).rounded(1000) == 1024


@pytest.mark.parametrize(
    "text",
    ["expandable_segments", "expandable_segments:1", "max_split_size_mb:19", "backend:mine",
     "max_split_size_mb:-5", "max_split_size_mb:9e9", "no_such:1", "a" * 600,
     "roundup_power2_divisions:3", "roundup_power2_divisions:[64:8", "[:]", ":"],
)  # fmt: skip
def test_what_pytorch_refuses(text: str) -> None:
    with pytest.raises(UsageFault):
        rules_of(text)


@given(st.text(max_size=700))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        rules, _ = rules_of(text)
    except UsageFault:
        return
    assert rules.rounded(3 * MIB) >= 3 * MIB


@given(st.integers(1, 2**40), st.sampled_from([1, 2, 4, 8, 16]))
def test_rounding_never_loses(size: int, parts: int) -> None:
    found = Rules(divisions=(parts,) * 16).rounded(size)
    assert size <= found and (found <= max(512, size * (1 + 1 / parts) + 512))


def test_one_pool_of_the_driver() -> None:
    # A small and a large request share the page that the driver gave.
    events = [1000, 12 * MIB, -1, -2, 20 * MIB]
    found = replay(events, Rules(driver_pool=True))
    assert found.reserved == DRIVER_PAGE
    assert replay(events).reserved == (2 + 12 + 20) * MIB


def test_options_reach_the_figure() -> None:
    options = TrainingOptions(32)
    plain = estimate(RESNET, options, stack=Stack(1000)).memory_mib
    one = estimate(RESNET, options, stack=Stack(1000, allocator=Rules(expandable=True)))
    assert plain is not None and one.memory_mib is not None and one.memory_mib < plain


def test_less_than_the_job_takes_when_it_sees_all() -> None:
    """Near its limit PyTorch gives cached blocks back and goes on; below that it ends."""
    options = TrainingOptions(32)
    plain = estimate(RESNET, options, stack=Stack(1000)).memory_mib
    assert plain is not None
    fitting = []
    for less in range(0, plain - 1000, 100):
        stack = Stack(1000, visible_mib=plain - less)
        found = estimate(RESNET, options, stack=stack)
        if found.memory_mib is None:
            assert f"{plain - less} MiB that the process sees" in found.reason
            break
        assert found.memory_mib <= plain - less + 1
        fitting.append(less)
    assert fitting[-1] >= 100
    with pytest.raises(SummaryError):
        Stack(1000, visible_mib=500).peak_mib([512])
