# SPDX-License-Identifier: Apache-2.0
"""The files that one submission and one out-of-memory pass through: ``python -m tests.way``.

Both ways are walked in colocd with a store in a temporary folder and a stand-in for slurmctld. Each
list has the files of slurm_coloc whose functions ran, in the order of their first use; what the
estimators and parsers (slurm_coloc/estimate) call is left out. tests/unit/test_way.py bounds the
lists and holds docs/developer/one-submission.md to them.
"""

import asyncio
import base64
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.config import EstimateConfig, parse_config
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.core.slurm.job import JobView, Terms
from slurm_coloc.daemon.ends import Ends
from slurm_coloc.daemon.parts import Parts
from slurm_coloc.daemon.requests import Requests
from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.estimate.variants import prepared
from slurm_coloc.flow.estimators.calibrations import defaults_of, load_stacks
from slurm_coloc.flow.submit.tickets import Key, hash_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = f"{ROOT}/slurm_coloc/"
ESTIMATORS = f"{PACKAGE}estimate/"
SHAPE = ClusterShape(
    "lab", (24, 11, 5), (NodeShape("n1", ("gpu",), (), "a100", 2, 160, cpus=64, memory_mib=10**6),),
    (PartitionShape("gpu", default=True, exclusive_user=True),),
)  # fmt: skip
USER = 1000
JOB = {"uid": USER, "partition": "gpu", "tres_per_node": "gres/gpu:1", "num_tasks": 1}
PACKED = base64.b64encode(zlib.compress(WARM_UP.encode())).decode()
EVIDENCE = {"oom": True, "kind": "torch", "pattern": "torch", "line": "CUDA out of memory."}


class Slurmctld:
    """A slurmctld with one job, which does what colocd orders."""

    def __init__(self) -> None:
        self.view = JobView(7, "RUNNING", uid=1000, partition="gpu", requeue=True, batch=True)
        self.recovered = False

    async def job(self, job_id: int) -> JobView:
        return self.view

    async def jobs_of(self, uids: object) -> list[JobView]:
        return [self.view]

    async def terms(self, handle: str) -> Terms:
        return Terms()

    async def waiting(self) -> list[JobView]:
        return []

    async def waiting_in_vain(self) -> list[JobView]:
        return []

    async def requeue_hold(self, handle: str) -> None:
        self.view = replace(self.view, state="PENDING", restarts=1, priority=0, completing=False)

    async def set_gres(self, handle: str, tres: str) -> None:
        self.view = replace(self.view, tres_per_node=tres)

    async def release(self, handle: str) -> None:
        self.view = replace(self.view, priority=10)

    async def update(self, handle: str, **fields: object) -> None:
        self.recovered = "StartTime" in fields
        self.view = replace(self.view, priority=int(str(fields.get("Priority", 10))))


def _files(walk: Coroutine[Any, Any, None], over: Callable[[], bool]) -> list[str]:
    """The files whose functions run in ``walk`` until it is ``over``, in the order of their first
    use."""
    found: dict[str, None] = {}

    def profile(frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        ours = event == "call" and name.startswith(PACKAGE) and name not in found
        if ours and frame.f_code.co_name != "<module>" and not (over() or _of_estimator(frame)):
            found[name] = None

    async def profiled() -> None:
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            await walk
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    asyncio.run(profiled())
    return [name.removeprefix(f"{ROOT}/") for name in found]


def _of_estimator(frame: FrameType | None) -> bool:
    """Whether a call is made within the estimator or a parser."""
    while frame and not frame.f_code.co_filename.startswith(ESTIMATORS):
        frame = frame.f_back
    return frame is not None


class Walk:
    """A colocd on a temporary folder with one job."""

    def __init__(self, folder: Path) -> None:
        self.slurmctld = Slurmctld()
        daemon = {"state_dir": str(folder), "off_file": str(folder / "off"), "slurm_user": "root"}
        config = parse_config({"version": 1, "mode": {"default": "on"}, "daemon": daemon}, "way")
        self.parts = Parts(config)
        self.parts.slurm = cast(SlurmClient, self.slurmctld)
        self.parts.cluster.shape = SHAPE
        self.parts.use(config)
        self.ends = Ends(self.parts)
        self.requests = Requests(self.parts, self.ends, lambda: None)
        self.answer: dict[str, Any] = {}
        self.ticket = self._ticket(config.estimate)

    def _ticket(self, config: EstimateConfig) -> dict[str, str]:
        """What sbatch got from the front before the submission."""
        key, texts = Key(hash_of(PACKED), Given(batch_size=32)), self.parts.texts
        made = prepared(PACKED, key.given, defaults_of(config, load_stacks(config)))
        return {"ticket": texts.give(USER, key, made), "text_sha256": key.text}

    async def submit(self) -> None:
        """The hook's message, to the answer."""
        message = {"op": "submit", **JOB, "coloc": {**self.ticket, "batch_size": 32}}
        self.answer = dict(await self.parts.decider.submit(message, SHAPE, self.parts.limits))

    async def run_out(self) -> None:
        """The Epilog's report of an out-of-memory, to the last order of the job's recovery."""
        self.slurmctld.view = replace(
            self.slurmctld.view, state="FAILED", completing=True, exit_code=1
        )
        report = {
            "op": "report", "v": 1, "job_id": 7, "restart": 0, "node": "n1", "exit_code": 1,
            "evidence": EVIDENCE,
        }  # fmt: skip
        await self.requests.handle(Peer(0), report)

    def start(self) -> None:
        """The job that follows from the answer runs, and colocd has seen it."""
        self.slurmctld.view = replace(
            self.slurmctld.view, nodes="n1", admin_comment=self.answer["admin_comment"],
            tres_per_node=self.answer["set.tres_per_node"], submit_s=time.time() - 60,
            start_s=time.time() - 50, priority=10,
        )  # fmt: skip
        self.parts.watcher.see(self.slurmctld.view)

    def close(self) -> None:
        """End what it has open."""
        self.parts.store.close()


def ways() -> dict[str, list[str]]:
    """The files of each way; raises AssertionError where one does not lead to its end."""
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(Path(folder))
        try:
            submission = _files(walk.submit(), lambda: bool(walk.answer))
            assert walk.answer["action"] == "collocate", walk.answer
            walk.start()
            oom = _files(walk.run_out(), lambda: walk.slurmctld.recovered)
            view = walk.slurmctld.view
            assert (view.state, view.restarts, view.held) == ("PENDING", 1, False), view
            assert "gpu:" in view.tres_per_node, view
        finally:
            walk.close()
    return {"submission": submission, "out-of-memory": oom}


if __name__ == "__main__":
    for title, files in ways().items():
        print(f"{title}: {len(files)} files", *files, sep="\n  ")
