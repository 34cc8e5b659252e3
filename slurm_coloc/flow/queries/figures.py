# SPDX-License-Identifier: Apache-2.0
"""The nodes' GPUs now, as colocd's main process has taken and checked them: `coloc gpus`.

The main process sends what each heartbeat said; here it is kept as it came, until it is too old.
"""

import time
from typing import Any

from slurm_coloc.flow.queries import time_left

Answer = dict[str, Any]


class Figures:
    """The last figures of each node."""

    def __init__(self) -> None:
        self._nodes: dict[str, Answer] = {}

    def take(self, message: Answer) -> None:
        """Keep what the main process sends of one node (flow/cluster/telemetry.Live.figures)."""
        self._nodes[message["node"]] = message

    def _fresh(self) -> list[Answer]:
        now = time.time()
        names = sorted(name for name, one in self._nodes.items() if now < one["until_s"])
        return [self._nodes[name] for name in names]

    def answer(self, tasks: dict[int, Answer] | None) -> Answer:
        """All GPUs of all nodes. ``tasks``: by job id what names a task of an array
        (answers.running_tasks); None: without job ids (PrivateData)."""
        found = []
        fresh = self._fresh()
        for node in fresh:
            for gpu in node["gpus"]:
                row = {**gpu, "node": node["node"], "at_s": node["at_s"]}
                row["jobs_here"] = len(gpu["jobs"])
                row["jobs"] = None
                if tasks is not None:
                    row["jobs"] = [one | tasks.get(one["job_id"], {}) for one in gpu["jobs"]]
                found.append(row)
        silent = {node["node"]: node["gpus_why"] for node in fresh if node["gpus_why"]}
        return {"gpus": found, "without": silent, **({"private": True} if tasks is None else {})}

    def mark(self, answer: Answer, uid: int | None) -> Answer:
        """``answer`` of jobs to ``uid`` (None: of all), with ``idle_since_s`` where a run uses no
        GPU now, ``overrun`` (MiB held and promised) where it holds more than it was promised now,
        and ``time_left`` where its log says that."""
        progress = {
            (one["job_id"], one["restart"]): one
            for node in self._fresh()
            for one in node["progress"]
        }
        idle = {
            (one["job_id"], one["restart"]): one["since_s"]
            for node in self._fresh()
            for one in node["idle"]
        }
        over = {
            (one["job_id"], one["restart"]): {
                name: one[name] for name in ("held_mib", "promised_mib")
            }
            for node in self._fresh()
            for one in node["overruns"]
            if one["until_s"] is None
        }
        for row in answer["jobs"]:
            run = (row["job_id"], row["restart"])
            row["idle_since_s"] = idle.get(run)
            row["overrun"] = over.get(run)
            if time_left.may_know(row, uid):
                time_left.by_log(row, progress.get(run))
        self.number(answer["jobs"])
        return answer

    def number(self, runs: list[Answer]) -> None:
        """Add ``gpus``: NVML's numbers of each run's GPUs, as nvidia-smi shows them; null where its
        node does not tell."""
        numbers = {gpu["uuid"]: gpu.get("index") for node in self._fresh() for gpu in node["gpus"]}
        for row in runs:
            found = [numbers.get(uuid) for uuid in row.get("gpu_uuids") or ()]
            row["gpus"] = found if found and None not in found else None
