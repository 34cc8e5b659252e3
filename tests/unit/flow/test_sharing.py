# SPDX-License-Identifier: Apache-2.0
"""What the Prolog tells slurmstepd of the fence levels, by what the node has."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_coloc.adapters.hookenv import HookCall, HookSettings, read_job
from slurm_coloc.core.gpu.sharing import Chosen, Method
from slurm_coloc.errors import GpuError
from slurm_coloc.flow.launch import memory_limit, prolog, sharing

JOB = read_job({"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "1000", "SLURM_JOB_GID": "1000"})
GPU = "GPU-f5154b82-fd38-0243-c5ac-bcd22f624fbe"
MIG = "MIG-f5154b82-fd38-0243-c5ac-bcd22f624fbe"
ENV = {"COLOC_PROGRAM": "/usr/bin/coloc", "COLOC_CONFIG": "/etc/c.toml"}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose driver and kernel know limits of cgroups."""
    monkeypatch.setattr(sharing.cgroup, "unified", lambda: True)
    monkeypatch.setattr(sharing, "_driver", lambda settings: "615.71.04")


def prepared(tmp_path: Path, uuid: str = GPU, env: dict[str, str] = ENV, **settings: Any) -> str:
    """The text of the .share file, of 11 shards on one GPU."""
    state = {
        "reservation": {"available": True, "shards": 11, "shard_mib": 1024},
        "gpu": {"available": True, "devices": [{"uuid": uuid, "total_mib": 40960}]},
    }
    known = HookSettings(run_dir=tmp_path, mps_control=tmp_path / "none", **settings)
    return sharing.prepare(HookCall(JOB, known, env), state)[1]


def test_a_whole_gpu_tells_the_plugin_that_it_is_one(tmp_path: Path) -> None:
    """So that JAX and TensorFlow grow in it: it is measured."""
    state = {
        "reservation": {"available": True, "shards": 0, "shard_mib": 1024},
        "gpu": {"available": True, "devices": [{"uuid": GPU, "total_mib": 40960}]},
    }
    call = HookCall(JOB, HookSettings(run_dir=tmp_path), {})
    assert sharing.prepare(call, state) == ({"method": "alone", "reason": ""}, ALONE)
    assert sharing.meanwhile(call.settings, state) == ALONE


ALONE = "share 1\nmethod alone\n"


@pytest.mark.usefixtures("kernel")
def test_the_kernels_limit_is_wanted(tmp_path: Path) -> None:
    text = prepared(tmp_path)
    names = f"cgroup_uuids {GPU}\nprogram /usr/bin/coloc\nconfig /etc/c.toml\n"
    assert f"\ncgroup_mib 11264\n{names}" in text
    assert "\nframeworks known\n" in text
    assert "config" not in prepared(tmp_path, env={"COLOC_PROGRAM": "/usr/bin/coloc"})


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("uuid", "env", "settings"),
    [
        (MIG, ENV, {}),
        (GPU, {}, {}),
        (GPU, {"COLOC_PROGRAM": "coloc"}, {}),
        (GPU, ENV, {"cgroup": "off"}),
    ],
)
def test_where_it_is_not_to_be_had(
    tmp_path: Path, uuid: str, env: dict[str, str], settings: dict[str, str]
) -> None:
    assert "cgroup_mib" not in prepared(tmp_path, uuid, env, **settings)


@pytest.mark.parametrize(("unified", "driver"), [(False, "615.1"), (True, "570.1"), (True, "")])
def test_an_older_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unified: bool, driver: str
) -> None:
    monkeypatch.setattr(sharing.cgroup, "unified", lambda: unified)
    monkeypatch.setattr(sharing, "_driver", lambda settings: driver)
    assert "cgroup_mib" not in prepared(tmp_path)
    gpu = {"devices": [{"uuid": GPU, "total_mib": 1}]}
    known = HookSettings(run_dir=tmp_path, mps_control=tmp_path / "none")
    assert "is not on this node" in sharing.unfenced(HookCall(JOB, known, ENV), gpu)


@pytest.mark.usefixtures("kernel")
def test_what_would_hold_a_job(tmp_path: Path) -> None:
    known = HookSettings(run_dir=tmp_path, mps_control=tmp_path / "none")
    call, one = HookCall(JOB, known, ENV), {"uuid": GPU, "total_mib": 1}
    assert sharing.unfenced(call, {"devices": [one]}) == ""
    assert sharing.unfenced(call, {"devices": [one | {"uuid": MIG}]}) == ""
    assert sharing.unfenced(call, {"devices": [one, one]}) == ""
    assert "several" in sharing.unfenced(call, {"devices": [one, one | {"uuid": MIG}]})
    assert "several" in sharing.unfenced(call, {"devices": [one] * 33})
    assert "not known" in sharing.unfenced(call, {})
    off = HookSettings(run_dir=tmp_path, mps_control=tmp_path / "none", cgroup="off")
    assert "is not on this node" in sharing.unfenced(HookCall(JOB, off, ENV), {"devices": [one]})


class Driver:
    """NVML that keeps a limit, or says that it does."""

    def __init__(self, answers: list[int | None]) -> None:
        self.answers = answers
        self.set: list[int] = []

    def group_limit_mib(self, uuid: str, folder: str) -> int | None:
        return self.answers.pop(0)

    def limit_group(self, uuid: str, folder: str, hard_mib: int) -> None:
        self.set.append(hard_mib)


@pytest.mark.parametrize(
    ("answers", "times", "held"),
    [
        ([8192], 0, True),  # another step has set it
        ([None, 8192], 1, True),
        ([4096, 8192], 1, True),
        ([None, 8200], 1, True),  # rounded up
        ([None, None], 1, False),
        ([None, 4096], 1, False),
        ([None, 81920], 1, False),
    ],
)
def test_a_limit_is_asserted_set_and_read_back(
    answers: list[int | None], times: int, held: bool
) -> None:
    driver: Any = Driver(answers)
    if held:
        memory_limit.hold(driver, GPU, "/sys/fs/cgroup/x", 8192)
    else:
        with pytest.raises(GpuError, match="reads back as"):
            memory_limit.hold(driver, GPU, "/sys/fs/cgroup/x", 8192)
    assert driver.set == [8192] * times


def test_the_level_of_a_file() -> None:
    assert memory_limit.level_of(b"fence 1\nrung cgroup\nmib 4096\n") == "cgroup"
    for text in (None, b"", b"fence 2\nrung cgroup\n", b"fence 1\nrung x\n", b"\xff" * 99):
        assert memory_limit.level_of(text) is None


class Clients:
    """GPUs whose MPS can be had, or not; who uses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...] = ()) -> None:
        self.taken: set[str] = set()

        def gpu(call: HookCall, device: dict[str, Any]) -> Any:
            return SimpleNamespace(
                join=lambda job, rules, *share: self.join(device["uuid"], without)
            )

        def leave(*_: object) -> list[str]:
            self.taken.clear()
            return []

        monkeypatch.setattr(sharing, "_gpu", gpu)
        monkeypatch.setattr(sharing.node, "leave", leave)

    def join(self, uuid: str, without: tuple[str, ...]) -> tuple[Chosen, Path | None]:
        if uuid in without:
            return Chosen(Method.STREAMS, "another user has MPS on this GPU"), None
        self.taken.add(uuid)
        return Chosen(Method.MPS), Path(f"/run/mps/{uuid[4:8]}/1000/pipe")


OTHER = "GPU-99999999-fd38-0243-c5ac-bcd22f624fbe"


def of_two(
    tmp_path: Path, several: str, numbers: tuple[int, ...] = (3, 1)
) -> tuple[dict[str, Any], list[str]]:
    devices = [{"uuid": GPU, "total_mib": 40960, "minor": 3}]
    devices.append({"uuid": OTHER, "total_mib": 40960, "minor": 1})
    state = {
        "reservation": {"available": True, "shards": 11, "shard_mib": 1024},
        "gpu": {"available": True, "devices": devices},
    }
    known = HookSettings(run_dir=tmp_path, several_gpus=several, thread_percentage=50)
    told, text = sharing.prepare(HookCall(JOB._replace(numbers=numbers), known, {}), state)
    return told, text.splitlines()


def test_a_task_with_one_of_several_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients(monkeypatch)
    told, lines = of_two(tmp_path, "tasks")
    assert f"task 3 {GPU} /run/mps/f515/1000 3" in lines
    assert f"task 1 {OTHER} /run/mps/9999/1000 1" in lines
    assert "threads 50" in lines and "method streams" in lines
    assert "a client of its MPS" in told["reason"]
    assert clients.taken == {GPU, OTHER}
    # By the device file's number and by Slurm's own, which is a place in its list; () for UUIDs.
    assert f"task 1 {OTHER} /run/mps/9999/1000 0" in of_two(tmp_path, "tasks", (2, 0))[1]
    assert f"task 1 {OTHER} /run/mps/9999/1000 1" in of_two(tmp_path, "tasks", ())[1]


@pytest.mark.parametrize(("several", "without"), [("streams", ()), ("tasks", (OTHER,))])
def test_or_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: str, without: tuple[str, ...]
) -> None:
    """Of one training all tasks are alike; what was set up for some is taken back."""
    clients = Clients(monkeypatch, without)
    told, lines = of_two(tmp_path, several)
    assert not [line for line in lines if line.startswith(("task", "threads", "pipe"))]
    assert told["method"] == "streams" and "several GPUs" in told["reason"]
    assert clients.taken == set()


def explode(*_: object) -> object:
    raise RecursionError("maximum recursion depth exceeded")


@pytest.mark.parametrize("where", ["_join", "_rules", "_gpu", "_kernels_limit", "_by_kernel"])
def test_a_preparation_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """By the line in the job's output, for which the plugin needs the sizes."""
    monkeypatch.setattr(sharing, where, explode)
    lines = prepared(tmp_path).splitlines()
    assert lines[:2] == ["share 1", "method streams"]
    assert {"shard_mib 1024", "gpu_mib 40960", f"uuid {GPU}", "frameworks known"} <= set(lines)
    assert lines[-1] == "why MPS cannot be set up: RecursionError"


@pytest.mark.usefixtures("kernel")
def test_the_kernels_limit_stands_where_mps_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_join", explode)
    assert "\ncgroup_mib 11264\n" in prepared(tmp_path)


def test_a_size_that_nvml_does_not_tell(tmp_path: Path) -> None:
    unknown = {"available": False, "reason": "NVML: Unknown Error"}
    devices = [{"uuid": GPU, "total_mib": unknown, "minor": 3}]
    devices.append({"uuid": OTHER, "total_mib": 40960, "minor": 1})
    state = {
        "reservation": {"available": True, "shards": 11, "shard_mib": 1024},
        "gpu": {"available": True, "devices": devices},
    }
    told, text = sharing.prepare(HookCall(JOB, HookSettings(run_dir=tmp_path), {}), state)
    assert "several GPUs" in told["reason"]
    assert "gpu_mib 40960" in text.splitlines()


def test_a_prolog_that_is_ended_while_it_prepares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its time limit: the file for the plugin is there before MPS is begun with."""
    settings = HookSettings(run_dir=tmp_path, frameworks="off")
    device = {"uuid": GPU, "total_mib": 40960, "free_mib": 40960, "processes": []}
    monkeypatch.setattr(prolog.hookenv, "read_settings", lambda _: settings)
    monkeypatch.setattr(prolog, "gpus_now", lambda *_: {"available": True, "devices": [device]})
    held = {"available": True, "shards": 11, "shard_mib": 1024, "decision": "collocate"}
    monkeypatch.setattr(prolog, "request_reservation", lambda *_, **__: (held, {}))
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "1000", "SLURM_JOB_GID": "1000"}

    def killed(*_: object) -> object:
        raise SystemExit

    monkeypatch.setattr(sharing, "prepare", killed)
    with pytest.raises(SystemExit):
        prolog.run(env)
    lines = (tmp_path / "7.share").read_text().splitlines()
    assert lines[:2] == ["share 1", "method streams"]
    assert {"shard_mib 1024", "gpu_mib 40960", f"uuid {GPU}", "frameworks off"} <= set(lines)
    assert lines[-1] == "why the Prolog was ended before MPS was set up"
    held["shards"] = 0
    with pytest.raises(SystemExit):
        prolog.run(env)
    assert (tmp_path / "7.share").read_text() == ALONE, "nobody is there to be fenced from"


@pytest.mark.parametrize(
    ("uuid", "reservation", "mib"),
    [
        ("MIG-1", {"available": False, "reason": "no answer"}, 4864),
        ("MIG-1", {"available": True, "shards": 1, "shard_mib": 2432}, 2432),
        (GPU, {"available": False, "reason": "no answer"}, 1024),
    ],
)
def test_a_share_of_which_colocd_told_nothing(
    uuid: str, reservation: dict[str, object], mib: int
) -> None:
    device = {"uuid": uuid, "total_mib": 4864, "free_mib": 4864, "processes": []}
    state = {"gpu": {"available": True, "devices": [device]}, "reservation": reservation}
    assert f"shard_mib {mib}" in sharing.meanwhile(HookSettings(), state).splitlines()
