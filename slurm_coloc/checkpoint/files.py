# SPDX-License-Identifier: Apache-2.0
"""A checkpoint on disk: whole or not at all, with a digest, and the one before it kept.

A line with the SHA-256 and the length of what follows, then what torch.save wrote (pickle without
torch). It is as trusted as the program that reads it: do not load other people's.
"""

import contextlib
import hashlib
import io
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from slurm_coloc.errors import ColocError

MAGIC = b"coloc-checkpoint 1 "
HEAD = len(MAGIC) + 64 + 1 + 20 + 1  # magic, digest, blank, length in 20 digits, newline
CHUNK = 1 << 20


class CheckpointError(ColocError):
    """A checkpoint that cannot be written, or none that can be read although there are some."""


class _Digesting(io.RawIOBase):
    """Writes on, and counts and digests what it writes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += memoryview(data).nbytes
        self._file.write(data)
        return memoryview(data).nbytes


class _Payload(io.RawIOBase):
    """A file from HEAD on, as if it began there: torch.load wants its archive at 0."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._file.seek(HEAD)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = self._file.seek(offset + (HEAD if whence == os.SEEK_SET else 0), whence)
        return at - HEAD

    def tell(self) -> int:
        return self._file.tell() - HEAD

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)  # type: ignore[attr-defined]


def previous(path: Path) -> Path:
    """Where the checkpoint before the last one is kept."""
    return path.with_name(path.name + ".last")


def _torch() -> Any:
    """torch, where the program uses it."""
    return sys.modules.get("torch")


def save(path: Path, state: Any) -> None:
    """Write ``state``; a program killed at any line leaves a good checkpoint, where there was one.
    Raises CheckpointError."""
    fresh = path.with_name(f"{path.name}.new.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(fresh, state)
        with contextlib.suppress(FileNotFoundError):
            path.replace(previous(path))
        fresh.replace(path)
        _sync(path.parent)
    except OSError as err:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise CheckpointError(f"{path}: cannot be written: {err}") from err


def _write(path: Path, state: Any) -> None:
    with path.open("wb") as file:
        file.write(b"\0" * HEAD)
        out = _Digesting(file)
        torch = _torch()
        if torch is not None:
            torch.save(state, out)
        else:
            pickle.dump(state, out, protocol=pickle.HIGHEST_PROTOCOL)
        file.seek(0)
        file.write(MAGIC + f"{out.digest.hexdigest()} {out.size:020d}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """The folder too, or a loss of power takes the rename back; not every file system can."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


def load(path: Path) -> Any | None:
    """The newest good checkpoint, or None where none was ever written. Raises CheckpointError where
    there are some and none is good: a training must not begin anew unasked."""
    wrong: list[str] = []
    for one in (path, previous(path)):
        try:
            return _read(one)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, EOFError, RuntimeError, pickle.UnpicklingError) as err:
            wrong.append(f"{one}: {err}")
    if wrong:
        raise CheckpointError(f"no good checkpoint: {'; '.join(wrong)}; remove it to begin anew")
    return None


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        head = file.read(HEAD)
        if len(head) < HEAD or not head.startswith(MAGIC):
            raise ValueError("no checkpoint of slurm-coloc")
        digest, length = head[len(MAGIC) :].split()
        found, size = hashlib.sha256(), 0
        for chunk in _chunks(file):
            found.update(chunk)
            size += len(chunk)
        if size != int(length) or found.hexdigest().encode() != digest:
            raise ValueError("cut short or damaged")
        payload = io.BufferedReader(_Payload(file))
        torch = _torch()
        if torch is not None:
            # On the CPU: load_state_dict puts it where its owner is, whatever GPU that is now.
            return torch.load(payload, map_location="cpu", weights_only=False)
        return pickle.load(payload)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk
