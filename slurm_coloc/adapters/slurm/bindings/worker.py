# SPDX-License-Identifier: Apache-2.0
"""The child process that holds pyslurm: one JSON request a line in, one JSON answer a line out.

A C extension that blocks or crashes does so here, where it can be killed. Nothing of slurm_coloc is
imported, so that the child costs what pyslurm costs. Jobs are mappings under squeue's own names of
its columns, as the commands' parsers make them.

Read in pyslurm 25.11.2's source, and handled here:

- task 0 of an array has no array_task_id (0 counts as unset); array_id without array_tasks_waiting
  tells it;
- gres_per_node is a dict (``{'gres/shard': 12}``), and leaves a typed gres without a count out;
- tres_per_task is None for what Slurm writes there (it looks for "=" in ``gres/shard:12``), so
  nothing is told of it: the client asks the commands about a job of ours without gres_per_node;
- dependencies is a dict of ids and ``7(unfulfilled)``; a singleton that still waits is left out;
- an exit code of 128 and more is lessened by 128;
- iterating over Jobs gives keys; ``values()`` all clusters' items.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Values = dict[str, str]


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _gres(counts: Mapping[str, object] | None) -> str:
    return ",".join(f"{name}:{count}" for name, count in (counts or {}).items())


def _dependency(found: Mapping[str, Any] | None) -> str:
    """As Slurm writes it: ``afterok:7(unfulfilled),afterany:9(unfulfilled)``."""
    kinds = {kind: ids for kind, ids in (found or {}).items() if isinstance(ids, list)}
    items = [f"{kind}:{one}" for kind, ids in kinds.items() for one in ids]
    if found and found.get("singleton"):
        items.append("singleton")
    return ("?" if found and found.get("satisfy") == "any" else ",").join(items)


def job_values(job: Any) -> Values:
    """A pyslurm.Job under the names of squeue's columns; Waiting: an array's tasks that wait."""
    task, waiting = job.array_task_id, job.array_tasks_waiting
    if job.array_id is not None and task is None and not waiting:
        task = 0
    return {
        "JobID": _text(job.id),
        "State": _text(job.state),
        "RestartCnt": _text(job.requeue_count),
        "UserID": _text(job.user_id),
        "exit_code": f"{job.exit_code}:{job.exit_code_signal}",
        "PriorityLong": _text(job.priority),
        "tres-per-node": _gres(job.gres_per_node),
        "tres-per-task": "",
        "admin_comment": _text(job.admin_comment),
        "Partition": _text(job.partition),
        "NodeList": _text(job.allocated_nodes),
        "SubmitTime": _text(job.submit_time),
        "StartTime": _text(job.start_time),
        "EndTime": _text(job.end_time),
        "Reason": _text(job.state_reason),
        "ArrayJobID": _text(job.array_id),
        "ArrayTaskID": _text(task),
        "Waiting": _text(waiting),
        "Account": _text(job.account),
        "QOS": _text(job.qos),
        "Dependency": _dependency(job.dependencies),
        "BatchHost": _text(job.batch_host),
        "Requeue": str(int(bool(job.is_requeueable))),
        "BatchFlag": str(int(bool(job.is_batch_job))),
    }


def operations(pyslurm: Any) -> dict[str, Callable[..., Any]]:
    """What may be asked, by name."""

    def jobs(uids: list[int]) -> list[Values]:
        wanted = set(uids)
        return [job_values(j) for j in pyslurm.Jobs.load().values() if j.user_id in wanted]

    def modify(job_id: int, fields: dict[str, Any]) -> None:
        pyslurm.Job(job_id).modify(pyslurm.JobSubmitDescription(**fields))

    return {
        # That slurmctld answers; 24.11's has no version to tell.
        "version": lambda: str(getattr(pyslurm.slurmctld.Config.load(), "version", "")),
        "job": lambda job_id: job_values(pyslurm.Job.load(job_id)),
        "jobs": jobs,
        "requeue": lambda job_id, hold: pyslurm.Job(job_id).requeue(hold=hold),
        "hold": lambda job_id: pyslurm.Job(job_id).hold(),
        "release": lambda job_id: pyslurm.Job(job_id).release(),
        "modify": modify,
    }


def serve(pyslurm: Any, requests: Any, answer: Callable[[Any], None]) -> None:
    """Answer until the requests end. ``slurm``: Slurm said no; ``fault``: pyslurm cannot."""
    known = operations(pyslurm)
    for line in requests:
        try:
            request = json.loads(line)
            answer({"answer": known[request["op"]](**request["with"])})
        except pyslurm.RPCError as err:
            answer({"slurm": str(err)})
        except Exception as err:
            answer({"fault": f"{type(err).__name__}: {err}"})


def main() -> None:
    """Say which pyslurm this is, or why there is none, then serve standard input."""
    # Slurm's library may print: what it prints must not stand among the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(what: Any) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    try:
        import pyslurm
    except (ImportError, OSError) as err:
        answer({"fault": f"{type(err).__name__}: {err}"})
        return
    answer({"version": pyslurm.__version__})
    serve(pyslurm, sys.stdin, answer)


if __name__ == "__main__":
    main()
