# SPDX-License-Identifier: Apache-2.0
"""Logs of trainings with the time of each piece, and what was said of them on the way."""

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm_coloc.adapters.joblog.numbers import HEAD, TAIL
from slurm_coloc.core.time.progress.forecast import Forecast, Progress
from slurm_coloc.core.time.progress.reading import read

LOGS = Path(__file__).parent / "logs"
TRAININGS = Path(__file__).parent / "trainings.py"
PIECE_S = 0.25  # writes this close together are one piece
LOOKS = 100  # of a run: each 30 s of 50 minutes


@dataclass(frozen=True, slots=True)
class Recording:
    """``pieces``: seconds since the begin, and what was written then."""

    kind: str
    seed: int
    command: str
    lasted_s: float
    pieces: list[tuple[float, str]]

    def write(self, folder: Path = LOGS) -> Path:
        """As KIND-SEED.json.gz."""
        path = folder / f"{self.kind}-{self.seed}.json.gz"
        with gzip.GzipFile(path, "wb", mtime=0) as file:
            file.write(json.dumps(asdict(self)).encode())
        return path


def load(path: Path) -> Recording:
    """What ``write`` wrote."""
    plain = json.loads(gzip.decompress(path.read_bytes()))
    plain["pieces"] = [(at_s, text) for at_s, text in plain["pieces"]]
    return Recording(**plain)


def without_paths(text: str) -> str:
    """The log without where the frameworks and this folder lie on the machine."""
    return text.replace(sys.prefix, "/venv").replace(str(TRAININGS.parent), "/job")


def record(kind: str, seed: int, total_s: float, *more: str) -> Recording:
    """Run one of trainings.py with the interpreter that runs this."""
    words = [sys.executable, "-u", str(TRAININGS), kind, str(seed), str(total_s), *more]
    shown = ["python", TRAININGS.name, *words[3:]]
    begin_s = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    pieces: list[tuple[float, str]] = []
    while data := os.read(process.stdout.fileno(), 65536):
        at_s, text = time.monotonic() - begin_s, data.decode("utf-8", "replace")
        text = without_paths(text)
        if pieces and at_s - pieces[-1][0] < PIECE_S:
            pieces[-1] = pieces[-1][0], pieces[-1][1] + text
        else:
            pieces.append((round(at_s, 3), text))
    if process.wait():
        raise SystemExit(f"{kind}: {''.join(text for _, text in pieces)[-2000:]}")
    return Recording(kind, seed, "\0".join(shown), time.monotonic() - begin_s, pieces)


def replayed(one: Recording, tail: int = TAIL) -> Iterator[tuple[float, Forecast | None]]:
    """What is forecast at each look, with the part of the run that was over then."""
    progress, text, at = Progress(), "", 0
    for look in range(1, LOOKS):
        now_s = one.lasted_s * look / LOOKS
        while at < len(one.pieces) and one.pieces[at][0] <= now_s:
            text += one.pieces[at][1]
            at += 1
        cut = max(0, len(text) - tail)
        progress.see(now_s, read(text[: min(HEAD, cut)], text[cut:], one.command))
        yield look / LOOKS, progress.forecast(now_s)
