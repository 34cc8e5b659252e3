# SPDX-License-Identifier: Apache-2.0
"""Decisions of stage place as text; `coloc replay` (admin/replay) makes them again."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from slurm_coloc.adapters.ring import Ring
from slurm_coloc.core.place.steering import RECORDING_SCHEMA, Answer, Snapshot


def recorded(snapshot: Snapshot, answers: Sequence[Answer]) -> str:
    body = {
        "schema": RECORDING_SCHEMA,
        "snapshot": asdict(snapshot),
        "answers": [asdict(one) for one in answers],
    }
    return json.dumps(body)


class Recording:
    """Writes records in threads: submissions do not wait for the disk. ``writes``: under way."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.writes: set[asyncio.Task[Path]] = set()

    def add(self, snapshot: Snapshot, answers: Sequence[Answer]) -> None:
        task = asyncio.create_task(asyncio.to_thread(self._ring.add, recorded(snapshot, answers)))
        self.writes.add(task)
        task.add_done_callback(self.writes.discard)
