# SPDX-License-Identifier: Apache-2.0
"""Files that tell dcgm-exporter which jobs are on which GPU."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import structlog

log = structlog.get_logger()

OURS = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4})?")


def map_jobs(folder: Path, jobs: Mapping[str, Collection[int]]) -> None:
    """The files of dcgm-exporter's --hpc-job-mapping-dir: named by DCGM's number of the GPU, of a
    MIG device with a point and its GPU instance id, with one job id a line. A GPU without jobs has
    none: an empty file hides the GPU's metrics."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name, ids in jobs.items():
            if ids:
                # The name of a file that is not there yet is no number: the exporter skips it.
                new = folder / f".{name}.new"
                new.write_text("".join(f"{job_id}\n" for job_id in ids), encoding="ascii")
                new.chmod(0o644)
                new.rename(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
        for old in folder.iterdir():
            if OURS.fullmatch(old.name) and old.name not in jobs:
                old.unlink(missing_ok=True)
    except OSError as err:
        log.error("job-mapping", folder=str(folder), error=err.strerror)
