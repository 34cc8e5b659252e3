# SPDX-License-Identifier: Apache-2.0
"""Dependencies on a job that ended and was put back: which jobs wait in vain, and their renewed
dependency.

Slurm judges a dependency when the job it names has left COMPLETING. A job that is requeued before
that has never ended for its dependents, whatever their kind (tried on 22.05 and 24.11: afterok,
afterany, afternotok, aftercorr): that is the rule here. This module is for a job that was found
after its end: its dependents of kind afterok and aftercorr stand as DependencyNeverSatisfied, and
Slurm judges a Dependency anew when it is set anew.
"""

import re

from slurm_coloc.core.slurm.job import JobView

# A term's verdict as squeue shows it: afterok:46(failed),after:7+5(unfulfilled).
_VERDICT = re.compile(r"\([a-z]+\)")
_TERM = re.compile(r"[a-z]+:(\d+)(_\*|_\d+)?(\+\d+)?(\([a-z]+\))?")


def names(dependency: str, job: JobView) -> bool:
    """Whether a term that failed names ``job``: its id, its array, or its task of that."""
    for found in _TERM.finditer(dependency):
        number, task, _, verdict = found.groups()
        if verdict != "(failed)":
            continue
        if int(number) == job.job_id and task is None:
            return True
        if int(number) == job.array_job_id and task in (None, "_*", f"_{job.array_task}"):
            return True
    return False


def renewed(dependency: str) -> str:
    """The same dependency as scontrol takes it: without the verdicts and ``_*``.

    >>> renewed("afterok:46(failed)?aftercorr:50_*(unfulfilled)")
    'afterok:46?aftercorr:50'
    """
    return _VERDICT.sub("", dependency).replace("_*", "")
