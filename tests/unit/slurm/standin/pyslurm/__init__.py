# SPDX-License-Identifier: Apache-2.0
"""A stand-in for pyslurm 25.11.2, built after the names and values of its source.

It has no more than what the worker uses, and takes no name that the real one has not. How it
behaves stands in the file $STANDIN: ``hang`` and ``crash`` do what only a C extension can. Orders
are written down in $STANDIN.log.
"""

import ctypes
import json
import os
import signal
from types import SimpleNamespace
from typing import Any

_MODE = os.environ["STANDIN"]


def _mode() -> str:
    with open(_MODE) as file:  # noqa: PTH123
        return file.read().strip()


if _mode() == "no-library":
    raise ImportError("libslurmfull-25.11.4.so: cannot open shared object file")
if _mode() == "crash-at-load":
    os.kill(os.getpid(), signal.SIGSEGV)

__version__ = "25.11.2"


class PyslurmError(Exception):
    pass


class RPCError(PyslurmError):
    def __init__(self, errno: int = -1, msg: str | None = None) -> None:
        self.errno, self.msg = errno, msg
        super().__init__(msg)


def _rpc(name: str, *told: Any) -> None:
    mode = _mode()
    if mode == "hang":
        ctypes.PyDLL(None).sleep(600)  # with the interpreter's lock, as in a C extension
    if mode in ("crash", f"crash-{name}"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if mode == "away":
        raise RPCError(1, "Unable to contact slurm controller (connect failure)")
    if mode == "refuse":
        raise RPCError(2, "Requested operation is presently disabled")
    if mode == "prints":
        os.write(1, b"slurm: error: a library that prints\n")
    if mode == f"other-{name}":
        raise AttributeError(f"no {name} in this release")
    if told:
        with open(f"{_MODE}.log", "a") as file:  # noqa: PTH123
            file.write(json.dumps([name, *told]) + "\n")


class JobSubmitDescription:
    __slots__ = (
        "admin_comment",
        "begin_time",
        "dependencies",
        "gres_per_node",
        "nice",
        "priority",
        "qos",
    )  # fmt: skip

    def __init__(self, **kwargs: Any) -> None:
        for k, v in kwargs.items():
            setattr(self, k, v)


def _job(job_id: int, **other: Any) -> SimpleNamespace:
    found = {
        "id": job_id, "state": "FAILED", "state_reason": "NonZeroExitCode", "requeue_count": 0,
        "user_id": 1000, "exit_code": 1, "exit_code_signal": 0, "priority": 1000,
        "gres_per_node": {"gres/shard": 12}, "admin_comment": "coloc:1:0123456789ab:collocate:x:1",
        "partition": "main", "allocated_nodes": "n1", "submit_time": 100, "start_time": 101,
        "end_time": 102, "array_id": None, "array_task_id": None, "array_tasks_waiting": None,
        "account": None, "qos": "normal", "dependencies": None, "batch_host": "n1",
        "is_requeueable": True, "is_batch_job": True,
    }  # fmt: skip
    return SimpleNamespace(**(found | other))


_WAITS: dict[str, Any] = {
    "state": "PENDING", "state_reason": "Dependency", "allocated_nodes": None, "batch_host": None,
    "start_time": None, "end_time": None, "exit_code": 0,
}  # fmt: skip
_DEPENDS: dict[str, Any] = {
    "after": [], "afterany": [9], "afterburstbuffer": [], "aftercorr": [], "afternotok": [],
    "afterok": ["7(unfulfilled)", "8(unfulfilled)"], "singleton": False, "satisfy": "all",
}  # fmt: skip
_KNOWN = {
    7: _job(7),
    20: _job(20, **_WAITS, array_id=20, array_tasks_waiting="2-5:3,7", dependencies=_DEPENDS),
    21: _job(21, array_id=20, state="RUNNING", state_reason="None"),  # task 0
    22: _job(22, array_id=20, array_task_id=1, state="COMPLETING"),
    40: _job(40, user_id=1001, gres_per_node={}, state="RUNNING"),  # its gres is per task
    50: _job(50, user_id=1002, exit_code=9),  # SIGKILL: 137, lessened by 128
    30: _job(30, user_id=0, state="RUNNING", state_reason="None"),
}


class Job:
    def __init__(self, job_id: int) -> None:
        self.id = job_id

    @staticmethod
    def load(job_id: int) -> SimpleNamespace:
        _rpc("load")
        if job_id not in _KNOWN:
            raise RPCError(2017, "Invalid job id specified")
        return _KNOWN[job_id]

    def modify(self, changes: JobSubmitDescription) -> None:
        told = {k: getattr(changes, k) for k in changes.__slots__ if hasattr(changes, k)}
        _rpc("modify", self.id, told)

    def hold(self, mode: str | None = None) -> None:
        _rpc("hold", self.id)

    def release(self) -> None:
        _rpc("release", self.id)

    def requeue(self, hold: bool = False) -> None:
        _rpc("requeue", self.id, hold)


class Jobs(dict[Any, Any]):
    @classmethod
    def load(cls) -> "Jobs":
        _rpc("Jobs")
        return cls(_KNOWN)


class _Config:
    @staticmethod
    def load() -> SimpleNamespace:
        _rpc("config")
        return SimpleNamespace(version="26.05.5" if _mode() == "newer" else "25.11.4")


slurmctld = SimpleNamespace(Config=_Config)
