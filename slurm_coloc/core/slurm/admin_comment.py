# SPDX-License-Identifier: Apache-2.0
"""The mark in AdminComment that ties a job to its decision.

The hook runs before a job has an id. Only the super user may change AdminComment, so a mark there
can be trusted. Form: ``coloc:1:<decision>:<action>:<reason>:<shards>``.
"""

import re
from dataclasses import dataclass

from slurm_coloc.core.decide.decision import Decision

# In place of a decision id: colocd left the job alone, or (etc/coloc.lua) did not answer.
NO_DECISION = "000000000000"
_MARK = re.compile(r"(?:^|; )coloc:1:([0-9a-f]{12}):([a-z]+):([a-z0-9-]+):(\d+)(?=$|;)")


def comment_with(existing: str | None, decision_id: str, decision: Decision) -> str:
    """A site's own comment kept, ours appended."""
    mark = f"coloc:1:{decision_id}:{decision.action}:{decision.reason}:{decision.shards}"
    return f"{existing}; {mark}" if existing else mark


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of a mark; ``action`` and ``reason`` as written, by whatever release."""

    decision: str
    action: str
    reason: str
    shards: int


def mark_in(comment: str) -> Mark | None:
    """The mark in an AdminComment; the last one counts. None where there is none."""
    found = _MARK.findall(comment)
    if not found:
        return None
    decision, action, reason, shards = found[-1]
    return Mark(decision, action, reason, int(shards))


def decision_in(comment: str) -> str | None:
    """The decision id in an AdminComment. None where there is none, or colocd made none."""
    found = mark_in(comment)
    return found.decision if found and found.decision != NO_DECISION else None
