# SPDX-License-Identifier: Apache-2.0
"""What slurm.conf must say for slurm-coloc, as pure checks of `scontrol show config`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_coloc.admin.rules.finding import Finding, Status, judge

Conf = Mapping[str, str]

MIN_JOB_AGE_S = 60  # a FAILED job must still be known when its report arrives and is acted on


def value(conf: Conf, key: str) -> str:
    """A setting of slurm.conf; "" where it is not set. 24.11 numbers some keys: ``Prolog[0]``."""
    text = conf.get(key) or conf.get(f"{key}[0]") or ""
    return "" if text in ("(null)", "N/A", "none") else text


def values(conf: Conf, key: str) -> list[str]:
    """All values of a key that may be given several times (Prolog[0], Prolog[1], ... of 24.11)."""
    numbered = re.compile(rf"{re.escape(key)}(?:\[\d+\])?")
    return [
        text
        for name in conf
        if numbered.fullmatch(name) and (text := conf[name]) not in ("", "(null)", "N/A")
    ]


def words(conf: Conf, key: str) -> list[str]:
    """A list setting in small letters."""
    return [word.strip().lower() for word in value(conf, key).split(",") if word.strip()]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of slurm.conf: ``key`` must satisfy ``good``, else ``todo``."""

    check: str
    key: str
    good: Callable[[Conf], bool]
    todo: str
    bad: Status = Status.FAIL

    def __call__(self, conf: Conf) -> Finding:
        """Judge the setting in a configuration."""
        found = f"{self.key}={value(conf, self.key) or '(not set)'}"
        return judge(self.check, self.good(conf), found, self.todo, self.bad)


def _old_enough(conf: Conf) -> bool:
    number = re.match(r"\d+", value(conf, "MinJobAge"))
    return number is not None and int(number[0]) >= MIN_JOB_AGE_S


gres_types = Setting(
    "gres-types",
    "GresTypes",
    lambda conf: {"gpu", "shard"} <= set(words(conf, "GresTypes")),
    "slurm.conf: GresTypes=gpu,shard",
)
# Shards exist in cons_tres alone.
select_type = Setting(
    "select-type",
    "SelectType",
    lambda conf: value(conf, "SelectType") == "select/cons_tres",
    "slurm.conf: SelectType=select/cons_tres",
)
job_submit = Setting(
    "job-submit",
    "JobSubmitPlugins",
    lambda conf: "lua" in words(conf, "JobSubmitPlugins"),
    "slurm.conf: JobSubmitPlugins=lua, and job_submit.lua beside slurm.conf calls coloc.lua",
)
# The hook sets it for each job that it rewrites; the default helps the other jobs.
job_requeue = Setting(
    "job-requeue",
    "JobRequeue",
    lambda conf: value(conf, "JobRequeue") == "1",
    "only jobs whose request was rewritten get Requeue=1; slurm.conf: JobRequeue=1 for all",
    Status.WARN,
)
# A requeue truncates the job's log, unless the open mode is append; whether that is for all jobs is
# the site's choice (docs/adr/0003).
file_append = Setting(
    "job-file-append",
    "JobFileAppend",
    lambda conf: value(conf, "JobFileAppend") == "1",
    "a job that is put back begins its log anew; etc/cli_filter.lua appends for --coloc jobs alone,"
    " JobFileAppend=1 in slurm.conf for all jobs",
    Status.NA,
)
# Recovery acts on a job that has FAILED: slurmctld must still know it.
min_job_age = Setting(
    "min-job-age",
    "MinJobAge",
    _old_enough,
    f"slurm.conf: MinJobAge={MIN_JOB_AGE_S} or more (300 is Slurm's default)",
)
# priority/basic counts down from 2^32: a set priority of 100000 would be the lowest.
priority_type = Setting(
    "priority-type",
    "PriorityType",
    lambda conf: value(conf, "PriorityType") != "priority/basic",
    "with priority/basic a raised priority is the lowest of all: set recovery.raise_by ="
    ' "nice" or "none" in coloc.toml, or PriorityType=priority/multifactor in slurm.conf',
    Status.WARN,
)
# Slurm cancels the dependents of a job that a late recovery would bring back.
invalid_depend = Setting(
    "dependents",
    "SchedulerParameters",
    lambda conf: "kill_invalid_depend" not in words(conf, "SchedulerParameters"),
    "kill_invalid_depend cancels the afterok dependents of a job that runs out of GPU memory while"
    " colocd is away; without it colocd puts the job back and renews their dependency",
    Status.WARN,
)

SETTINGS = (
    gres_types,
    select_type,
    job_submit,
    job_requeue,
    file_append,
    min_job_age,
    priority_type,
    invalid_depend,
)
