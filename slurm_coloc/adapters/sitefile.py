# SPDX-License-Identifier: Apache-2.0
"""Files of the site that `coloc init` and `coloc leave` change: read, replaced, kept."""

import contextlib
import difflib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurm_coloc.errors import ConfigError

#: what is kept of each file, and what was done to it
KEPT = Path("/etc/slurm-coloc/before")
RECORD = "changes.json"
PRIVATE = 0o600  # a site's job_submit.lua may hold what users must not read
#: where slurmd keeps the files that it got from slurmctld
CONFIGLESS = ("/run/slurm/conf", "conf-cache")


@dataclass(frozen=True, slots=True)
class Change:
    """What `coloc init` made of a file. ``edits``: as (old, new, before) of admin/init/edits.Edit;
    ``after``: SHA-256 of what it wrote; ``new``: there was no such file before; ``name``: its usual
    one, "" by an earlier release: the path has it."""

    edits: tuple[tuple[str | None, str, str | None], ...]
    after: str
    new: bool
    name: str = ""


def text_of(path: Path) -> str:
    """A file's text, "" where there is none. Raises ConfigError where it is no plain text."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: cannot be read: {err}") from err


def refusal(path: Path) -> str:
    """Why this file is not to be changed here; "" where it may be."""
    real = path.resolve()
    if any(part in str(real) for part in CONFIGLESS):
        return f"{path} came from slurmctld (configless): change it on slurmctld's host"
    if real != path.absolute():
        return f"{path} is {real} by a symbolic link: change it there"
    if path.exists() and not path.is_file():
        return f"{path} is no plain file"
    nearest = next((one for one in (path, *path.parents) if one.exists()), path)
    if not os.access(nearest, os.W_OK):
        return f"{path} cannot be written by this user"
    return ""


def difference(path: Path, old: str, new: str) -> str:
    """A unified diff for people."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), str(path), str(path), lineterm="", n=1
    )
    return "\n".join(lines)


def replace(path: Path, text: str, mode: int = 0o644) -> None:
    """Put the text in the file's place at once; owner and mode stay, ``mode`` is that of a new one.
    Raises ConfigError."""
    if why := refusal(path):
        raise ConfigError(why)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from err
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(fd)
            if (was := _stat(path)) is not None:
                os.fchown(fd, was.st_uid, was.st_gid)
            os.fchmod(fd, stat.S_IMODE(was.st_mode) if was else mode)
        Path(name).rename(path)
    except OSError as err:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise ConfigError(f"{path}: {err.strerror}") from err


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def changes(kept: Path = KEPT) -> dict[str, Change]:
    """What was done to each file, by its path. Raises ConfigError."""
    text = text_of(kept / RECORD)
    if not text:
        return {}
    try:
        return {path: _change(row) for path, row in json.loads(text).items()}
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        raise ConfigError(f"{kept / RECORD}: {err}") from err


def _change(row: dict[str, Any]) -> Change:
    edits = tuple((old, str(new), before) for old, new, before in row["edits"])
    return Change(edits, str(row["after"]), bool(row["new"]), str(row.get("name", "")))


def keep(
    path: Path,
    old: str,
    new: str,
    edits: Sequence[tuple[str | None, str, str | None]],
    name: str,
    kept: Path = KEPT,
) -> None:
    """Before a file becomes ``new``: the first text that it had, and all that was done to it. What
    others have changed in between is theirs: then only the lines themselves can be taken back."""
    known = changes(kept)
    was = known.get(str(path))
    if was is None:
        replace(_copy(path, kept), old, PRIVATE)
    untouched = was is None or was.after == digest(old)
    known[str(path)] = Change(
        edits=(*(was.edits if was else ()), *edits),
        after=digest(new) if untouched else "",
        new=was.new if was else not path.exists(),
        name=name,
    )
    _write(known, kept)


def _copy(path: Path, kept: Path) -> Path:
    return kept / str(path).strip("/").replace("/", "_")


def before(path: Path, kept: Path = KEPT) -> str:
    """The text that the file had first."""
    return text_of(_copy(path, kept))


def forget(path: Path, kept: Path = KEPT) -> None:
    """The file is as it was: what was kept of it goes."""
    known = changes(kept)
    known.pop(str(path), None)
    _write(known, kept)
    _copy(path, kept).unlink(missing_ok=True)


def _write(known: dict[str, Change], kept: Path) -> None:
    rows = {path: asdict(change) for path, change in known.items()}
    replace(kept / RECORD, json.dumps(rows, indent=1) + "\n", PRIVATE)
