# SPDX-License-Identifier: Apache-2.0
"""The table of jobs that colocd did not place; a part of the store."""

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.observed import ObservedJob

NOT_KNOWN = -1  # of a uid: Slurm does not know the job any more
MOST, MOST_OF_ONE = 100_000, 5_000  # rows of one answer, of all users and of one


class ObservedJobs(Table[ObservedJob]):
    """The table ``observed``: a row for each job and node, which grows while the job runs."""

    RECORD = ObservedJob
    NAME = "observed"
    KEYS = ("job_id", "node", "since_s")

    def see(self, record: ObservedJob) -> None:
        """Add it, or bring what was measured up to date; what Slurm said stays."""
        self.add(record)
        names = ("until_s", "samples", "gpus", "kind", "total_mib", "peak_mib", "smact")
        self._change(record, "", {name: getattr(record, name) for name in names})

    def unasked(self, limit: int = 500) -> list[int]:
        """Jobs of which Slurm was not asked yet."""
        return self._values(
            "SELECT DISTINCT job_id FROM observed WHERE uid IS NULL ORDER BY since_s LIMIT ?", limit
        )

    def name(
        self,
        job_id: int,
        uid: int,
        account: str | None = None,
        partition: str | None = None,
        submit_s: float | None = None,
        start_s: float | None = None,
    ) -> None:
        """What Slurm says of a job; a uid of NOT_KNOWN where it says nothing."""
        self._write(
            """UPDATE observed SET uid = ?, account = ?, partition = ?, submit_s = ?, start_s = ?
               WHERE job_id = ? AND uid IS NULL""",
            *(uid, account, partition, submit_s, start_s, job_id),
        )

    def drop(self, job_id: int) -> None:
        """It is a job that colocd follows: its runs have records of their own."""
        self._write("DELETE FROM observed WHERE job_id = ?", job_id)

    def since(self, since_s: float) -> list[ObservedJob]:
        """Those that were measured after ``since_s``, in the order of their beginning."""
        return self._where("until_s >= ? ORDER BY since_s LIMIT ?", since_s, MOST)

    def of_user(self, uid: int, since_s: float) -> list[ObservedJob]:
        """Those of one user that were measured after ``since_s``, the newest first."""
        return self._where(
            "uid = ? AND until_s >= ? ORDER BY since_s DESC LIMIT ?", uid, since_s, MOST_OF_ONE
        )

    def forget(self, before_s: float) -> int:
        """Drop those that ended before ``before_s``."""
        return self._write("DELETE FROM observed WHERE until_s < ?", before_s)
