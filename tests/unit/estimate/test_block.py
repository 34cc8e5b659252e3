# SPDX-License-Identifier: Apache-2.0
"""The block of `coloc summarize`: there and back, hostile ones, and what a summary makes of it."""

import base64
import dataclasses
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.api import AUTO, Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.block import MARK, MAX_NUMBERS
from slurm_coloc.estimate.block.text import block, integers, leb128, read, split
from slurm_coloc.estimate.block.traced import Size, Traced
from slurm_coloc.estimate.block.wire import MAX_EVENTS, step_of
from slurm_coloc.estimate.features import features, fingerprint
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.allocator import replay
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import training
from tests.unit.estimate.recordings import MIB, recordings, small
from tests.unit.estimate.texts import REPR, TORCHINFO, TORCHSUMMARY, example


@settings(max_examples=300, deadline=None)
@given(recordings())
def test_there_and_back(traced: Traced) -> None:
    text = block(traced)
    assert max(map(len, text.split("\n"))) <= 100
    assert read(text.splitlines()) == traced


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**56)))
def test_numbers_there_and_back(row: list[int]) -> None:
    assert integers(leb128(row)) == row


def notes_of(lines: list[str]) -> list[str]:
    rest, found, notes = split(lines)
    assert (rest, found) == ([], [])
    return notes


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_block_is_left_out_with_a_note(data: st.DataObject) -> None:
    lines = block(small()).splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    line = lines[at]
    place = data.draw(st.integers(0, len(line) - 1))
    char = data.draw(st.characters(codec="ascii", categories=["L", "N", "P", "S"]))
    lines[at] = line[:place] + char + line[place + 1 :]
    rest, found, notes = split(lines)
    # A changed header that is still a header may stand: it is the user's own word.
    assert notes or len(found) == 1 or len(rest) == len(lines)
    if MARK not in line and char != line[place]:
        # The last digit of base64 has bits that nobody reads: then it is still the same recording.
        assert (not found and notes) or found == split(block(small()).splitlines())[1]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2**56), max_size=60))
def test_any_numbers_give_a_step_or_a_summary_error(row: list[int]) -> None:
    try:
        step_of(row)
    except SummaryError as err:
        assert err.code == "damaged"


def packed(data: bytes, crc: int | None = None) -> list[str]:
    """A block of these bytes with a right checksum."""
    lines = block(small()).splitlines()
    head = [line for line in lines if line.startswith(MARK)]
    body = base64.b64encode(zlib.compress(data, 9)).decode()
    end = f"{MARK} end {zlib.crc32(data) if crc is None else crc:08x}"
    return [*head[:-1], *(body[i : i + 96] for i in range(0, len(body), 96)), end]


HOSTILE = {
    "a bomb": packed(b"\x00" * 50_000_000),
    "as large as may be": packed(b"\x00" * MAX_NUMBERS),
    "a number without an end": packed(b"\xff" * 100),
    "counts without what they count": packed(leb128([2**16])),
    "more events than may be": packed(leb128([0, 0, 0, 0, 0, MAX_EVENTS + 1])),
    "tensors without an end": packed(leb128([1, 1, 0, 0, 0, 2, 0, 99_999, 0, 99_999])),
    "frees nothing": packed(leb128([1, 8, 0, 0, 0, 0, 0, 0, 1, 3])),
    "frees twice": packed(leb128([1, 8, 0, 0, 0, 0, 0, 0, 3, 0, 3, 3])),
    "another checksum": packed(b"", crc=1),
    "not base64": [*packed(b"")[:-1], "§§§§", packed(b"")[-1]],
    "too large a text": [*packed(b"")[:-1], *["A" * 96] * 6000, packed(b"")[-1]],
    "another schema": [f"{MARK} begin 2", *packed(b"")[1:]],
    "no header": [packed(b"")[0], packed(b"")[-1]],
    "no end": packed(b"")[:-1],
    "no beginning": [f"{MARK} end 00000000"],
    "nothing": [MARK],
}


@pytest.mark.parametrize("lines", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_blocks_cost_their_figure_only(lines: list[str]) -> None:
    begin = time.process_time()
    assert notes_of(list(lines))
    summary = parse_summary(TORCHINFO + "\n".join(lines))
    assert summary.recording is None and summary.notes
    assert dataclasses.replace(summary, notes=()) == parse_summary(TORCHINFO)
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("text", [TORCHINFO, TORCHSUMMARY, REPR])
def test_a_block_beside_a_table(text: str) -> None:
    plain = parse_summary(text)
    for whole in (text + block(small()), block(small()) + text):
        found = parse_summary(whole)
        assert found.recording == small()
        assert found.layers == plain.layers and found.batch_in_text == 8
        # it tells what the rows do not (checkpointing, accumulation): a model of its own
        assert fingerprint(found) != fingerprint(plain)
        options = TrainingOptions(batch_size=4)
        assert features(found, options) == features(plain, options)


def test_a_block_alone_is_a_summary() -> None:
    found = parse_summary(block(small()))
    assert (found.format, found.family, found.parameters) == ("recording", "cnn", 2 * MIB)
    assert fingerprint(found) == fingerprint(parse_summary(block(small(batch=16))))
    assert fingerprint(found) != fingerprint(parse_summary(block(small(parameters=(4,)))))
    text = estimate(found, TrainingOptions(), stack=Stack(0), estimator="text")
    assert text.memory_mib is None


def test_two_models_of_which_one_is_recorded() -> None:
    found = parse_summary(TORCHINFO + block(small()) + TORCHSUMMARY)
    assert found.recording is None
    assert any("all models" in note for note in found.notes)
    both = parse_summary(TORCHINFO + block(small(models=2)) + TORCHSUMMARY)
    assert both.recording is not None


def test_two_blocks_are_one_process() -> None:
    one = mib(ask(parse(block(small()))))
    two = parse(TORCHINFO + block(small()) + TORCHINFO + block(small()))
    assert one < mib(ask(two)) <= 2 * one + 1
    other = parse(TORCHINFO + block(small()) + TORCHINFO + block(small(batch=4)))
    assert other.recording is None


parse = parse_summary


def ask(summary: object, **options: object) -> Estimate:
    given_options = TrainingOptions(**({"optimizer": "adamw"} | options))  # type: ignore[arg-type]
    return estimate(summary, given_options, stack=Stack(0), estimator="traced")  # type: ignore[arg-type]


def mib(answer: Estimate) -> int:
    assert answer.memory_mib is not None and answer.upper_mib is not None, answer.reason
    assert answer.upper_mib > answer.memory_mib
    return answer.memory_mib


def test_the_batch_of_the_request_is_played() -> None:
    summary = parse(block(small()))
    assert mib(ask(summary, batch_size=64)) - mib(ask(summary, batch_size=32)) >= 2 * 32
    assert ask(summary).memory_mib == ask(summary, batch_size=8).memory_mib
    assert mib(ask(summary, batch_size=2**31 - 1)) > 2**31
    squares = parse(block(small(events=(Size(0, 0, 2**40),), gradients=frozenset())))
    assert "2^63" in ask(squares, batch_size=2**20).reason


def test_another_batch_where_the_step_does_not_scale() -> None:
    summary = parse(block(small(scales=False)))
    assert mib(ask(summary, batch_size=8)) > 0
    other = ask(summary, batch_size=9)
    assert other.memory_mib is None and "recorded at a batch size of 8" in other.reason


def test_what_the_recording_cannot_answer() -> None:
    summary = parse(TORCHINFO + block(small(seq_len=128)))
    for options, word in (
        ({"precision": "amp"}, "--precision amp"),
        ({"seq_len": 64}, "--seq-len 64"),
    ):
        found = ask(summary, **options)
        assert found.memory_mib is None and word in found.reason
        given_options = TrainingOptions(**options)  # type: ignore[arg-type]
        auto = estimate(summary, given_options, stack=Stack(0), estimator=AUTO)
        assert auto.name == "text" and any(word in note for note in auto.notes)
    assert "coloc summarize" in ask(parse(TORCHINFO)).reason


def test_a_recording_is_played_as_the_first_of_several_replicas() -> None:
    summary = parse(TORCHINFO + block(small()))
    two, half = mib(ask(summary, batch_size=64, gpus=2)), mib(ask(summary, batch_size=32))
    assert half <= two < mib(ask(summary, batch_size=64)) + 2


def test_auto_prefers_the_recording() -> None:
    with_block = parse(TORCHINFO + block(small()))
    for summary, name in ((with_block, "traced"), (parse(TORCHINFO), "text")):
        found = estimate(summary, TrainingOptions(), stack=Stack(0), estimator=AUTO)
        assert found.name == name


def test_what_nobody_named_is_the_recording_s() -> None:
    summary = parse(block(small(optimizer="sgd", precision="bf16")))
    assumed = TrainingOptions(assumed=("optimizer", "precision"))
    found = estimate(summary, assumed, stack=Stack(0), estimator="traced")
    assert found.memory_mib == ask(summary, optimizer="sgd", precision="bf16").memory_mib
    assert "optimizer sgd taken from the recording" in found.notes
    named = ask(summary, optimizer="adam", precision="bf16", assumed=("precision",))
    assert mib(named) > mib(found)


def test_the_example() -> None:
    """Made by `coloc summarize` from tests/unit/summarize/models.py; its peak by hand: the images
    and five activations, three that autograd keeps and two of the backward pass."""
    found = parse(example("small_cnn_recorded.txt"))
    known = found.recording
    assert known is not None and found.layers and known.scales
    assert (known.batch, known.optimizer, known.elements) == (32, "adamw", 10_538)
    assert known.elements == found.parameters
    activation = 32 * 32 * 224 * 224 * 4
    images = 32 * 3 * 224 * 224 * 4
    played = replay(training(known.at(32), "adamw", lambda work: 0).sizes)
    largest = 5 * activation + images
    assert largest <= played.allocated <= largest + MIB
    assert played.allocated <= played.reserved <= 1.2 * played.allocated
    twice = replay(training(known.at(64), "adamw", lambda work: 0).sizes)
    assert twice.allocated == pytest.approx(2 * played.allocated, rel=0.001)


def test_an_unknown_family_needs_a_recording() -> None:
    summary = parse(block(small(family="other")))
    assert mib(ask(summary)) > 0
    text = estimate(summary, TrainingOptions(), stack=Stack(0), estimator="text")
    assert text.memory_mib is None


def test_accumulated_gradients_stay() -> None:
    """While the activations of the next batch are there."""
    once, often = (mib(ask(parse(block(small(accumulate=n))))) for n in (1, 4))
    assert often >= once
    assert any("accumulated" in note for note in ask(parse(block(small(accumulate=4)))).notes)
