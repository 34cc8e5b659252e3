# SPDX-License-Identifier: Apache-2.0
"""Decisions made at submit."""

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.runs import StoredDecision

ABANDONED = 2  # column bound: the submission never became a job


class Decisions(Table[StoredDecision]):
    """The table ``decisions``; a part of the store."""

    RECORD = StoredDecision
    NAME = "decisions"
    KEYS = ("id",)
    INSERT = "INSERT"

    def known(self, decision_id: str) -> bool:
        """Whether there is such a decision."""
        return bool(self._values("SELECT 1 FROM decisions WHERE id = ?", decision_id))

    def unbound(self, uid: int | None = None) -> bool:
        """Whether a decision's job (of ``uid``, or None: of anybody) has not been seen yet."""
        sql = "SELECT 1 FROM decisions WHERE bound = 0 AND (? IS NULL OR uid = ?) LIMIT 1"
        return bool(self._values(sql, uid, uid))

    def bind(self, decision_id: str, job_id: int) -> None:
        """The job of a decision has been seen."""
        sql = "UPDATE decisions SET job_id = coalesce(job_id, ?), bound = 1 WHERE id = ?"
        self._write(sql, job_id, decision_id)

    def abandon(self, before_s: float) -> int:
        """Give up decisions made before ``before_s`` that never became a job."""
        sql = "UPDATE decisions SET bound = ? WHERE bound = 0 AND made_s < ?"
        return self._write(sql, ABANDONED, before_s)
