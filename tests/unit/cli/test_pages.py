# SPDX-License-Identifier: Apache-2.0
"""The pages in docs/reference are the code's own, and leave nothing out."""

import re
from pathlib import Path

import pytest

from slurm_coloc.cli.app import COMMANDS
from slurm_coloc.cli.texts import codes, pages, schemas
from slurm_coloc.core.decide.decision import TEXTS, WITHOUT_ANSWER, Action, Reason
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.core.place.steering.snapshot import Why
from slurm_coloc.core.recover.next_try import Verdict
from slurm_coloc.core.recover.outcome import WHOSE, Blame, Outcome

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"


@pytest.fixture(autouse=True)
def all_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """build() imports only the command that sys.argv names."""
    monkeypatch.setattr("sys.argv", ["coloc"])


def test_pages_are_up_to_date() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert found == pages.pages(), f"run: .venv/bin/{pages.MADE_BY}"


def test_schemas_are_up_to_date() -> None:
    found = {path.name: path.read_text() for path in (FOLDER / "schemas").iterdir()}
    made = {f"{name}.schema.json": schemas.schema(name) for name in schemas.SCHEMAS}
    assert found == made, f"run: .venv/bin/{pages.MADE_BY}"


def test_every_command_has_its_section() -> None:
    text = pages.command_line()
    assert all(f"\n## coloc {name}" in text for name in COMMANDS)


def test_every_code_has_its_meaning() -> None:
    assert set(codes.ACTIONS) == set(Action)
    assert set(TEXTS) == set(Reason)
    assert set(codes.OUTCOMES) == set(Outcome)
    assert set(WHOSE) == set(Blame)
    assert set(codes.VERDICTS) == set(Verdict)
    assert set(codes.FENCES) == set(FenceLevel)
    assert set(codes.PLACES) == set(Why)


def test_every_word_of_slurmctlds_hook_has_its_meaning() -> None:
    lua = "".join(path.read_text() for path in (FOLDER.parents[1] / "etc").glob("coloc*.lua"))
    before = r"(?:\bfault\(|\{ code = |on_whole_gpu\(job_desc, |return nil, )"
    words = set(re.findall(before + '"([a-z]+_[a-z_]+|breaker)"', lua))
    assert words - {"colocd_"} == set(WITHOUT_ANSWER)


def test_a_bar_in_a_text_stays_in_its_cell() -> None:
    assert pages._cell("a | b\n c") == "a \\| b c"
