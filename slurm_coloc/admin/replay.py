# SPDX-License-Identifier: Apache-2.0
"""`coloc replay`: decisions that colocd recorded (flow/place/recording), made again."""

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from slurm_coloc.core.place.steering import RECORDING_SCHEMA, Answer, Snapshot, steer
from slurm_coloc.errors import UsageFault
from slurm_coloc.policies import fresh, policy

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


def replay(path: Path) -> Replay:
    """Decide a recorded snapshot again. Raises UsageFault for a file that is none."""
    try:
        body = json.loads(path.read_text("utf-8"))
        if body["schema"] != RECORDING_SCHEMA:
            raise UsageFault(f"{path}: recorded by another version of slurm-coloc")
        snapshot = _SNAPSHOT.validate_python(body["snapshot"])
        then = _ANSWERS.validate_python(body["answers"])
    except OSError as err:
        raise UsageFault(f"{path}: {err.strerror}") from err
    except (ValueError, LookupError, TypeError, ValidationError) as err:
        raise UsageFault(f"{path}: no recorded snapshot: {str(err)[:200]}") from err
    answers, _ = steer(snapshot, fresh(policy(snapshot.rules.policy)))
    return Replay(snapshot, then, answers)
