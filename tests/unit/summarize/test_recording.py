# SPDX-License-Identifier: Apache-2.0
"""A step recorded from a model: what is in it, at every batch size and precision."""

from dataclasses import replace

import pytest

from slurm_coloc.estimate.replay.stack import Stack

torch = pytest.importorskip("torch", reason="torch is not installed: coloc summarize needs it")

from slurm_coloc.errors import UsageFault  # noqa: E402
from slurm_coloc.estimate.api import AUTO, Estimate, TrainingOptions, estimate  # noqa: E402
from slurm_coloc.estimate.block.traced import Size, Traced  # noqa: E402
from slurm_coloc.estimate.parsers import parse_summary  # noqa: E402
from slurm_coloc.estimate.replay.recording import Recording, Scratch  # noqa: E402
from slurm_coloc.summarize.jobs import Wish  # noqa: E402
from slurm_coloc.summarize.making import Made, made  # noqa: E402
from slurm_coloc.summarize.sized import Facts, Taken, size_of, traced  # noqa: E402
from slurm_coloc.summarize.target import maker  # noqa: E402
from tests.unit.estimate.texts import example  # noqa: E402

HERE = "tests.unit.summarize.models"
SHAPE = (3, 32, 32)


def summarized(name: str, **options: object) -> Made:
    wish = Wish(**options)  # type: ignore[arg-type]
    return made(maker(f"{HERE}:{name}", wish), wish)


def asked(found: Made, **options: object) -> Estimate:
    given = TrainingOptions(**({"assumed": ("optimizer", "precision")} | options))  # type: ignore[arg-type]
    return estimate(parse_summary(found.text), given, stack=Stack(0), estimator=AUTO)


def peak(found: Traced) -> int:
    """Bytes of activations at the fullest moment, of 512 samples."""
    sizes: list[int] = []
    now = most = 0
    for event in found.at(512).events:
        if isinstance(event, int):
            now += event if event >= 0 else -sizes[-1 - event]
            sizes += [event] if event >= 0 else []
            most = max(most, now)
    return most


def held(traced: Traced, batch: int) -> int:
    """Bytes of everything that the step leaves behind, parameters included."""
    step = traced.at(batch)
    sizes: list[int] = []
    left: set[int] = set()
    for event in step.events:
        if isinstance(event, Scratch):
            continue
        if event >= 0:
            left.add(len(sizes))
            sizes.append(event)
        else:
            left.remove(-1 - event)
    return sum(sizes[i] for i in left) + sum(step.parameters)


def test_parameters_gradients_and_inputs() -> None:
    found = summarized("example").recording
    model = 4 * (3 * 32 * 9 + 32 + 64 + 32 * 32 * 9 + 32 + 320 + 10)
    assert sum(found.parameters) == model
    assert found.elements == found.trainable == model // 4
    assert found.inputs == (Size(0, 3 * 32 * 32 * 4),)
    assert found.batch == 8 and found.scales
    step = found.at(8)
    allocated = [e for e in step.events if isinstance(e, int) and e >= 0]
    assert sum(allocated[i] for i in step.gradients) == model


def test_frozen_parameters_have_no_gradient_and_keep_no_activations() -> None:
    all_of_it, head = summarized("example"), summarized("frozen")
    found = head.recording
    assert found.elements == all_of_it.recording.elements
    assert found.trainable == 330 and len(found.gradients) == 2
    assert sum(found.parameters) == 4 * 330
    assert sum(found.parameters) + sum(found.constants) == sum(
        all_of_it.recording.parameters
    ) + sum(all_of_it.recording.constants)
    assert held(found, 8) < held(all_of_it.recording, 8)


@pytest.mark.parametrize("batch", [3, 8, 64, 1000])
def test_one_recording_answers_for_every_batch(batch: int) -> None:
    """As if it had been recorded with that batch."""
    one = summarized("small", shape=SHAPE, batch_size=8).recording
    other = summarized("small", shape=SHAPE, batch_size=batch).recording
    assert one.at(batch) == other.at(batch)
    assert replace(one, batch=batch) == other


def test_the_example_is_up_to_date() -> None:
    """coloc summarize tests.unit.summarize.models:small --input 3x224x224 --optimizer adamw"""
    found = summarized("small", shape=(3, 224, 224), batch_size=32, optimizer="adamw").recording
    there = parse_summary(example("small_cnn_recorded.txt")).recording
    assert there is not None and replace(found, torch=there.torch) == there


def test_logits_of_batch_by_batch() -> None:
    found = summarized("contrastive").recording
    assert found.scales
    assert any(isinstance(event, Size) and event.square for event in found.events)
    assert found.at(32) == summarized("contrastive", batch_size=32).recording.at(32)


def test_weights_made_for_each_sample() -> None:
    """The batch is in the groups of the convolution, and the rest grows with it."""
    found = summarized("mixed").recording
    other = summarized("mixed", batch_size=32).recording
    assert found.scales

    def sizes(traced: Traced) -> list[object]:
        return [
            (event.work, event.read, event.written) if isinstance(event, Scratch) else event
            for event in traced.at(32).events
        ]

    assert sizes(found) == sizes(other)


def test_another_step_at_another_batch() -> None:
    found = summarized("odd")
    assert not found.recording.scales and "that one only" in found.notes[0]
    assert asked(found).name == "traced"
    other = asked(found, batch_size=16)
    assert other.memory_mib is None or other.name == "text"


def test_sizes_through_two_points() -> None:
    assert size_of(512, 8, 512, 16) == Size(512)
    assert size_of(800, 8, 1600, 16) == Size(0, 100)
    assert size_of(900, 8, 1700, 16) == Size(100, 100)
    assert size_of(64, 8, 256, 16) == Size(0, 0, 1)
    rounded = size_of(130, 8, 261, 16)
    assert rounded.at(8) >= 130 and rounded.at(16) >= 261


def test_protocol_with_keywords_loss_and_optimizer() -> None:
    found = summarized("Job")
    known = found.recording
    assert (known.optimizer, known.batch, known.seq_len) == ("sgd-momentum", 4, 16)
    assert known.elements == 100 * 64 + 128  # tied words count once
    summary = parse_summary(found.text)
    assert summary.recording == known and summary.format == "torchinfo"


def test_precisions_need_less() -> None:
    figures = {}
    for precision in ("fp32", "amp", "bf16"):
        found = summarized("small", shape=(3, 256, 256), batch_size=16, precision=precision)
        assert found.recording.precision == precision
        answer = asked(found)
        assert answer.name == "traced" and answer.memory_mib is not None
        figures[precision] = answer.memory_mib
    assert figures["bf16"] < figures["amp"] < figures["fp32"]


def test_half_copies_of_weights_under_amp() -> None:
    """Autocast keeps one of each weight that a convolution or product reads."""
    plain = summarized("small", shape=SHAPE, batch_size=2).recording
    half = summarized("small", shape=SHAPE, batch_size=2, precision="amp").recording
    weights = [3 * 32 * 9 * 2, 32 * 32 * 9 * 2, 640]

    def allocations(traced: Traced) -> list[int]:
        return [e.fixed for e in traced.events if isinstance(e, Size) and not e.sample]

    for size in weights:
        assert allocations(half).count(size) > allocations(plain).count(size)


def test_cuda_runs_norms_and_softmax_in_fp32_under_amp() -> None:
    """64 wide, 16 tokens: fp32 of the norm's output and of the softmax, half of the products."""
    found = summarized("Job", precision="amp").recording
    grows = [event.sample for event in found.events if isinstance(event, Size)]
    assert grows.count(16 * 64 * 4) >= 2
    assert 16 * 100 * 2 in grows and 16 * 64 * 2 in grows


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("small", "--input"),
        ("number", "torch.nn.Module"),
        ("nothing", "has no nothing"),
    ],
)
def test_what_is_no_target(target: str, word: str) -> None:
    with pytest.raises(UsageFault, match=word):
        summarized(target)


def test_unknown_modules_are_named() -> None:
    with pytest.raises(UsageFault, match="no module nowhere"):
        maker("nowhere.at.all:x", Wish())
    with pytest.raises(UsageFault, match="no such file"):
        maker("nowhere.py:x", Wish())
    with pytest.raises(UsageFault, match="MODULE:CALLABLE"):
        maker("nowhere", Wish())


def test_attention_and_dropout_inside_functions_are_as_on_cuda() -> None:
    """No scores are kept, and masks of one byte an element, also in nn.MultiheadAttention."""
    found = summarized("attention").recording
    tokens, width, inner, heads = 64, 32, 48, 4
    grows = [event.sample for event in found.events if isinstance(event, Size)]
    assert tokens * tokens * heads * 4 not in grows
    assert grows.count(tokens * width) >= 2 and tokens * inner in grows


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_a_block_that_runs_again_does_what_it_did_before(precision: str) -> None:
    """Attention was the CPU's in the backward, where PyTorch refused: other tensors were saved."""
    plain, again = (
        summarized(name, precision=precision).recording for name in ("not_again", "again")
    )
    sizes = [[e.sample for e in found.events if isinstance(e, Size)] for found in (plain, again)]
    assert len(sizes[1]) > len(sizes[0]) and 64 * 64 * 4 * 4 not in sizes[1]
    assert peak(again) < 0.6 * peak(plain)


def test_rms_norm_is_one_kernel_that_keeps_its_input() -> None:
    grows = [e.sample for e in summarized("rms_norms").recording.events if isinstance(e, Size)]
    # A product and its gradient, a result and its own; the last result has the loss' two, too.
    assert (grows.count(64 * 96 * 4), grows.count(64 * 48 * 4)) == (4, 6)
    assert grows.count(64 * 4) == 2  # one number a row of each


def test_half_of_what_attention_reads_under_amp() -> None:
    found = summarized("attention", precision="amp").recording
    grows = [event.sample for event in found.events if isinstance(event, Size)]
    assert 64 * 32 * 2 in grows and 3 * 64 * 32 * 4 not in grows


def test_frees_at_one_moment_have_no_order() -> None:
    """Autocast drops its copies of the weights by their addresses, which two recordings do not
    share."""

    def step(batch: int, frees: tuple[int, ...]) -> Taken:
        events = (4096, 8192, batch * 512, *frees, 1024 * batch, -3)
        return Taken(batch, Recording((4096,), (), (512,), events, frozenset()))

    first = step(4, (-1, -2))
    assert traced(first, step(8, (-1, -2)), Facts(4)).events[3:5] == (-1, -2)
    found = traced(first, step(8, (-2, -1)), Facts(4))
    assert found.scales and found.at(16).events == step(16, (-1, -2)).step.events
    assert not traced(first, step(8, (-3, -2)), Facts(4)).scales
