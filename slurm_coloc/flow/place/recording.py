# SPDX-License-Identifier: Apache-2.0
"""Decisions of stage place as text; `coloc replay` (admin/replay) makes them again."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from slurm_coloc.core.place.steering import RECORDING_SCHEMA, Answer, Snapshot


def recorded(snapshot: Snapshot, answers: Sequence[Answer]) -> str:
    body = {
        "schema": RECORDING_SCHEMA,
        "snapshot": asdict(snapshot),
        "answers": [asdict(one) for one in answers],
    }
    return json.dumps(body)
