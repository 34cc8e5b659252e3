# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi, dcgmi and coloc-emu over the ledger."""

import json
import re
import stat
from collections.abc import Callable

import pytest

from slurm_coloc.core.gpu.mig import CARDS, place

from .conftest import Node


def test_machines_and_init(make_node: Callable[..., Node]) -> None:
    node = make_node()
    listed = json.loads(node.tool("coloc-emu", "machines", "--json").stdout)
    sizes = {m["name"]: len(m["gpus"]) for m in listed["machines"]}
    assert sizes == {
        "1xa100-40gb": 1, "2xa100-40gb": 2, "dgx-station-a100": 4, "2xh100-80gb": 2,
        "8xh100-80gb": 8, "1xh200": 1, "mig-mixed": 2,
    }  # fmt: skip
    assert stat.S_IMODE(node.ledger.stat().st_mode) == 0o666
    again = node.tool("coloc-emu", "init", "--machine", "1xh200", node.ledger, check=False)
    assert again.returncode == 9
    assert node.tool("coloc-emu", "init", "--machine", "none", "x", check=False).returncode == 2
    for name, count in sizes.items():
        other = make_node(name)
        gpus = other.show()["gpus"]
        assert len({g["uuid"] for g in gpus}) == count
        # a card of 40 GiB must hold 39 shards of 1 GiB beside a margin of half a GiB
        assert (
            gpus[0]["usable_mib"] - 512
            >= {"a100": 39, "h100": 78, "h200": 139}[gpus[0]["type"]] * 1024
        )


def test_nvidia_smi_lists_and_queries(node: Node) -> None:
    training = node.train("--memory-mib", 5000, "--smact", 0.5, "--work-s", 100)
    node.working(1)
    gpus = node.show()["gpus"]
    assert node.tool("nvidia-smi", "-L").stdout == "".join(
        f"GPU {i}: NVIDIA A100-SXM4-40GB (UUID: {g['uuid']})\n" for i, g in enumerate(gpus)
    )
    query = "--query-gpu=index,uuid,memory.total,memory.used,memory.free,utilization.gpu"
    assert node.tool("nvidia-smi", query, "--format=csv,noheader,nounits").stdout == (
        f"0, {gpus[0]['uuid']}, 40960, 5000, 35536, 60\n1, {gpus[1]['uuid']}, 40960, 0, 40536, 0\n"
    )
    assert node.tool("nvidia-smi", query, "--format=csv", "-i", gpus[1]["uuid"]).stdout == (
        "index, uuid, memory.total [MiB], memory.used [MiB], memory.free [MiB],"
        " utilization.gpu [%]\n"
        f"1, {gpus[1]['uuid']}, 40960 MiB, 0 MiB, 40536 MiB, 0 %\n"
    )
    apps = ("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
    assert node.tool("nvidia-smi", *apps).stdout == f"{gpus[0]['uuid']}, {training.pid}, 5000\n"
    assert f"{training.pid}" in node.tool("nvidia-smi").stdout
    assert node.tool("nvidia-smi", "--query-gpu=shoe", check=False).returncode == 2


def test_nvidia_smi_of_a_lost_gpu(node: Node) -> None:
    node.fault(0, "lost")
    lost = node.tool("nvidia-smi", "-L", check=False)
    assert lost.returncode == 15
    assert "GPU is lost" in lost.stdout
    assert "GPU 1:" in lost.stdout


def test_nvidia_smi_lists_mig_devices(make_node: Callable[..., Node]) -> None:
    node = make_node("mig-mixed")
    mig = node.show()["gpus"][1]["mig"]
    listed = [line for line in node.tool("nvidia-smi", "-L").stdout.splitlines() if "MIG-" in line]
    assert [line.split("UUID: ")[1].rstrip(")") for line in listed] == [m["uuid"] for m in mig]


def test_nvidia_smi_lists_gpu_instances(make_node: Callable[..., Node]) -> None:
    """Each by its profile's id and its place, as core/gpu/mig has them for the card."""
    told = make_node("mig-mixed").tool("nvidia-smi", "mig", "-lgi").stdout
    rows = re.findall(r"\|\s+1\s+MIG (\S+)\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s+\|", told)
    card = CARDS["a100-40gb"]
    assert [row[2] for row in rows] == ["1", "3", "9", "10"]
    found = place(card, [row[0] for row in rows])
    assert found is not None
    assert sorted(found) == sorted((name, int(start)) for name, _, _, start, _ in rows)
    for name, number, _, _, size in rows:
        profile = card.profile(name)
        assert profile is not None and (profile.id, profile.memory) == (int(number), int(size))
    plain = make_node().tool("nvidia-smi", "mig", "-lgi", check=False)
    assert plain.returncode == 6 and "No MIG-enabled devices found." in plain.stdout


def dmon(node: Node, *args: object) -> list[list[str]]:
    out = node.tool("dcgmi", "dmon", "-c", 1, *args).stdout.splitlines()
    assert out[0].startswith("#Entity")
    return [line.split()[2:] for line in out[2:]]


def test_dcgmi_dmon_shows_sm_activity_not_utilization(node: Node) -> None:
    for _ in range(2):
        node.train("--memory-mib", 5000, "--smact", 0.4, "--work-s", 100)
    node.working(2)
    rows = dmon(node, "-e", "203,252,1002")
    speed = 1 / (1 + 1.1 * 0.4**3)
    assert rows[0][:2] == [f"{120 * 0.8 * speed:.0f}", "10000"]
    assert float(rows[0][2]) == pytest.approx(0.8 * speed, abs=1e-3)
    assert rows[1] == ["0", "0", "0.000"]
    assert node.tool("dcgmi", "dmon", "-e", "9999", check=False).returncode != 0


def test_stale_metrics_stand_still(node: Node) -> None:
    node.fault(0, "stale")
    node.train("--memory-mib", 5000, "--smact", 0.5, "--work-s", 100)
    node.working(1)
    assert dmon(node, "-e", "1002,252")[0] == ["0.000", "5000"]
    node.fault(0, "clear")
    assert dmon(node, "-e", "1002")[0] == ["0.500"]


def test_dcgmi_is_blind_for_a_gpu_cut_by_mig(make_node: Callable[..., Node]) -> None:
    assert [row[0] for row in dmon(make_node("mig-mixed"), "-e", "1002")] == ["0.000", "N/A"]


def test_dcgmi_job_statistics(node: Node) -> None:
    node.tool("dcgmi", "stats", "-e")
    node.tool("dcgmi", "stats", "-s", "42.0")
    assert node.tool("dcgmi", "stats", "-s", "42.0", check=False).returncode != 0
    training = node.train("--memory-mib", 3000, "--smact", 0.5, "--work-s", 0.3)
    assert training.wait(timeout=20) == 0
    node.tool("dcgmi", "stats", "-x", "42.0")
    told = node.tool("dcgmi", "stats", "-j", "42.0").stdout
    assert "Successfully retrieved statistics for job: 42.0." in told
    assert str(3000 * 1024 * 1024) in told
    node.tool("dcgmi", "stats", "-r", "42.0")
    assert node.tool("dcgmi", "stats", "-j", "42.0", check=False).returncode != 0
    node.tool("dcgmi", "discovery", "-l")


def test_dcgmi_groups_and_statistics_of_one_gpu(node: Node) -> None:
    made = node.tool("dcgmi", "group", "-c", "mine", "-a", "1").stdout
    assert made.startswith('Successfully created group "mine" with a group ID of 2\n')
    assert node.tool("dcgmi", "group", "-c", "bad", "-a", "9", check=False).returncode != 0
    node.tool("dcgmi", "stats", "-g", "2", "-e", "-u", "1000", "-m", "60")
    assert node.tool("dcgmi", "stats", "-g", "9", "-s", "7.0", check=False).returncode != 0
    node.tool("dcgmi", "stats", "-g", "2", "-s", "7.0")
    told = node.tool("dcgmi", "stats", "-v", "-j", "7.0").stdout
    assert "GPU ID: 1" in told and "GPU ID: 0" not in told
    assert "GPU 1" in node.tool("dcgmi", "group", "-l").stdout
    node.tool("dcgmi", "group", "-d", "2")
    assert node.tool("dcgmi", "group", "-d", "2", check=False).returncode != 0


def test_a_mig_instance_bounds_memory_and_speed(make_node: Callable[..., Node]) -> None:
    node = make_node("mig-mixed")
    mig = node.show()["gpus"][1]["mig"]
    small = node.train("--memory-mib", 9000, "--smact", 0.5, "--work-s", 1,
                       CUDA_VISIBLE_DEVICES=mig[3]["uuid"])  # fmt: skip
    assert small.wait(timeout=20) == 1  # 1g.5gb has 4864 MiB
    # Two compute instances share one GPU instance's memory, not its SMs.
    for uuid in (mig[0]["uuid"], mig[1]["uuid"]):
        node.train("--memory-mib", 9000, "--smact", 0.5, "--work-s", 100,
                   CUDA_VISIBLE_DEVICES=uuid)  # fmt: skip
    speeds = {p["mig"]: p["speed"] for p in node.working(2, gpu=1)}
    assert speeds == pytest.approx({0: 14 / 108 / 0.5, 1: 28 / 108 / 0.5}, abs=1e-4)
    third = node.train("--memory-mib", 3000, "--smact", 0.5, "--work-s", 1,
                       CUDA_VISIBLE_DEVICES=mig[0]["uuid"])  # fmt: skip
    assert third.wait(timeout=20) == 1  # 2 x 9000 of 20096 MiB are taken
