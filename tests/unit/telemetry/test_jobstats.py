# SPDX-License-Identifier: Apache-2.0
"""DCGM's job statistics: what dcgmi prints of them, and which runs have them kept."""

import asyncio

from slurm_coloc.adapters.dcgm.jobs import Plain, read_groups, read_stats
from slurm_coloc.errors import GpuError
from slurm_coloc.flow.measure.dcgm_stats import AGAIN_S, FIRST_S, READ_S, JobStats
from slurm_coloc.flow.node.jobs_here import Job

TOLD = """Successfully retrieved statistics for job: coloc-12.0.
+------------------------------------------------------------------------------+
| GPU ID: 3                                                                    |
+====================================+=========================================+
|-----  Execution Stats  ------------+-----------------------------------------|
| Start Time                         | Mon Jul  6 10:00:00 2026                |
| Total Execution Time (sec)         | 120.5                                   |
| No. of Processes                   | 1                                       |
+-----  Performance Stats  ----------+-----------------------------------------+
| Energy Consumed (Joules)           | 30000                                   |
| Power Usage (Watts)                | Avg: 248.9, Max: 301.5, Min: 52.1       |
| Max GPU Memory Used (bytes)        | 3145728000                              |
| SM Utilization (%)                 | Avg: 72, Max: 99, Min: 0                |
| Memory Utilization (%)             | Avg: N/A, Max: N/A, Min: N/A            |
| PCIe Rx Bandwidth (megabytes)      | Avg: N/A, Max: N/A, Min: N/A            |
+-----  Event Stats  ----------------+-----------------------------------------+
| Single Bit ECC Errors              | Not Specified                           |
| Double Bit ECC Errors              | 2                                       |
| Critical XID Errors                | 9223372036854775794                     |
+-----  Slowdown Stats  -------------+-----------------------------------------+
| Due to - Power (%)                 | 250                                     |
|        - Thermal (%)               | 1.5                                     |
|        - Reliability (%)           | Not Supported                           |
+--  Compute Process Utilization  ---+-----------------------------------------+
| PID                                | 4711                                    |
|     Avg SM Utilization (%)         | 70                                      |
+------------------------------------+-----------------------------------------+

| GPU ID: 4                                                                    |
| Energy Consumed (Joules)           | Not Specified                           |
"""
GROUPS = """| -> 2              |                                                          |
|    -> Group ID    | 2                                                        |
|    -> Group Name  | coloc-12.0                                               |
|    -> Entities    | GPU 0                                                    |
|    -> Group ID    | 3                                                        |
|    -> Group Name  | somebody's                                               |
"""


def test_what_dcgmi_prints() -> None:
    assert read_stats(TOLD) == {
        3: {
            "lasted_s": 120.5,
            "energy_j": 30000.0,
            "power_w": 248.9,
            "max_mib": 3000,
            "utilization": 0.72,
            "ecc_double": 2,
            "slow_power": 1.0,  # never more than all of the time
            "slow_thermal": 0.015,
        },
        4: {},
    }
    assert read_stats("Error: Unable to retrieve job statistics. Return: No data.") == {}
    assert read_groups(GROUPS) == {"coloc-12.0": 2}


class Engine:
    """A host engine."""

    def __init__(self, **groups: int) -> None:
        self.there = {
            name.replace("_", ".").replace("coloc", "coloc-"): groups[name] for name in groups
        }
        self.began: list[tuple[str, list[int]]] = []
        self.away = False

    async def groups(self) -> dict[str, int]:
        if self.away:
            raise GpuError("dcgmi group: Host engine timeout", "dcgm")
        return dict(self.there)

    async def begin(self, name: str, gpus: list[int]) -> int:
        if self.away:
            raise GpuError("dcgmi group: Host engine timeout", "dcgm")
        self.there[name] = 10 + len(self.began)
        self.began.append((name, gpus))
        return self.there[name]

    async def read(self, name: str) -> dict[int, Plain]:
        if name not in self.there:
            raise GpuError("dcgmi stats: No data is available", "dcgm")
        return {0: {"energy_j": 5.0}, 7: {"energy_j": 6.0}}

    async def remove(self, name: str, group: int) -> None:
        if self.there.get(name) == group:
            del self.there[name]


def job(job_id: int, *uuids: str, method: str = "alone") -> Job:
    return Job(job_id, 0, 0, 1.0, uuids, method)


def stats(engine: Engine, jobs: list[Job], numbers: dict[str, int] | None = None) -> JobStats:
    known = {"GPU-a": 0, "GPU-b": 1} if numbers is None else numbers
    return JobStats(engine, lambda: known, lambda: jobs)  # type: ignore[arg-type]


def at(one: JobStats, now_s: float) -> None:
    asyncio.run(one.round(now_s))


def test_a_run_from_its_start_to_its_end() -> None:
    engine, jobs = Engine(), [job(1, "GPU-a"), job(2, "GPU-b", method="mps")]
    one = stats(engine, jobs)
    at(one, 100.0)
    assert engine.began == [("coloc-1.0", [0])], "of a shared GPU nothing of it is the run's own"
    assert one.why == {"coloc-1.0": "DCGM has no sample yet"} and one.figures == {}
    at(one, 100.0 + FIRST_S)
    assert one.figures["coloc-1.0"]["gpus"] == [{"uuid": "GPU-a", "energy_j": 5.0}]
    assert one.why == {}
    before = one.figures["coloc-1.0"]
    at(one, 100.0 + FIRST_S + READ_S - 1)
    assert one.figures["coloc-1.0"] is before
    jobs.clear()
    at(one, 200.0)
    assert engine.there == {} and one.figures == {}


def test_mig_devices_and_unknown_gpus_have_none() -> None:
    engine = Engine()
    one = stats(engine, [job(1, "MIG-a"), job(2, "GPU-z"), job(3)])
    at(one, 0.0)
    assert engine.began == [] and one.why == {"coloc-2.0": "DCGM does not know GPU-z"}


def test_what_an_agent_before_has_left() -> None:
    engine = Engine(coloc1_0=3, coloc9_0=4)
    one = stats(engine, [job(1, "GPU-a")])
    at(one, 0.0)
    assert engine.began == [] and engine.there == {"coloc-1.0": 3}, "used again, the other removed"
    at(one, 1.0)
    assert one.figures["coloc-1.0"]["gpus"]


def test_a_host_engine_that_was_started_again() -> None:
    engine = Engine()
    one = stats(engine, [job(1, "GPU-a")])
    at(one, 0.0)
    at(one, FIRST_S)
    engine.there.clear()
    at(one, FIRST_S + READ_S)
    assert "No data" in one.why["coloc-1.0"], "and what was read before stays"
    assert one.figures["coloc-1.0"]["gpus"]
    at(one, FIRST_S + READ_S + AGAIN_S)
    assert [name for name, _ in engine.began] == ["coloc-1.0"] * 2


def test_no_dcgm_costs_nothing() -> None:
    engine = Engine()
    engine.away = True
    at(stats(engine, [job(1, "GPU-a")], {}), 0.0)
    one = stats(Engine(), [job(1, "GPU-a")])
    at(one, 0.0)
