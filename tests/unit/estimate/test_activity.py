# SPDX-License-Identifier: Apache-2.0
"""SM activity: what a step computes, what must grow with what, and where nothing is told."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.estimate.activity.cards import CARDS, card_of
from slurm_coloc.estimate.activity.head import predicted
from slurm_coloc.estimate.activity.model import FITTED, WIDTH, activity, predict
from slurm_coloc.estimate.activity.work import Step, Work, step_of
from slurm_coloc.estimate.api import Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import NOT_KNOWN, Layer, Summary
from slurm_coloc.estimate.tokens import with_tokens
from tests.unit.estimate.texts import TORCHSUMMARY, example

A100 = Stack(1000, card="a100-40gb")


def products(name: str) -> float:
    """1e9 multiply-adds of one sample's forward."""
    summary = parse_summary(example(name))
    step = step_of(summary if summary.shapes else with_tokens(summary, 512))
    assert step is not None
    return sum(work.products * work.times for work in step.works) / 1e9


def ask(name: str, stack: Stack = A100, **options: object) -> Estimate:
    given_options = TrainingOptions(**{"batch_size": 32, **options})  # type: ignore[arg-type]
    return estimate(parse_summary(example(name)), given_options, stack=stack)


def test_multiply_adds_are_the_published_ones() -> None:
    # torchvision's and timm's tables: 4.09, 0.39, 4.6 (ViT-S/16, 4.25 without its attention's
    # products); BERT base, 512 tokens: 43.5 of its blocks and 4.8 of attention's products.
    assert products("resnet50_torchinfo.txt") == pytest.approx(4.09, rel=0.02)
    assert products("efficientnet_b0_torchinfo.txt") == pytest.approx(0.39, rel=0.03)
    assert products("vit_small_torchinfo.txt") == pytest.approx(4.6, rel=0.03)
    bert = products("bert_base_repr.txt")
    assert bert == pytest.approx(products("bert_base_counts_repr.txt"), rel=0.01)
    assert 48 <= bert <= 62  # with or without the head over the vocabulary


def test_measured_trainings_are_near() -> None:
    """Solo SM activity of the thesis' trainings on an A100-40GB, as its author published it."""
    for name, batch, measured in (
        ("resnet50_torchinfo.txt", 32, 0.651),
        ("resnet50_torchinfo.txt", 128, 0.711),
        ("efficientnet_b0_torchinfo.txt", 128, 0.610),
        ("bert_base_repr.txt", 32, 0.899),
    ):
        found = ask(name, batch_size=batch)
        assert found.smact_low is not None and found.smact_high is not None
        assert found.smact_low <= measured <= found.smact_high, name


def test_only_where_the_card_is_known_and_the_rows_are_there() -> None:
    told = ask("resnet50_torchinfo.txt")
    assert told.smact is not None and told.dram is not None
    for other in (
        ask("resnet50_torchinfo.txt", Stack(1000)),
        ask("resnet50_torchinfo.txt", Stack(1000, card="b200-180gb")),
    ):
        assert other.memory_mib is not None
        assert other.smact is other.smact_low is other.smact_high is other.dram is None
    two = parse_summary(TORCHSUMMARY + "\n" + TORCHSUMMARY)
    both = estimate(two, TrainingOptions(batch_size=4), stack=A100)
    assert both.smact is None
    horus = estimate(parse_summary(TORCHSUMMARY), TrainingOptions(4), stack=A100, estimator="horus")
    assert horus.smact is None


def test_numbers_that_no_model_has() -> None:
    huge = 2**62
    layer = Layer("Linear", outputs=((huge,) * 20,), parameters=huge)
    summary = Summary("torchinfo", "mlp", huge, huge, (layer,), 1)
    assert predicted(summary, TrainingOptions(huge % 2**31 + 5), "a100-40gb") is None
    hidden = replace(layer, outputs=((1, NOT_KNOWN),))
    assert predicted(replace(summary, layers=(hidden,)), TrainingOptions(1), "a100-40gb") is None


def test_wider_where_nothing_was_measured() -> None:
    def width(found: Estimate) -> float:
        assert found.smact_high is not None and found.smact_low is not None
        return found.smact_high - found.smact_low

    here = width(ask("efficientnet_b0_torchinfo.txt"))
    assert here == pytest.approx(2 * WIDTH["cnn"], abs=0.01)
    assert width(ask("efficientnet_b0_torchinfo.txt", Stack(1, card="h100"))) > 1.2 * here
    assert width(ask("efficientnet_b0_torchinfo.txt", precision="amp")) > 1.2 * here


def test_cards() -> None:
    assert set(CARDS) <= set(GPU_TYPES)
    assert card_of("a100") == CARDS["a100-40gb"] and card_of("H100") == CARDS["h100-80gb"]
    assert card_of("") is None and card_of("tpu") is None
    assert (
        activity(Step((Work(1, 1, 1, 1, True),), 1, 1), "other", 1, "a100", "sgd", "fp32") is None
    )


WORKS = st.builds(
    Work,
    products=st.integers(0, 2**50),
    read=st.integers(1, 2**40),
    made=st.integers(1, 2**40),
    weights=st.integers(0, 2**40),
    dense=st.booleans(),
    times=st.integers(1, 500),
)


@given(
    st.lists(WORKS, min_size=1, max_size=20),
    st.integers(1, 2**31 - 1),
    st.sampled_from(["cnn", "mlp"]),
)
def test_ratios_whatever_the_step(works: list[Work], batch: int, family: str) -> None:
    step = Step(tuple(works), 3000, 10**6)
    found = activity(step, family, batch, "a100-40gb", "adam", "fp32")
    assert found is not None
    assert 0 <= found.low <= found.smact <= found.high <= 1 and 0 <= found.dram <= 1


@given(st.lists(WORKS, min_size=1, max_size=10), st.integers(1, 1000))
def test_a_faster_host_keeps_the_gpu_busier(works: list[Work], batch: int) -> None:
    step, card, slow = Step(tuple(works), 3000, 10**6), CARDS["a100-40gb"], FITTED["cnn"]
    fast = replace(slow, call_s=slow.call_s / 2, step_s=slow.step_s / 2)
    first = predict(step, batch, card, slow, "adam", False)
    second = predict(step, batch, card, fast, "adam", False)
    assert second[0] >= first[0] and second[2] <= first[2]


def test_a_cut_text_says_the_same_where_its_rows_can_be_opened() -> None:
    cut, whole = ask("resnet50_depth3_torchinfo.txt"), ask("resnet50_torchinfo.txt")
    assert cut.smact == pytest.approx(whole.smact, abs=0.01)
