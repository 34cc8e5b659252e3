# SPDX-License-Identifier: Apache-2.0
"""What depends on the number of a Slurm release: one table, each row with its source.

Differences that Slurm's answers show themselves are not here: the parsers read every spelling
(adapters/slurm/commands/parse.py lists them). For a new release see
docs/developer/a-new-slurm-release.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

Release = tuple[int, ...]


def parse_release(text: str) -> Release:
    """``24.11.5`` as (24, 11, 5)."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def shown(release: Release) -> str:
    """``24.11`` of (24, 11, 5)."""
    return ".".join(f"{part:02}" for part in release[:2])


@dataclass(frozen=True, slots=True)
class Since:
    """A property that holds from release ``first`` on: what, and how that is known."""

    first: Release
    what: str
    source: str

    def holds(self, release: Release) -> bool:
        """Whether it holds on ``release``."""
        return release >= self.first


SUPPORTED = Since((22, 5), "slurm-coloc runs", "22.05.8 of Debian 12 is the oldest that is tested")
SLASHED_GRES = Since(
    (23, 2),
    "a waiting job's gres is changed as gres/shard:N",
    "tried: 22.05 takes that, shows it, and goes on with the old count; it needs gres:shard:N",
)
MIG_STAYS = Since(
    (23, 2),
    "a job on a MIG device keeps it after an out-of-memory, unless WHOLE_APART holds",
    "tried on 22.05: a larger device can be given; from 23.02 to 23.11.4 nobody has tried",
)
LEAST_LOADED = Since((23, 2), "SelectTypeParameters=LL_SHARED_GRES", "22.05 does not know it")
CONSTRAINTS = Since(
    (23, 11), "jobs' Extra is a constraint on nodes' Extra", "tried on 24.11 and 26.05"
)
CGROUP_DISABLED = Since(
    (23, 11),
    "cgroup.conf needs CgroupPlugin=disabled where no cgroup can be made",
    "the labs on 22.05, 24.11 and 26.05",
)
WHOLE_APART = Since(
    (23, 11, 5),
    "a GPU is at one time either whole (gpu) or shared (shard)",
    "Slurm's repairs of shards end with 23.11.5; tried: in 160 random submissions 85 GPUs were both"
    " on 22.05, none on 24.11",
)
JSON_LAYOUT = Since(
    (24, 11), "--json=LAYOUT, one of JSON_LAYOUTS", "recorded answers of 24.11 and 26.05"
)
PINS = Since(
    (24, 11),
    "a waiting job's shards can be put on the GPU of a type",
    "tried on 24.11 and 26.05; 22.05 takes the type, shows it, and goes on without it",
)
COMMENTS = Since(
    (24, 11),
    "sacctmgr writes an ended job's AdminComment as it is given",
    "tried on 24.11; 22.05 writes it in lower case; between them nobody has tried",
)
SEVERAL_GPUS = Since(
    (24, 11),
    "a job can have shards of several GPUs (tres_per_task with one-task-per-sharing)",
    "the oldest release on which it was tried, with MULTIPLE_SHARING_GRES_PJ",
)
SOUND_BACKFILL = Since(
    (25, 5),
    "backfill knows that the other kind holds a GPU",
    "ADR 20: 24.11.5 does not; 25.11.4 and 26.05.5 do, by the source from 25.05 on",
)

# The newest layout of each release's --json (its data_parser plugins). A release still has those of
# the three before it, so a Slurm that is newer than the table is asked for the table's newest.
JSON_LAYOUTS: Mapping[Release, str] = {
    (24, 11): "v0.0.42",
    (25, 5): "v0.0.43",
    (25, 11): "v0.0.44",
    (26, 5): "v0.0.45",
}


def json_layout(release: Release) -> str | None:
    """The layout to ask of ``release``; None before the first of the table."""
    known = [first for first in JSON_LAYOUTS if first <= release]
    return JSON_LAYOUTS[max(known)] if known else None


# `sbatch -n1 --gpus=1 --spread-job` of any user ends slurmctld 24.11.5 under
# MULTIPLE_SHARING_GRES_PJ (tried without any plugin of ours); other releases were not checked.
SPREAD_JOB_CRASH: Release = (24, 11)
