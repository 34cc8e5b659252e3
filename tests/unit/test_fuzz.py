# SPDX-License-Identifier: Apache-2.0
"""A short run of each fuzz target; `make fuzz` has the long ones."""

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import estimate, parsers
from tests.fuzz.run import TARGETS, fuzz

ROOT = Path(__file__).resolve().parents[2]
RUNS = {"parsers": 1500, "estimate": 300, "protocol": 1500}


@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs(name: str) -> None:
    assert fuzz(name, RUNS[name], seed=1).failures == {}


def test_the_same_seed_gives_the_same_inputs() -> None:
    first = [parsers.mutated(Random(7), parsers.CORPUS) for _ in range(2)]
    assert first[0] == first[1] and first[0] not in parsers.CORPUS
    assert estimate.mutated(Random(7), estimate.CORPUS) == estimate.mutated(
        Random(7), estimate.CORPUS
    )


def test_changed_answers_to_the_hook() -> None:
    lua = next(filter(None, map(shutil.which, ("lua5.1", "lua5.3", "lua5.4"))), None)
    if lua is None:
        pytest.skip("no lua program is here")
    done = subprocess.run(
        [lua, "tests/fuzz/wire.lua", "4000", "1"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
