# SPDX-License-Identifier: Apache-2.0
"""The mark in AdminComment that ties a job to its decision.

The hook runs before a job has an id; only the super user may change AdminComment, so it is the one
place where the tie can be trusted. Form: ``coloc:1:<decision>:<action>:<reason>:<shards>``.
"""

import re

from slurm_coloc.core.decision import Decision

_MARK = re.compile(r"(?:^|; )coloc:1:([0-9a-f]{12}):([a-z]+):([a-z0-9-]+):(\d+)(?=$|;)")


def comment_with(existing: str | None, decision_id: str, decision: Decision) -> str:
    """A site's own comment kept, ours appended."""
    mark = f"coloc:1:{decision_id}:{decision.action}:{decision.reason}:{decision.shards}"
    return f"{existing}; {mark}" if existing else mark


def decision_in(comment: str) -> str | None:
    """The decision id in an AdminComment; the last mark counts. None where there is none."""
    found = _MARK.findall(comment)
    return found[-1][0] if found else None
