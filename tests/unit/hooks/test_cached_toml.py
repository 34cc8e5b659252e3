# SPDX-License-Identifier: Apache-2.0
"""What a hook read of the configuration is cached for the next one, until the file changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_coloc.adapters.hookenv import cached_toml

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root caches anything")
TEXT = '[fence]\noverrun = "tell"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir(mode=0o711)
    return made


def written(tmp_path: Path, text: str = TEXT) -> Path:
    path = tmp_path / "coloc.toml"
    path.write_text(text)
    return path


def forged(folder: Path) -> Path:
    """The cache with other tables; its key is right."""
    cache = folder / cached_toml.NAME
    cache.write_text(json.dumps(json.loads(cache.read_text()) | {"tables": {"fence": "forged"}}))
    return cache


@root
def test_the_next_one_reads_the_cache(tmp_path: Path, folder: Path) -> None:
    path = written(tmp_path)
    assert cached_toml.read(path, folder) == {"fence": {"overrun": "tell"}}
    assert (folder / cached_toml.NAME).stat().st_mode & 0o777 == 0o600
    forged(folder)
    assert cached_toml.read(path, folder) == {"fence": "forged"}
    assert [one.name for one in folder.iterdir()] == [cached_toml.NAME]


@root
@pytest.mark.parametrize("how", ["written", "replaced", "touched", "elsewhere"])
def test_after_any_change_the_file_is_read(tmp_path: Path, folder: Path, how: str) -> None:
    path = written(tmp_path)
    cached_toml.read(path, folder)
    forged(folder)
    if how == "written":
        written(tmp_path, TEXT.replace("tell", "end!"))
    elif how == "replaced":
        (tmp_path / "new").write_text(TEXT)
        (tmp_path / "new").rename(path)
    elif how == "touched":
        os.utime(path, ns=(1, 1))
    else:
        path = path.rename(tmp_path / "other.toml")
    assert cached_toml.read(path, folder)["fence"]["overrun"] in ("tell", "end!")


@root
@pytest.mark.parametrize("how", ["mode", "owner", "link", "fifo", "junk", "list"])
def test_nothing_that_another_could_have_written_is_believed(
    tmp_path: Path, folder: Path, how: str
) -> None:
    path = written(tmp_path)
    cached_toml.read(path, folder)
    cache = forged(folder)
    if how == "mode":
        cache.chmod(0o622)
    elif how == "owner":
        os.chown(cache, 65534, 65534)
    elif how == "link":
        cache.rename(folder / "elsewhere")
        cache.symlink_to(folder / "elsewhere")
    elif how == "fifo":
        cache.unlink()
        os.mkfifo(cache)
    else:
        cache.write_text("{" if how == "junk" else "[1]")
    assert cached_toml.read(path, folder) == {"fence": {"overrun": "tell"}}


@root
@pytest.mark.parametrize("how", ["mode", "link", "missing", "date"])
def test_where_nothing_is_cached(tmp_path: Path, folder: Path, how: str) -> None:
    path = written(tmp_path, TEXT + ("day = 2026-11-30\n" if how == "date" else ""))
    if how == "mode":
        folder.chmod(0o777)
    elif how == "link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    elif how == "missing":
        folder.rmdir()
    assert cached_toml.read(path, folder)["fence"]["overrun"] == "tell"
    assert not (folder / cached_toml.NAME).exists()


def test_tomllib_is_loaded_only_to_read(tmp_path: Path) -> None:
    program = "import sys; import slurm_coloc.flow.launch.prolog; print('tomllib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_a_fault_is_told_as_before(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        cached_toml.read(tmp_path / "none.toml", folder)
    with pytest.raises(ValueError, match="Expected"):
        cached_toml.read(written(tmp_path, "[fence"), folder)
