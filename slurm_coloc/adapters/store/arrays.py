# SPDX-License-Identifier: Apache-2.0
"""Arrays whose waiting tasks get another request."""

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.lists import ArrayPlan
from slurm_coloc.core.slurm.gres import count_of


class ArrayPlans(Table[ArrayPlan]):
    """The table ``siblings``; a part of the store."""

    RECORD = ArrayPlan
    NAME = "siblings"
    KEYS = ("decision",)

    def open(self) -> list[ArrayPlan]:
        """Arrays whose waiting tasks are still to be changed."""
        return self._rows("SELECT * FROM siblings WHERE state = 'open' ORDER BY updated_s")

    def plan(self, new: ArrayPlan) -> bool:
        """Plan another request for the waiting tasks of a decision; False where that same request
        was planned before. What was planned after an out-of-memory is not made smaller, and another
        out-of-memory makes it larger: then ``was`` names both requests that it replaces."""
        known = self.of(new.decision)
        if known is None:
            self.add(new)
            return True
        after_oom = known.why == "oom-gpu"
        if known.tres == new.tres or (after_oom and not _larger(new, known)):
            return False
        was = new.was
        if after_oom:
            was = " ".join(dict.fromkeys([*known.was.split(), known.tres, *was.split()]))
        self.change(
            known, tres=new.tres, why=new.why, updated_s=new.updated_s, was=was, state="open",
            tries=0,
        )  # fmt: skip
        return True


def _larger(new: ArrayPlan, known: ArrayPlan) -> bool:
    """Whether a plan after an out-of-memory gives more than another; no shards: a whole GPU."""
    if new.why != "oom-gpu":
        return False
    had, gives = count_of(known.tres, "shard"), count_of(new.tres, "shard")
    return had is not None and (gives is None or gives > had)
