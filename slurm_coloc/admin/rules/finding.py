# SPDX-License-Identifier: Apache-2.0
"""The result of one check of `coloc doctor`: what was checked, how it stands, what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a check ended; only FAIL makes `coloc doctor` end with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    NA = "not-applicable"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; ``todo`` is empty where nothing is to be done."""

    check: str
    status: Status
    found: str
    todo: str = ""


def judge(name: str, good: bool, found: str, todo: str, bad: Status = Status.FAIL) -> Finding:
    """OK where ``good``, else ``bad`` with what is to be done."""
    return Finding(name, Status.OK if good else bad, found, "" if good else todo)
