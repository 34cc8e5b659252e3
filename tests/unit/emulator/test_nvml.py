# SPDX-License-Identifier: Apache-2.0
"""The stand-in libnvidia-ml, asked through the real pynvml."""

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Node

MIB = 1024 * 1024
pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")

Nvml = Callable[[Node, str], Any]


def test_devices_have_their_figures(node: Node, nvml: Nvml) -> None:
    seen = nvml(
        node,
        """
out = []
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    out.append([n.nvmlDeviceGetName(h), n.nvmlDeviceGetUUID(h), n.nvmlDeviceGetMinorNumber(h),
                n.nvmlDeviceGetPciInfo(h).busId, n.nvmlDeviceGetMemoryInfo(h).total,
                n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2).reserved,
                n.nvmlDeviceGetMemoryInfo(h).free, n.nvmlDeviceGetMigMode(h),
                n.nvmlDeviceGetComputeMode(h)])
print(json.dumps([n.nvmlSystemGetDriverVersion(), out]))
""",
    )
    shown = node.show()["gpus"]
    driver, gpus = seen
    assert driver.count(".") == 2
    assert [g[1] for g in gpus] == [g["uuid"] for g in shown]
    assert [g[3] for g in gpus] == [g["bus_id"] for g in shown]
    for index, gpu in enumerate(gpus):
        assert gpu[0] == "NVIDIA A100-SXM4-40GB"
        assert gpu[2] == index
        assert gpu[4] == 40960 * MIB
        assert gpu[6] == gpu[4] - gpu[5] == 40536 * MIB
        assert gpu[7:] == [[0, 0], 0]


def test_handles_by_uuid_and_bus_id_with_foreign_minors(
    make_node: Callable[..., Node], nvml: Nvml
) -> None:
    node = make_node("2xa100-40gb", "--minors", "5,2")
    uuid, bus = node.show()["gpus"][1]["uuid"], node.show()["gpus"][1]["bus_id"]
    code = f"""
h = n.nvmlDeviceGetHandleByUUID({uuid!r})
b = n.nvmlDeviceGetHandleByPciBusId({bus.lower()!r})
s = n.nvmlDeviceGetHandleByPciBusId({bus[4:]!r})
try:
    n.nvmlDeviceGetHandleByUUID("GPU-none")
except n.NVMLError as e:
    wrong = e.value
print(json.dumps([[n.nvmlDeviceGetIndex(x) for x in (h, b, s)], n.nvmlDeviceGetMinorNumber(h),
                  wrong]))
"""
    assert nvml(node, code) == [[1, 1, 1], 2, 6]


def test_processes_memory_and_power_of_a_training(node: Node, nvml: Nvml) -> None:
    training = node.train("--memory-mib", 5000, "--smact", 0.5, "--work-s", 60)
    node.working(1)
    pid, used, gpu, power, busy, energy = nvml(
        node,
        """
h = n.nvmlDeviceGetHandleByIndex(0)
p = n.nvmlDeviceGetComputeRunningProcesses(h)
u = n.nvmlDeviceGetUtilizationRates(h)
a = n.nvmlDeviceGetTotalEnergyConsumption(h)
print(json.dumps([[(x.pid, x.usedGpuMemory, x.gpuInstanceId) for x in p],
                  n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2).used, u.gpu,
                  n.nvmlDeviceGetPowerUsage(h),
                  len(n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(1))),
                  a]))
""",
    )
    assert pid == [[training.pid, 5000 * MIB, 0xFFFFFFFF]]
    assert used == 5000 * MIB
    assert gpu == 60  # graphics activity is 1.2 times SM activity in the model
    assert power == 160_000  # 30 + 260 * 0.5 W
    assert busy == 0
    assert energy >= 0


def test_faults_are_nvml_errors(node: Node, nvml: Nvml) -> None:
    code = """
out = []
for i in range(2):
    try:
        out.append(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(i)).total > 0)
    except n.NVMLError as e:
        out.append(type(e).__name__)
print(json.dumps(out))
"""
    node.fault(0, "lost")
    node.fault(1, "nvml-busy")
    assert nvml(node, code) == ["NVMLError_GpuIsLost", "NVMLError_Timeout"]
    node.fault("all", "clear")
    assert nvml(node, code) == [True, True]


def test_what_is_not_emulated_says_so(node: Node, nvml: Nvml) -> None:
    code = """
h = n.nvmlDeviceGetHandleByIndex(0)
out = []
for call in (n.nvmlDeviceGetFanSpeed, n.nvmlDeviceGetSerial, n.nvmlDeviceGetDetailedEccErrors):
    try:
        call(h) if call is not n.nvmlDeviceGetDetailedEccErrors else call(h, 0, 0)
    except n.NVMLError as e:
        out.append(e.value)
n.nvmlShutdown()
try:
    n.nvmlDeviceGetCount()
except n.NVMLError as e:
    out.append(e.value)
print(json.dumps(out))
"""
    assert nvml(node, code) == [3, 3, 13, 1]


def test_mig_devices(make_node: Callable[..., Node], nvml: Nvml) -> None:
    node = make_node("mig-mixed")
    mig = node.show()["gpus"][1]["mig"]
    node.train("--memory-mib", 3000, "--smact", 0.5, "--work-s", 60,
               CUDA_VISIBLE_DEVICES=mig[2]["uuid"])  # fmt: skip
    node.working(1, gpu=1)
    code = """
h = n.nvmlDeviceGetHandleByIndex(1)
out = [n.nvmlDeviceGetMigMode(h)]
for i in range(n.nvmlDeviceGetMaxMigDeviceCount(h)):
    try:
        m = n.nvmlDeviceGetMigDeviceHandleByIndex(h, i)
    except n.NVMLError_NotFound:
        continue
    out.append([n.nvmlDeviceGetUUID(m), n.nvmlDeviceGetGpuInstanceId(m),
                n.nvmlDeviceGetComputeInstanceId(m), n.nvmlDeviceGetMemoryInfo(m).used >> 20,
                n.nvmlDeviceGetAttributes(m).multiprocessorCount,
                n.nvmlDeviceGetIndex(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(m))])
p = n.nvmlDeviceGetComputeRunningProcesses(h)
out.append([p[0].gpuInstanceId, p[0].computeInstanceId])
try:
    n.nvmlDeviceGetUtilizationRates(h)
except n.NVMLError as e:
    out.append(e.value)
print(json.dumps(out))
"""
    out = nvml(node, code)
    assert out[0] == [1, 1]
    assert out[1:6] == [
        [m["uuid"], m["gi"], m["ci"], 3000 if i == 2 else 0, m["sms"], 1] for i, m in enumerate(mig)
    ]
    assert out[6:] == [[mig[2]["gi"], 0], 3]


def test_a_library_without_a_ledger_has_no_driver(emulator: Any) -> None:
    import os
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "COLOC_EMU_LEDGER"}
        | {"LD_LIBRARY_PATH": str(emulator / "lib")},
    )
    assert "Driver Not Loaded" in done.stderr


def test_accounting_remembers_what_has_ended(node: Node, nvml: Nvml) -> None:
    first = node.train("--memory-mib", 3000, "--smact", 0.1, "--work-s", 0.2)
    assert first.wait(20) == 0
    second = node.train("--memory-mib", 2000, "--smact", 0.1, "--work-s", 60)
    node.until(lambda: bool(node.processes()) and node.processes()[0]["memory_mib"] == 2000)
    mode, seen = nvml(
        node,
        """
h = n.nvmlDeviceGetHandleByIndex(0)
stats = {p: n.nvmlDeviceGetAccountingStats(h, p) for p in n.nvmlDeviceGetAccountingPids(h)}
print(json.dumps([n.nvmlDeviceGetAccountingMode(h), [[p, s.maxMemoryUsage, s.isRunning,
                  s.time >= 100, s.startTime] for p, s in stats.items()]]))
""",
    )
    assert mode == 1
    assert [row[:4] for row in seen] == [
        [first.pid, 3000 * MIB, 0, True],
        [second.pid, 2000 * MIB, 1, False],
    ]
    assert 0 < seen[1][4] - seen[0][4] < 600e6, "microseconds since the epoch"
