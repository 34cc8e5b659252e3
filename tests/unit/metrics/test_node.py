# SPDX-License-Identifier: Apache-2.0
"""The series of a node: each share with its own figures."""

from slurm_coloc.core.gpu.telemetry.reading import Held, Profile, Reading
from slurm_coloc.core.metrics import catalog as m
from slurm_coloc.core.metrics.node import MOST, GpuNow, JobNow, NodeNow, Owner, of_node
from slurm_coloc.core.metrics.series import Histogram, Value

MIB = 2**20
ADA, BOB = Owner("1001", "ada", "ml"), Owner("1002", "bob", "ml")
FULL = Profile(smact=0.8, smocc=0.5, dram=0.4, pcie_tx_mib_s=10.0, pcie_rx_mib_s=20.0)


def reading(*held: Held, **more: object) -> Reading:
    given: dict[str, object] = {
        "uuid": "GPU-0", "name": "A100", "total_mib": 40960, "free_mib": 30000, "held": held,
        "profile": FULL, "power_w": 200.0, "index": 0, "minor": 3,
    }  # fmt: skip
    return Reading(**(given | more))  # type: ignore[arg-type]


SHARED = GpuNow(
    reading(
        *(Held(1, 0.0, 6000, 11, 0.75), Held(2, 0.0, 1000, 12, 0.25), Held(3, 0.0, 500, None, 0.0))
    ),
    0.8, 200.0,
    (JobNow(11, ADA, "mps", 8192, 0.6), JobNow(12, BOB, "mps", 4096, 0.2)),
)  # fmt: skip
ALONE = GpuNow(
    reading(Held(4, 0.0, 20000, 13, 0.9), uuid="GPU-1", index=1, minor=1), 0.8, 250.0,
    (JobNow(13, ADA, "alone", 40960, 0.8),),
)  # fmt: skip
EMPTY = GpuNow(reading(uuid="GPU-2", index=2, free_mib=40000), 0.0, 50.0, ())


def now(*gpus: GpuNow, **more: object) -> NodeNow:
    given: dict[str, object] = {
        "version": "1", "linked": True, "spooled": 0, "age_s": 0.5, "gpus": gpus, "over_mib": {},
        "idle_s": {}, "overruns": 0, "prolog": Histogram((1.0,)), "epilog": Histogram((1.0,)),
    }  # fmt: skip
    return NodeNow(**(given | more))  # type: ignore[arg-type]


def rows(node: NodeNow, name: m.Names = "coloc") -> dict[m.Metric, dict[tuple[str, ...], Value]]:
    return {each.metric: dict(each.rows) for each in of_node(node, (name,))}


def test_every_metric_of_the_catalog_is_told() -> None:
    for name, metrics in m.OF_AGENT.items():
        assert list(rows(now(SHARED), name)) == list(metrics)


def test_sharers_have_figures_of_their_own() -> None:
    found = rows(now(SHARED, over_mib={(12, "GPU-0"): 300}))
    mine, other = ("11", "0", "GPU-0", ""), ("12", "0", "GPU-0", "")
    assert found[m.JOB_MEMORY] == {mine: 6000.0 * MIB, other: 1000.0 * MIB}
    assert found[m.JOB_RESERVED] == {mine: 8192.0 * MIB, other: 4096.0 * MIB}
    assert found[m.JOB_ACTIVITY] == {mine: 0.6, other: 0.2}
    # Power as the time with kernels, of which the process of no job has none.
    assert found[m.JOB_POWER][mine] == 150.0
    assert found[m.JOB_POWER][other] == 50.0
    assert found[m.JOB_OVERRUN] == {other: 300.0 * MIB}
    info = {labels[:4]: value for labels, value in found[m.JOB].items()}
    assert info == {("11", "ada", "ml", "mps"): 1.0, ("12", "bob", "ml", "mps"): 1.0}
    assert found[m.GPU_FOREIGN] == {("0", "GPU-0", ""): 500.0 * MIB}
    assert found[m.GPU_RESERVED] == {("0", "GPU-0", ""): 12288.0 * MIB}
    assert found[m.GPU_JOBS] == {("0", "GPU-0", ""): 2.0}


def test_a_promise_that_is_not_known_is_not_told() -> None:
    """The Prolog could not ask colocd."""
    found = now(GpuNow(SHARED.reading, 0.8, 200.0, (JobNow(11, ADA, "mps", None, 0.6),)))
    assert rows(found)[m.JOB_RESERVED] == {}
    assert rows(found)[m.GPU_RESERVED] == {("0", "GPU-0", ""): 0.0}
    assert rows(found, "slurm_job")[m.SJE_TOTAL] == {}


def test_what_is_not_known_has_no_series() -> None:
    blind = reading(Held(1, 0.0, 6000, 11), profile=Profile(), power_w=None)
    found = rows(now(GpuNow(blind, None, None, (JobNow(11, ADA, "mps", 8192, None),)), age_s=None))
    for metric in (m.JOB_ACTIVITY, m.JOB_POWER, m.GPU_ACTIVITY, m.GPU_POWER, m.AGENT_AGE):
        assert found[metric] == {}
    assert found[m.JOB_MEMORY]


def test_a_job_that_holds_nothing_yet() -> None:
    waits = GpuNow(reading(), 0.0, 50.0, (JobNow(11, ADA, "mps", 8192, None),))
    found = rows(now(waits))
    assert found[m.JOB_MEMORY] == {("11", "0", "GPU-0", ""): 0.0}
    assert found[m.JOB_POWER] == {("11", "0", "GPU-0", ""): 50.0}


def test_names_of_slurm_job_exporter() -> None:
    found = rows(now(SHARED, ALONE), "slurm_job")
    mine = ("ada", "ml", "11", "0", "A100")
    alone = ("ada", "ml", "13", "1", "A100")
    assert found[m.SJE_USED][mine] == 6000.0 * MIB
    assert found[m.SJE_TOTAL][mine] == 8192.0 * MIB
    assert found[m.SJE_BUSY][mine] == 60.0
    assert found[m.SJE_POWER][mine] == 150_000.0
    # Of one process nobody can say them.
    assert list(found[m.SJE_OCCUPANCY]) == list(found[m.SJE_DRAM]) == [alone]
    assert found[m.SJE_PCIE] == {(*alone, "TX"): 10.0 * MIB, (*alone, "RX"): 20.0 * MIB}


def test_names_of_jobstats() -> None:
    found = rows(now(SHARED, EMPTY), "nvidia_gpu")
    mine = ("0", "3", "GPU-0", "A100", "", "11", "1001")
    none = ("2", "3", "GPU-2", "A100", "", "", "")
    assert found[m.NVG_JOB][mine] == 11.0
    assert found[m.NVG_UID][mine] == 1001.0
    assert found[m.NVG_DUTY][mine] == 75.0
    assert found[m.NVG_USED][mine] == 6000.0 * MIB
    assert found[m.NVG_TOTAL][mine] == 8192.0 * MIB
    assert found[m.NVG_JOB][none] == 0.0
    assert found[m.NVG_USED][none] == 960.0 * MIB
    assert none not in found[m.NVG_UID]
    # `and` joins by all labels: the figures of a job have those of its id.
    assert found[m.NVG_JOB].keys() == found[m.NVG_USED].keys() == found[m.NVG_TOTAL].keys()


def test_mig_devices_are_named_as_dcgm_exporter_does() -> None:
    device = reading(
        Held(1, 0.0, 3000, 21, 0.5), uuid="MIG-7", gpu_uuid="GPU-0", instance=7, mig=True,
        total_mib=4864, name="A100 MIG 1g.5gb",
    )  # fmt: skip
    node = now(GpuNow(device, 0.5, None, (JobNow(21, ADA, "mig", 4864, 0.5),)))
    assert list(rows(node)[m.JOB_MEMORY]) == [("21", "0:7", "GPU-0", "7")]
    assert next(iter(rows(node, "slurm_job")[m.SJE_USED]))[3] == "MIG-7"
    assert list(rows(node, "nvidia_gpu")[m.NVG_JOB]) == [
        ("0", "3", "MIG-7", "A100 MIG 1g.5gb", "7", "21", "1001")
    ]


def test_names_that_are_hidden_are_empty() -> None:
    node = now(GpuNow(SHARED.reading, 0.8, 200.0, (JobNow(11, Owner(), "mps", 8192, 0.6),)))
    assert next(iter(rows(node)[m.JOB]))[1:3] == ("", "")
    assert rows(node, "nvidia_gpu")[m.NVG_UID] == {}


def test_series_have_a_bound() -> None:
    many = tuple(JobNow(number, ADA, "mps", 1, None) for number in range(MOST + 5))
    found = rows(now(GpuNow(reading(), None, None, many)))
    assert len(found[m.JOB_MEMORY]) == MOST
    assert found[m.LEFT_OUT] == {(): 5.0}
