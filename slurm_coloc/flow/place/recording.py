# SPDX-License-Identifier: Apache-2.0
"""Recorded decisions of stage place, and the same decisions made again."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from slurm_coloc.core.place.steering import Answer, Snapshot, steer
from slurm_coloc.errors import UsageFault
from slurm_coloc.policies import fresh, policy

SCHEMA = 1
_SNAPSHOT, _ANSWERS = TypeAdapter(Snapshot), TypeAdapter(tuple[Answer, ...])


@dataclass(frozen=True, slots=True)
class Replay:
    """What was answered, and what is answered now."""

    snapshot: Snapshot
    then: tuple[Answer, ...]
    now: tuple[Answer, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.then == self.now


def recorded(snapshot: Snapshot, answers: Sequence[Answer]) -> str:
    """A snapshot and its answers as text."""
    body = {
        "schema": SCHEMA,
        "snapshot": asdict(snapshot),
        "answers": [asdict(one) for one in answers],
    }
    return json.dumps(body)


def replay(path: Path) -> Replay:
    """Decide a recorded snapshot again. Raises UsageFault for a file that is none."""
    try:
        body = json.loads(path.read_text("utf-8"))
        if body["schema"] != SCHEMA:
            raise UsageFault(f"{path}: recorded by another version of slurm-coloc")
        snapshot = _SNAPSHOT.validate_python(body["snapshot"])
        then = _ANSWERS.validate_python(body["answers"])
    except OSError as err:
        raise UsageFault(f"{path}: {err.strerror}") from err
    except (ValueError, LookupError, TypeError, ValidationError) as err:
        raise UsageFault(f"{path}: no recorded snapshot: {str(err)[:200]}") from err
    answers, _ = steer(snapshot, fresh(policy(snapshot.rules.policy)))
    return Replay(snapshot, then, answers)
