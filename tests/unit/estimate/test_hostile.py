# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile texts: a clear error or a larger figure, never a small one, never a crash."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.api import TrainingOptions, estimate_all
from slurm_coloc.estimate.features import features, fingerprint
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from tests.unit.estimate.texts import KERAS, NAMES, REPR, TORCHINFO, TORCHSUMMARY, example, keras

ALL = [example(name) for name in NAMES] + [keras(name) for name in KERAS]
SHORT = [TORCHSUMMARY, TORCHINFO, REPR, keras("keras3_functional.txt"), keras(KERAS[0])]
OPTIONS = TrainingOptions(batch_size=8)

REFUSED: list[tuple[str, str, str]] = [
    ("empty", "", "empty"),
    ("blank", "\n \n\t\n", "empty"),
    ("only colours", "\x1b[31m\x1b[0m", "empty"),
    ("binary", "\x7fELF\x00\x01\x02" * 20, "binary"),
    ("control characters", "\x01\x02\x03\x04ab" * 100, "binary"),
    ("some prose", "This is not a summary.\nTotal params: 12\n", "unknown_format"),
    ("a file of source code", "def main():\n    print(model)\n", "unknown_format"),
    ("10 MB line", "x" * 10_000_000, "too_large"),
    ("3 MB line", "Conv2d-1 [" + "1, " * 1_000_000 + "]", "line_too_long"),
    ("too many lines", "\n" * 500_000, "too_many_lines"),
    ("torchsummary cut", TORCHSUMMARY[:400], "bad_row"),
    ("torchsummary without footer", TORCHSUMMARY.split("Total")[0], "truncated"),
    ("torchinfo cut", TORCHINFO[:420], "bad_shape"),
    ("torchinfo without footer", TORCHINFO.split("Total")[0], "truncated"),
    ("repr cut", REPR[:300], "truncated"),
    ("keras 3 cut", keras("keras3_mlp.txt").split(" Total")[0], "truncated"),
    ("keras 2 cut", keras("keras2_sequential.txt").split("Total")[0], "truncated"),
    ("keras 3 not built", keras("keras3_unbuilt.txt"), "unknown_sizes"),
    ("footer above rows", TORCHSUMMARY.replace("42,826", "428,260"), "disagreement"),
    (
        "keras footer above rows",
        keras("keras3_mlp.txt").replace("407,050", "4,070,500"),
        "disagreement",
    ),
    (
        "repr footer far above the tree",
        REPR + "=====\nTotal params: 999,999,999\n",
        "disagreement",
    ),
    ("row missing", TORCHSUMMARY.replace("BatchNorm2d-2", "BatchNorm2d-3"), "truncated"),
    ("zero dimension", TORCHSUMMARY.replace("64, 8, 8", "64, 0, 8"), "bad_shape"),
    ("negative dimension", TORCHSUMMARY.replace("64, 8, 8", "64, -8, 8"), "bad_shape"),
    ("minus one inside", TORCHSUMMARY.replace("64, 8, 8", "64, -1, 8"), "bad_shape"),
    ("nested too deep", TORCHSUMMARY.replace("[-1, 10]", "[" * 40 + "-1" + "]" * 40), "bad_shape"),
    ("brackets do not match", TORCHSUMMARY.replace("[-1, 10]", "[[-1, 10]"), "bad_shape"),
    ("mixed batches", TORCHSUMMARY.replace("[-1, 10]", "[4, 10]"), "bad_shape"),
    (
        "number over 2^63 in a row",
        TORCHSUMMARY.replace("40,970", "9223372036854775808"),
        "number_out_of_range",
    ),
    ("number of 5000 digits", TORCHSUMMARY.replace("40,970", "9" * 5000), "number_out_of_range"),
    (
        "dimensions whose product passes 2^63",
        TORCHSUMMARY.replace("[-1, 10]", "[-1, 4294967296, 4294967296]"),
        "number_out_of_range",
    ),
    ("no sizes", "Net(\n  (a): Conv1D()\n)\n", "unknown_sizes"),
    (
        "repeats beyond counting",
        "Net(\n  (0-9): 999999999999999999 x A(\n    (0-9): 99999 x Linear(in_features=99,"
        " out_features=99, bias=True)\n  )\n)\n",
        "too_many_layers",
    ),
    ("tree too deep", "N(\n" + "(a): B(\n" * 5000, "bad_row"),
    ("repr line lost", REPR.replace("    (0-3): 4 x Block(\n", ""), "bad_row"),
    ("repr end of a line lost", REPR.replace("Linear(in_features=64, out_f", "Lin"), "bad_row"),
    ("torchinfo zero", TORCHINFO.replace("[8, 16, 1, 1]", "[8, 0, 1, 1]"), "bad_shape"),
    ("33 models", TORCHSUMMARY * 33, "too_many_models"),
]


@pytest.mark.parametrize(
    ("text", "code"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused(text: str, code: str) -> None:
    with pytest.raises(SummaryError) as found:
        summary = parse_summary(text)
        # Products of dimensions are taken when they are needed.
        _ = summary.activations
    assert found.value.code == code
    assert "\n" not in found.value.message
    assert len(found.value.message) < 300


def figure(text: str) -> tuple[int, int]:
    """Text's memory and bound at a batch of 8; a whole GPU counts as very much."""
    answer = estimate_all(parse_summary(text), OPTIONS, stack=Stack(0), names=["text"])[0]
    if answer.memory_mib is None or answer.upper_mib is None:
        return 2**62, 2**62
    return answer.memory_mib, answer.upper_mib


SAME: dict[str, Callable[[str], str]] = {
    "colours": lambda text: "\n".join(f"\x1b[1;32m{line}\x1b[0m" for line in text.split("\n")),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "only carriage returns": lambda text: text.replace("\n", "\r"),
    "no final newline": lambda text: text.rstrip(),
    "pasted arithmetic": lambda text: text + "\n\nA x B = 1\nparameters: 5\nMB = 1 GiB",
    "a log around it": lambda text: "2026-01-01 INFO start\n" + text + "\nepoch 1: loss 0.5\n",
    "byte order mark": lambda text: "\ufeff" + text,
    "title": lambda text: "My model\n\n" + text,
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
@pytest.mark.parametrize(
    "text", SHORT, ids=["torchsummary", "torchinfo", "repr", "keras3", "keras2"]
)
def test_harmless_changes_change_nothing(change: Callable[[str], str], text: str) -> None:
    assert figure(change(text)) == figure(text)
    assert fingerprint(parse_summary(change(text))) == fingerprint(parse_summary(text))


def test_footer_below_rows_keeps_the_rows() -> None:
    for text in SHORT:
        low = "\n".join(
            line.split(":")[0] + ": 1"
            if "rainable params" in line or "Total params" in line
            else line
            for line in text.split("\n")
        )
        assert figure(low) >= figure(text)


def test_second_footer_and_second_model_only_add() -> None:
    assert figure(TORCHSUMMARY + TORCHSUMMARY) > figure(TORCHSUMMARY)
    assert figure(TORCHINFO + REPR) >= figure(TORCHINFO)


def test_nested_shapes_count_every_tensor() -> None:
    text = TORCHSUMMARY.replace("[-1, 10]", "[[-1, 10], [2, -1, 20]]")
    with pytest.raises(SummaryError):  # the leading dimensions differ
        parse_summary(text)
    text = TORCHSUMMARY.replace("[-1, 10]", "[[-1, 10], [-1, 2, 20]]")
    assert parse_summary(text).activations == parse_summary(TORCHSUMMARY).activations + 40


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=2000))
def test_any_text_gives_a_summary_or_a_summary_error(text: str) -> None:
    try:
        parse_summary(text)
    except SummaryError as err:
        assert err.code and err.code != "damaged"


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real text with lines dropped, doubled, swapped, cut, or numbers changed."""
    lines = draw(st.sampled_from(ALL)).split("\n")
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.integers(0, 5)):
            case 0:
                del lines[at]
                lines = lines or [""]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines[at] = lines[at][: draw(st.integers(0, 80))]
            case 3:
                digit = draw(st.sampled_from("0123456789"))
                lines[at] = lines[at].replace(digit, draw(st.sampled_from(["-", "999999999", "0"])))
            case 4:
                lines[at] = draw(st.sampled_from(lines))
            case 5:
                lines[at] = lines[at] + draw(
                    st.text(alphabet="()[]{}-,: 019xpars├│┃…", max_size=20)
                )
    return "\n".join(lines)


@settings(max_examples=400, deadline=None)
@given(damaged())
def test_damaged_texts_never_crash(text: str) -> None:
    try:
        found = parse_summary(text)
        estimate_all(found, OPTIONS, stack=Stack(500, card="a100-40gb"))
        features(found, OPTIONS)
        fingerprint(found)
    except SummaryError as err:
        assert err.code and err.code != "damaged"


@pytest.mark.parametrize("name", NAMES)
def test_lost_rows_are_never_a_small_figure(name: str) -> None:
    """Any tenth part of the lines taken out: refused, or no less than what those rows cost."""
    text = example(name)
    whole = figure(text)
    lines = text.split("\n")
    step = max(1, len(lines) // 10)
    for start in range(0, len(lines), step):
        cut = "\n".join(lines[:start] + lines[start + step :])
        try:
            left = figure(cut)
        except SummaryError:
            continue
        if "print" not in name and "repr" not in name:
            assert left[1] >= 0.9 * whole[0]


BIG: dict[str, Callable[[], str]] = {
    "torchsummary rows": lambda: (
        TORCHSUMMARY.split("=\n")[0]
        + "=\n"
        + "".join(f"ReLU-{i} [-1, 4] 0\n" for i in range(1, 200_000))
    ),
    "torchinfo rows": lambda: (
        TORCHINFO.split("├")[0] + "├─ReLU: 1-1   [8, 4]   [8, 4]   --\n" * 80_000
    ),
    "brackets": lambda: TORCHINFO.split("├")[0] + ("├─ReLU: 1-1 " + "[" * 8000 + "\n") * 500,
    "trees": lambda: "Net(\n" + "  (a): Linear(in_features=1, out_features=1)\n" * 80_000,
    "open trees": lambda: "Net(\n" * 700_000,
    "numbers": lambda: ("1," * 4000 + "\n") * 500,
    "escapes": lambda: "\x1b[" * 2_000_000,
    "escapes that do not end": lambda: "\x1b]" + "a" * 2_000_000 + "\x1b[" + "1;" * 1_000_000,
    "headers": lambda: "---\nLayer (type) Output Shape Param #\n===\n" * 80_000,
    "boxes": lambda: "┃ Layer (type) ┃ Output Shape ┃ Param # ┃\n" + "│ a (B) │ ( │ 1 │\n" * 80_000,
    "spaces": lambda: (" " * 8000 + "\n") * 500,
    "kwargs": lambda: "Net(\n  (a): " + "Linear(" + "a=1, " * 1600 + ")\n" * 1,
}


@pytest.mark.parametrize("make", BIG.values(), ids=BIG.keys())
def test_bounded_time(make: Callable[[], str]) -> None:
    text = make()[: 4 * 2**20]
    begin = time.monotonic()
    try:
        parse_summary(text)
    except SummaryError:
        pass
    assert time.monotonic() - begin < 10
