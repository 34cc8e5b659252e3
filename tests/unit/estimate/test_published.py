# SPDX-License-Identifier: Apache-2.0
"""The published formulas: ZeRO, LLMem's sum, fake tensors; and that they answer only for theirs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.api import PRECISIONS, TrainingOptions, estimate
from slurm_coloc.estimate.baselines.deepspeed import DeepSpeed, model_states
from slurm_coloc.estimate.baselines.faketensor import living
from slurm_coloc.estimate.block.traced import Traced
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Layer, Summary
from tests.unit.estimate.recordings import recordings, small
from tests.unit.estimate.texts import NAMES, example

MIB = 2**20


def test_sixteen_bytes_a_parameter() -> None:
    """Rajbhandari et al. 2020, Figure 1: 7.5 billion parameters on 64 ranks."""
    sizes = [
        model_states(7_500_000_000, 7_500_000_000, "adam", "amp", stage, 64) / 1e9
        for stage in range(4)
    ]
    assert sizes == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


@given(
    st.integers(0, 10**12), st.sampled_from(OPTIMIZERS), st.sampled_from(PRECISIONS),
    st.integers(1, 1000),
)  # fmt: skip
def test_stages_only_divide(count: int, optimizer: str, precision: str, ranks: int) -> None:
    sizes = [model_states(count, count, optimizer, precision, stage, ranks) for stage in range(4)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[3] * ranks >= sizes[0]
    alone = [model_states(count, count, optimizer, precision, stage) for stage in range(4)]
    assert len(set(alone)) == 1


def test_frozen_parameters_have_no_gradients() -> None:
    assert model_states(100, 0, "adam", "fp32") == 400
    assert model_states(100, 100, "adam", "fp32") == 1600


def test_deepspeed_is_told_its_stage() -> None:
    summary = parse_summary(example("gpt2_repr.txt"))
    whole = DeepSpeed().estimate(summary, TrainingOptions(1), 500)
    part = DeepSpeed(stage=3, ranks=8).estimate(summary, TrainingOptions(1), 500)
    assert whole.memory_mib is not None and part.memory_mib is not None
    assert part.memory_mib == pytest.approx(whole.memory_mib / 8, abs=1)
    assert whole.memory_mib == -(-summary.parameters * 16 // MIB)


@pytest.mark.parametrize("name", NAMES)
def test_llmem_is_for_language_models(name: str) -> None:
    answer = estimate(
        parse_summary(example(name)), TrainingOptions(4), stack=Stack(500), estimator="llmem"
    )
    assert (answer.memory_mib is not None) == ("bert" in name or "gpt2" in name), answer.reason


def test_llmem_adds_up_its_parts() -> None:
    rows = (
        Layer("Embedding", outputs=((1, 16, 64),), parameters=64_000),
        Layer("LayerNorm", outputs=((1, 16, 64),), parameters=128),
        Layer("SelfAttention", outputs=((1, 16, 64),)),
    )
    summary = Summary("torchinfo", "transformer", 2**20, 2**20, rows)
    options = TrainingOptions(1024, seq_len=16, precision="bf16")
    answer = estimate(summary, options, stack=Stack(500), estimator="llmem")
    outputs = 3 * 16 * 64 * 2 + 16 * 1000 * (2 + 4)
    assert answer.memory_mib == 500 + (2**20 * (2 + 12) + 1024 * outputs) // MIB + 1
    assert not any("outside" in note for note in answer.notes)


def test_fake_tensors_by_hand() -> None:
    """8 MiB of weights, an activation and its relu of 1 MiB a sample, 8 MiB of gradients."""
    recording = small()
    summary = Summary("torchinfo", "cnn", 1, 1, (Layer("Conv2d"),), recording=recording)
    options = TrainingOptions(8, optimizer="adam")
    alone = estimate(summary, options, stack=Stack(500), estimator="faketensor")
    assert alone.memory_mib == 8 + 2 * 8 + 1  # inputs and buffers: a part of a MiB
    whole = estimate(summary, options, stack=Stack(500), estimator="faketensor-corrected")
    assert whole.memory_mib == 500 + 8 + 16 + (2 * 8 + 8) + 1
    other = estimate(summary, TrainingOptions(8, precision="bf16"), stack=Stack(500),
                     estimator="faketensor")  # fmt: skip
    assert other.memory_mib is None and "recorded in fp32" in other.reason


@given(recordings())
def test_gradients_only_add(recording: Traced) -> None:
    try:
        step = recording.at(recording.batch)
    except SummaryError:  # numbers beyond 63 bits
        return
    assert 0 <= living(step, gradients=False) <= living(step, gradients=True)


@pytest.mark.parametrize("estimator", ["faketensor", "faketensor-corrected"])
def test_no_recording_no_figure(estimator: str) -> None:
    summary = parse_summary(example(NAMES[0]))
    answer = estimate(summary, TrainingOptions(4), stack=Stack(500), estimator=estimator)
    assert answer.memory_mib is None and "coloc summarize" in answer.reason
