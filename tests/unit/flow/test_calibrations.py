# SPDX-License-Identifier: Apache-2.0
"""Calibrations per GPU type: which file a job's GPU has, and files that are wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.errors import ConfigError
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.allocator import Rules
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.variants import with_allocator
from slurm_coloc.flow.estimators.calibrations import Stacks, load_stacks, read_calibration
from slurm_coloc.flow.submit.estimate import Lookup
from slurm_coloc.flow.submit.message import ColocOptions, Submission
from slurm_coloc.flow.submit.tickets import Texts
from tests.unit.estimate.texts import example
from tests.unit.flow.texts import pack, teach

A100 = 'card = "NVIDIA A100-SXM4-40GB"\ncontext_mib = 500\n[workspace]\nweight = 1.2\n'
H100 = 'card = "NVIDIA H100 80GB HBM3"\ncontext_mib = 700\n'


def stacks(folder: Path, **files: str) -> Stacks:
    for name, text in files.items():
        (folder / f"{name.replace('_', '-')}.toml").write_text(text)
    return load_stacks(EstimateConfig(stacks_dir=folder, context_mib=1900))


def chosen(found: Stacks, *gpu_types: str | None) -> Stack:
    """The stack for a job that may get any of these types."""
    return found.named(found.choose(gpu_types).stack)


def test_without_files_the_configuration_counts(tmp_path: Path) -> None:
    found = load_stacks(EstimateConfig(stacks_dir=tmp_path / "none", context_mib=1234))
    assert found.of("a100") == Stack(1234, card="a100")
    assert chosen(found) == chosen(found, None) == Stack(1234)


@pytest.mark.parametrize(
    ("gpu_type", "context"),
    [
        ("a100-40gb", 1735),
        ("nvidia_a100-sxm4-80gb", 1735),
        ("a100_3g.20gb", 1735),
        ("h100", 760),
        ("rtx3060-12gb", 760),
        ("voodoo2", 1900),
        ("", 1900),
    ],
)
def test_a_typical_context_in_the_estimate_and_the_configured_one_in_the_bound(
    tmp_path: Path, gpu_type: str, context: int
) -> None:
    found = stacks(tmp_path, v100="context_mib = 700\n")
    stack = found.of(gpu_type)
    assert (stack.context_mib, stack.context_mib + stack.spare_mib) == (context, 1900)
    assert found.of("v100").spare_mib == 0
    assert found.choose(["h100", "a100"]).gpu_type == "a100"


def test_a_card_that_no_margin_was_compared_on_has_a_wider_bound(tmp_path: Path) -> None:
    found = stacks(tmp_path, mine="context_mib = 700\n")
    for kind, wider in (("a100", 0.0), ("h100-80gb", 0.0), ("rtx4060-8gb", 0.05), ("mine", 0.0)):
        assert found.of(kind).wider == wider
    summary, options = parse_summary(example("resnet50_torchinfo.txt")), TrainingOptions(64)
    known, other = (
        estimate(summary, options, stack=replace(found.of("h100"), wider=wider))
        for wider in (0.0, 0.05)
    )
    assert known.memory_mib == other.memory_mib and known.upper_mib and other.upper_mib
    assert other.upper_mib == known.upper_mib + int(0.05 * (other.memory_mib - 760))


def test_sixteen_bits_have_a_wider_bound(tmp_path: Path) -> None:
    summary, stack = parse_summary(example("resnet50_torchinfo.txt")), Stack(0)
    margins = []
    for precision in ("fp32", "amp", "bf16"):
        found = estimate(summary, TrainingOptions(64, precision=precision), stack=stack)
        assert found.memory_mib and found.upper_mib
        margins.append((found.upper_mib - 64) / found.memory_mib)
    assert margins[1] == pytest.approx(margins[0] + 0.05, abs=0.002)
    assert margins[2] == pytest.approx(margins[0] + 0.05, abs=0.002)


def test_a_type_by_its_file_and_by_its_card(tmp_path: Path) -> None:
    found = stacks(tmp_path, a100_40gb=A100, h100=H100)
    assert (
        replace(found.of("a100-40gb"), card="a100")
        == found.of("a100")
        == Stack(500, weight=1.2, card="a100")
    )
    assert found.of("h100").context_mib == 700
    assert found.of("v100") == Stack(760, card="v100", spare_mib=1140, wider=0.05)


def test_of_several_types_the_largest_context(tmp_path: Path) -> None:
    found = stacks(tmp_path, a100_40gb=A100, h100=H100)
    assert chosen(found, "a100", "h100").context_mib == 700
    assert chosen(found, "a100", "v100").context_mib == 1900
    # A GPU without a type may be any of those that were calibrated.
    assert chosen(found, None).context_mib == 700


def test_of_two_cards_of_one_name_the_larger_context(tmp_path: Path) -> None:
    found = stacks(tmp_path, a100_40gb=A100, a100_80gb=A100.replace("500", "600"))
    assert found.of("a100").context_mib == 600 and found.of("a100-40gb").context_mib == 500


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("context_mib = 1\nmibs = 2\n", "mibs"),
        ("", "context_mib"),
        ("context_mib = -1\n", "context_mib"),
        ("context_mib = 1\n[workspace]\nweight = nan\n", "weight"),
        ("context_mib = \n", "cannot be used"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stacks(tmp_path, bad=text)
    assert "bad.toml" in caught.value.message and word in caught.value.message


def test_a_name_that_is_no_type(tmp_path: Path) -> None:
    (tmp_path / "a b.toml").write_text(A100)
    with pytest.raises(ConfigError, match="no GPU type"):
        load_stacks(EstimateConfig(stacks_dir=tmp_path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone"):
        read_calibration(tmp_path / "gone.toml")


def test_the_job_s_allocator() -> None:
    found = with_allocator(Stack(1), "expandable_segments:True")
    assert found.stack == Stack(1, allocator=Rules(expandable=True)) and found.notes
    assert with_allocator(Stack(1), "pinned_use_background_threads:True").notes == ()
    wrong = with_allocator(Stack(1), "rm -rf")
    assert wrong.stack == Stack(1) and "passed over" in wrong.notes[0]


def test_a_submission_is_estimated_for_the_gpus_that_it_may_get(tmp_path: Path) -> None:
    stacks(tmp_path, a100=A100, h100=H100)
    config, texts = EstimateConfig(stacks_dir=tmp_path), Texts()
    lookup = Lookup(config, texts, lambda uid, key, packed: None)
    packed = pack(example("resnet50_torchinfo.txt"))

    def figure(gpu_type: str, **more: str) -> int:
        options = ColocOptions.model_validate({"summary": packed, **more})
        teach(texts, config, 1, options.model_dump(exclude_unset=True))
        job = Submission(options, JobRequest(1), gpu_types=(gpu_type,))
        found = lookup.of(job).estimated.estimate
        return found.memory_mib if found else -1

    a100, h100, other = (figure(gpu_type) for gpu_type in ("a100", "h100", "v100"))
    expandable = figure("a100", alloc_conf="expandable_segments:True")
    assert 0 < expandable < a100 < h100 < other
