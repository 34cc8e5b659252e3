# SPDX-License-Identifier: Apache-2.0
"""Jobs that colocd did not place, as agents measured them."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ObservedJob:
    """A job on one node, from its first to its last sample with a process on a GPU (Unix seconds).

    ``gpus``: how many it used there; ``peak_mib``, ``total_mib``: of the fullest of them;
    ``smact``: mean SM activity of all (ratio), None where nothing measures it. The rest is Slurm's
    word, None until it was asked, ``uid`` -1 where Slurm no longer knew the job.
    """

    job_id: int
    node: str
    since_s: float
    until_s: float
    samples: int
    gpus: int
    kind: str
    total_mib: int
    peak_mib: int
    smact: float | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    submit_s: float | None = None
    start_s: float | None = None
