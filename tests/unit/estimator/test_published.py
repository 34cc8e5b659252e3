# SPDX-License-Identifier: Apache-2.0
"""Models that are not those that were measured are told by published figures, and named."""

import sys
import types
from pathlib import Path

import pytest

from estimator.evaluate import __main__ as program
from estimator.evaluate.published import growth, others, stamp, told, version
from estimator.evaluate.runs import Judged
from estimator.measured import published_rows
from slurm_coloc.estimate.block.text import block
from slurm_coloc.estimate.block.traced import Size
from tests.unit.estimate.recordings import MIB, small

#: keeps two tensors of 1 MiB a sample, as what was published
TEXT = block(small())
PUBLISHED = ((8, 24.1), (128, 264.6))


def test_the_same_model() -> None:
    assert growth(TEXT, PUBLISHED) == pytest.approx(1.0, abs=0.01)
    assert growth(TEXT, PUBLISHED[::-1]) == growth(TEXT, PUBLISHED)
    assert others({"net": TEXT}, {"net": PUBLISHED}) == {}


def test_another_model_is_named_with_its_runs() -> None:
    larger = block(small(events=(Size(0, 3 * MIB), Size(4), -1), gradients=frozenset()))
    apart = others({"net": larger, "same": TEXT}, dict.fromkeys(("net", "same"), PUBLISHED))
    assert list(apart) == ["net"] and apart["net"] == pytest.approx(1.5, abs=0.02)
    runs = [Judged(name, 8, 3000, 3000, 3300, 0.0) for name in ("net", "net", "same")]
    assert "1 models, 2 runs refused: net +4" in told(runs, apart)
    assert "no model" in told(runs, {})


def test_what_is_not_known_is_not_refused() -> None:
    """Nothing published; a recording of one batch size, which counts there alone."""
    assert others({"net": TEXT}, {}) == {}
    alone = block(small(scales=False))
    assert growth(alone, ((8, 25.0), (16, 41.0))) == pytest.approx(1.0, abs=0.05)
    assert growth(alone, ((16, 41.0), (32, 73.0))) is None


def test_published_figures_of_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "model,batch_size,max_memory_mib,faketensor_mib,capped,monotone\n"
        "net,8,3000,24.0,0,1\nnet,128,40000,264.5,1,1\nother,8,3000,,0,1\n"
    )
    assert published_rows(path) == {"net": [(8, 24.0), (128, 264.5)]}


def test_a_folder_is_for_one_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(number: str) -> None:
        timm = types.ModuleType("timm")
        timm.__version__ = number  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "timm", timm)

    folder = tmp_path / "cache"
    installed("1.0.9")
    stamp(folder)
    stamp(folder)
    assert version(folder) == "timm 1.0.9"
    installed("1.0.31")
    with pytest.raises(SystemExit, match=r"models of timm 1\.0\.9, installed is timm 1\.0\.31"):
        stamp(folder)
    old = tmp_path / "old"
    old.mkdir()
    (old / "net.recorded").write_text("made before the release was noted")
    with pytest.raises(SystemExit, match="an unknown timm"):
        stamp(old)


def test_the_program_names_and_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two models of two families are as published, a third is not: two tables."""
    lines = ["model,batch_size,max_memory_mib,faketensor_mib,capped,monotone"]
    for model, sample in (("resnet50", 2), ("vit_tiny", 2), ("swin_tiny", 3)):
        lines += [f"{model},{n},{1800 + 2 * n},{8 + sample * n},0,1" for n in (8, 16, 32)]
    (tmp_path / "data").mkdir()
    (tmp_path / program.TIMM).write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(program, "SHARED", tmp_path)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "timm.txt").write_text("1.0.9\n")
    for model in ("resnet50", "vit_tiny", "swin_tiny"):
        (cache / f"{model}.recorded").write_text(TEXT)
    assert program._timm(cache, "recorded", "traced", 3) == 0
    out = capsys.readouterr().out
    assert out.startswith("models of timm 1.0.9\n6 runs of 2 models in 2 families")
    assert "1 models, 3 runs refused: swin_tiny -33" in out
    assert "with them: 9 runs of 3 models in 3 families" in out


def test_an_empty_cache_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "SHARED", tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / program.TIMM).write_text(
        "model,batch_size,max_memory_mib,faketensor_mib,capped,monotone\n"
    )
    assert program._timm(tmp_path, "full", "text", 3) == 1
    assert "make them first" in capsys.readouterr().err
