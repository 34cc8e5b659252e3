# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is whole or not there, and the one before it is kept."""

import subprocess
import sys
from pathlib import Path

import pytest

from slurm_coloc.checkpoint import CheckpointError, files

ROOT = Path(__file__).resolve().parents[3]


def test_it_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "run.ckpt"
    assert files.load(path) is None
    files.save(path, {"a": [1, 2], "b": b"x" * 3_000_000})
    assert files.load(path) == {"a": [1, 2], "b": b"x" * 3_000_000}
    files.save(path, {"a": 2})
    assert files.load(path) == {"a": 2}
    assert sorted(one.name for one in path.parent.iterdir()) == ["run.ckpt", "run.ckpt.last"]


@pytest.mark.parametrize("harm", ["cut", "bit", "empty", "other", "gone"])
def test_a_damaged_one_gives_way_to_the_one_before(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "run.ckpt"
    files.save(path, {"step": 1})
    files.save(path, {"step": 2})
    data = bytearray(path.read_bytes())
    if harm == "cut":
        path.write_bytes(data[:-3])
    elif harm == "bit":
        data[-2] ^= 1
        path.write_bytes(data)
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "other":
        path.write_bytes(b"a file of another program " * 10)
    else:
        path.unlink()  # killed between the two renames
    assert files.load(path) == {"step": 1}


def test_only_damaged_ones_are_no_fresh_start(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    path.write_bytes(b"?")
    files.previous(path).write_bytes(b"?" * 500)
    with pytest.raises(CheckpointError, match=r"no good checkpoint: .*remove it"):
        files.load(path)


def test_a_full_disk_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ckpt"
    files.save(path, {"step": 1})

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        files.save(path, {"step": 2})
    assert files.load(path) == {"step": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["run.ckpt"]


def test_the_library_needs_the_standard_library_alone() -> None:
    """Users import it into their own Python: no site-packages here (-S)."""
    text = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import slurm_coloc.checkpoint;"
        "bad = {'torch', 'numpy', 'pydantic', 'structlog'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-S", "-E", "-c", text], check=True)
