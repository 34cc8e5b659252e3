# SPDX-License-Identifier: Apache-2.0
"""CUDA, as far as slurm-coloc touches it: one tiny job in a process of its own (job.py).

A context in this process would stay until its end, so the job runs beside it.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm_coloc.errors import GpuError

JOB = Path(__file__).with_name("job.py")
#: Loading torch from a busy network disk takes a minute; nothing else takes seconds.
LIMIT_S = 180.0


class Job:
    """The job on one GPU. Use as a context manager: it is ended at the end."""

    def __init__(self, uuid: str, python: str | None = None, limit_s: float = LIMIT_S) -> None:
        """``uuid``: of the GPU or MIG device. ``python``: the interpreter that has torch. Raises
        GpuError where it cannot be started."""
        self._end = time.monotonic() + limit_s
        environ = {k: v for k, v in os.environ.items() if "ALLOC_CONF" not in k}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the job
        try:
            self._process = subprocess.Popen(
                [python or sys.executable, "-u", str(JOB)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,  # select must see what was not read yet
                env={**environ, "CUDA_VISIBLE_DEVICES": uuid, "CUDA_MODULE_LOADING": "LAZY"},
            )
        except OSError as err:
            raise GpuError(f"{python}: cannot be started: {err}", "cuda-job") from err
        self.pid = self._process.pid

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def stages(self) -> Iterator[dict[str, Any]]:
        """What each stage tells; the job stands still until the next is asked for. Raises GpuError
        with the job's own words."""
        assert self._process.stdin is not None
        while (line := self._line()) is not None:
            try:
                stage: dict[str, Any] = json.loads(line)
            except ValueError:
                continue  # what a library prints
            if "error" in stage:
                raise GpuError(str(stage["error"]), "cuda-job")
            if "stage" in stage:
                yield stage
                try:
                    self._process.stdin.write(b"\n")
                    self._process.stdin.flush()
                except BrokenPipeError:
                    break
        code = self._process.wait(max(0.1, self._end - time.monotonic()))
        if code != 0:
            self._errors.seek(0)
            words = self._errors.read().decode("utf-8", "replace").strip().splitlines()
            last = words[-1] if words else f"exit code {code}"
            raise GpuError(f"the calibration's job failed: {last}", "cuda-job")

    def _line(self) -> bytes | None:
        """The next line, None at the end."""
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], max(0.0, self._end - time.monotonic()))
        if not ready:
            raise GpuError("the calibration's job takes too long", "cuda-job")
        line = out.readline()
        return line or None
