# SPDX-License-Identifier: Apache-2.0
"""coloc prolog and coloc epilog as slurmd starts them: scripts, bare environment, real user."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.harness import built

from .conftest import TORCH, USER, Answer, Listener, Node, ok

MACHINE = "dgx-station-a100"


def test_a_job_without_coloc_starts_no_program(node: Node) -> None:
    node.program.write_text(f"#!/bin/sh\ntouch {node.folder}/started\n")
    del node.env["SPANK_COLOC_V"]
    for kind in ("prolog", "epilog"):
        assert node.run(kind) == ""
    assert not (node.folder / "started").exists()


def test_from_prolog_to_report(node: Node) -> None:
    node.run("prolog")
    state = node.state()
    assert (state["job_id"], state["restart"], state["uid"]) == (77, 0, USER)
    file = (node.folder / "run/jobs/77.json").stat()
    assert (file.st_uid, file.st_mode & 0o777) == (0, 0o600)
    node.log("epoch 1\n" + TORCH)
    assert "oom=cuda_oom report=spool: " in node.run("epilog")
    report = node.report()
    assert (report["op"], report["job_id"], report["restart"]) == ("report", 77, 0)
    assert (report["exit_code"], report["signal"]) == (1, 0)
    evidence = report["evidence"]
    assert (evidence["oom"], evidence["file"], evidence["requested_mib"]) == (True, "stdout", 64)
    assert evidence["line"] == TORCH.strip()
    assert not (node.folder / "run/jobs/77.json").exists()


def test_only_the_matched_line_leaves_the_log(node: Node) -> None:
    node.log("password=hunter2\n" + TORCH + "secret\n")
    node.run("epilog")
    text = json.dumps(node.report())
    assert "hunter2" not in text
    assert "secret" not in text


def test_colocd_gets_the_report(node: Node, listen: Callable[[Answer], Listener]) -> None:
    server = listen(ok)
    node.log(TORCH)
    assert "report=colocd" in node.run("epilog")
    assert json.loads(server.lines[0])["evidence"]["oom"] is True
    assert not (node.folder / "spool").exists()


def test_twice_is_as_good_as_once(node: Node) -> None:
    for kind in ("prolog", "prolog"):
        node.run(kind)
    node.log(TORCH)
    node.run("epilog")
    first = node.report()
    node.run("epilog")
    second = node.report()
    assert first["evidence"] == second["evidence"]
    assert "no state of this run: the Prolog did not write one" in second["notes"]


def test_stderr_apart_and_the_same(node: Node) -> None:
    node.log("fine\n", "o-77.txt")
    node.log(TORCH, "e-77.txt")
    out, err = str(node.work / "o-%j.txt"), str(node.work / "e-%j.txt")
    node.run("epilog", SLURM_JOB_STDOUT=out, SLURM_JOB_STDERR=err)
    assert node.report()["evidence"]["file"] == "stderr"
    node.run("epilog", SLURM_JOB_STDOUT=err, SLURM_JOB_STDERR=err)
    assert node.report()["evidence"]["file"] == "stdout"


def test_success_after_a_caught_oom_is_told_with_exit_0(node: Node) -> None:
    node.log(TORCH + "retrying\ndone\n")
    node.run("epilog", SLURM_JOB_EXIT_CODE2="0:0")
    report = node.report()
    assert (report["exit_code"], report["evidence"]["oom"]) == (0, True)


@pytest.mark.parametrize("kind", ["", "salloc", "srun"])
def test_an_interactive_job_has_no_log(node: Node, kind: str) -> None:
    node.log(TORCH)
    if kind:
        node.env["SPANK_COLOC_KIND"] = kind
    else:
        del node.env["SLURM_JOB_STDIN"]
    node.run("epilog")
    report = node.report()
    assert report["evidence"] is None
    assert report["notes"][-1] == "no batch job: no log"


def test_state_of_another_run_is_not_used(node: Node) -> None:
    node.run("prolog")
    node.log(TORCH)
    node.run("epilog", SLURM_JOB_RESTART_COUNT="2")
    report = node.report()
    assert "no state of this run" in report["notes"][0]
    # Not "another reason than GPU memory": nobody has looked.
    assert (report["evidence"]["oom"], report["evidence"]["kind"]) == (False, "not-judged")


def test_an_array_task_by_its_numbers(node: Node) -> None:
    node.run("prolog")
    node.log("fine\n", "slurm-70_1.out")
    node.log(TORCH, "slurm-70_2.out")
    node.run("epilog")
    report = node.report()
    assert report["evidence"] is None
    assert "stdout not read: several files fit the pattern" in report["notes"]
    node.run("prolog")
    (node.folder / "run/jobs/77.step").write_text("70 2\nname\n")
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True
    assert not (node.folder / "run/jobs/77.step").exists()


def test_a_log_by_the_jobs_name(node: Node) -> None:
    node.log(TORCH, "a b.out")
    node.log("fine\n", "other.out")
    pattern = {"SLURM_JOB_STDOUT": str(node.work / "%x.out")}
    node.run("prolog")
    node.run("epilog", **pattern)
    assert node.report()["evidence"] is None
    node.run("prolog")
    (node.folder / "run/jobs/77.step").write_text("none\na b\n")
    node.run("epilog", **pattern)
    assert node.report()["evidence"]["oom"] is True


@pytest.mark.parametrize("text", ["", "x", "1 2 3", "-1 2\n", "9" * 500, "none\n../../x\n"])
def test_a_strange_step_file_is_survived(node: Node, text: str) -> None:
    node.run("prolog")
    (node.folder / "run/jobs/77.step").write_text(text)
    node.log(TORCH)
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True


@pytest.mark.parametrize(
    ("name", "goal", "note"),
    [
        ("fifo", None, "not a regular file"),
        ("link", "/etc/shadow", "a symlink"),
        ("zero", "/dev/zero", "a symlink"),
    ],
)
def test_a_log_that_is_a_trap(node: Node, name: str, goal: str | None, note: str) -> None:
    path = node.work / name
    if goal:
        path.symlink_to(goal)
    else:
        os.mkfifo(path)
    start = time.monotonic()
    node.run("epilog", SLURM_JOB_STDOUT=str(path))
    assert time.monotonic() - start < 5
    report = node.report()
    assert report["evidence"] is None
    assert f"stdout not read: {note}" in report["notes"]


def test_the_log_in_anothers_folder(node: Node) -> None:
    closed = node.folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "log").write_text(TORCH)
    node.run("epilog", SLURM_JOB_STDOUT=str(closed / "log"))
    report = node.report()
    assert report["evidence"] is None
    assert "stdout not read: permission denied" in report["notes"]


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_ID": "77; touch /tmp/coloc-owned"},
        {"SLURM_JOB_ID": "../../77"},
        {"SLURM_JOB_UID": "0x0"},
        {"SLURM_JOB_GPUS": "$(touch /tmp/coloc-owned)"},
        {"SLURMD_NODENAME": "../../../etc/x"},
        {"COLOC_CONFIG": "/nonexistent"},
        {"COLOC_PROGRAM": "/nonexistent"},
        {"COLOC_PROGRAM": "/bin/false"},
    ],
)
def test_nothing_makes_a_hook_fail_or_act(node: Node, changes: dict[str, str]) -> None:
    for kind in ("prolog", "epilog"):
        assert "coloc-" in node.run(kind, **changes)
    assert not (node.folder / "run").exists()
    assert not (node.folder / "spool").exists()
    assert not Path("/tmp/coloc-owned").exists()


def test_hostile_spank_values_are_only_looked_for(node: Node) -> None:
    hostile = {
        "SPANK_COLOC_V": "$(touch /tmp/coloc-owned); `id` \\ \" ' -o /x",
        "SPANK_COLOC_SUMMARY": "../" * 20000,
        "SPANK_COLOC_KIND": "\x1b]0;x\x07",
        "SPANK_PYTHONPATH": "/tmp",
        "SPANK_LD_PRELOAD": "/tmp/x.so",
    }
    node.run("prolog", **hostile)
    node.log(TORCH)
    said = node.run("epilog", **hostile)
    assert node.report()["evidence"]["oom"] is True
    assert "touch" not in said
    assert not Path("/tmp/coloc-owned").exists()


def test_a_linked_run_dir_is_refused_and_the_job_goes_on(node: Node) -> None:
    (node.folder / "run").mkdir()
    (node.folder / "run/jobs").symlink_to(node.work)
    assert "not a folder" in node.run("prolog")
    node.log(TORCH)
    assert "note='state unreadable" in node.run("epilog")
    assert [file.name for file in node.work.iterdir()] == ["slurm-77.out"]
    assert node.report()["evidence"]["oom"] is True


def test_dry_run_changes_nothing(node: Node) -> None:
    node.log(TORCH)
    for kind in ("prolog", "epilog"):
        done = subprocess.run(
            [node.program, kind, "--dry-run"],
            env=node.env,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert json.loads(done.stdout)["job_id"] == 77
    assert not (node.folder / "run").exists()
    assert not (node.folder / "spool").exists()


@pytest.mark.slow
def test_a_program_that_hangs_is_ended(node: Node) -> None:
    node.program.write_text("#!/bin/sh\nexec sleep 60\n")
    start = time.monotonic()
    assert "ended with 124" in node.run("epilog")
    assert time.monotonic() - start < 16


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in libnvidia-ml.so.1, built here."""
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.skip("needs make and cc to build the emulated GPU")
    return built.built(built.EMULATOR, built.folder(tmp_path_factory))


def emulated(node: Node, emulator: Path) -> Path:
    ledger = node.folder / "ledger"
    init = [emulator / "bin/coloc-emu", "init", "--machine", MACHINE, ledger]
    subprocess.run(init, check=True, capture_output=True)
    node.env |= {"LD_LIBRARY_PATH": str(emulator / "lib"), "COLOC_EMU_LEDGER": str(ledger)}
    return ledger


def test_gpus_by_minor_number(node: Node, emulator: Path) -> None:
    emulated(node, emulator)
    node.run("prolog", SLURM_JOB_GPUS="0,3")
    devices = node.state()["gpu"]["devices"]
    assert [device["minor"] for device in devices] == [0, 3]
    assert all(device["uuid"].startswith("GPU-") for device in devices)
    assert all(0 < device["free_mib"] <= device["total_mib"] for device in devices)
    node.run("epilog")
    assert node.report()["gpu_uuids"] == [device["uuid"] for device in devices]
    uuid = devices[1]["uuid"]
    node.run("prolog", SLURM_JOB_GPUS="", CUDA_VISIBLE_DEVICES=uuid)
    assert [device["minor"] for device in node.state()["gpu"]["devices"]] == [3]


def train(emulator: Path, ledger: Path, mib: int, seconds: float, gpu: int = 0) -> Popen[bytes]:
    """A training stand-in on one of the node's GPUs."""
    words = f"--memory-mib {mib} --smact 0.1 --work-s {seconds} --ramp-s 0".split()
    env = {"COLOC_EMU_LEDGER": str(ledger), "CUDA_VISIBLE_DEVICES": str(gpu)}
    return Popen([emulator / "bin/emu-train", *words], env=env, stdout=PIPE)


def test_the_peak_is_that_of_the_fullest_gpu_since_the_prolog(node: Node, emulator: Path) -> None:
    ledger = emulated(node, emulator)
    assert train(emulator, ledger, 30_000, 0.1).wait(20) == 0
    time.sleep(1.1)  # what ended in the second before the Prolog may be of the job
    node.run("prolog", SLURM_JOB_GPUS="0,3")
    for mib, gpu in ((3000, 0), (2000, 0), (4000, 3), (9000, 1)):
        assert train(emulator, ledger, mib, 0.1, gpu).wait(20) == 0
    node.run("epilog")
    report = node.report()
    assert (report["peak_mib"], report["alone"]) == (4000, True)


def test_who_was_there_before_is_told_and_not_counted(node: Node, emulator: Path) -> None:
    ledger = emulated(node, emulator)
    stranger = train(emulator, ledger, 30_000, 60)
    try:
        assert stranger.stdout and stranger.stdout.readline()
        time.sleep(1.1)
        node.run("prolog")
        assert train(emulator, ledger, 3000, 0.1).wait(20) == 0
        node.run("epilog")
        report = node.report()
        assert (report["peak_mib"], report["alone"]) == (3000, False)
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("fault", ["lost", "nvml-busy"])
def test_a_peak_that_cannot_be_asked_for_costs_only_itself(
    node: Node, emulator: Path, fault: str
) -> None:
    ledger = emulated(node, emulator)
    node.run("prolog")
    subprocess.run([emulator / "bin/coloc-emu", "fault", ledger, "0", fault], check=True)
    node.log(TORCH)
    node.run("epilog")
    report = node.report()
    assert report["peak_mib"] is None
    assert report["evidence"]["oom"] is True
    assert any(note.startswith("peak not known: ") for note in report["notes"])


@pytest.mark.parametrize("fault", ["lost", "nvml-busy"])
def test_a_faulty_gpu_is_told_and_the_job_goes_on(node: Node, emulator: Path, fault: str) -> None:
    ledger = emulated(node, emulator)
    subprocess.run([emulator / "bin/coloc-emu", "fault", ledger, "1", fault], check=True)
    node.run("prolog", SLURM_JOB_GPUS="1")
    gpu = node.state()["gpu"]
    assert gpu["available"] is False
    assert "/dev/nvidia1" in gpu["reason"]
    node.run("prolog", SLURM_JOB_GPUS="2")
    assert node.state()["gpu"]["available"] is True


def test_a_node_without_nvml(node: Node) -> None:
    node.run("prolog")
    gpu = node.state()["gpu"]
    if gpu["available"]:
        pytest.skip("this machine has a real GPU")
    assert gpu["reason"]
    node.config.write_text(node.config.read_text() + "nvml = false\n")
    node.run("prolog")
    assert node.state()["gpu"]["reason"] == "nvml = false in the configuration"


def test_a_fault_of_the_gpu_is_told_and_is_no_oom(node: Node) -> None:
    node.log("step 1\nRuntimeError: CUDA error: unspecified launch failure\n")
    node.run("epilog")
    evidence = node.report()["evidence"]
    assert (evidence["oom"], evidence["kind"]) == (False, "device")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Traceback (most recent call last):\nKeyError: 'loss'\n", "it ended in KeyError"),
        ("Traceback (most recent call last):\nRuntimeError: no\n", None),
        ("KeyError: 'loss'\n", None),
        (
            "Traceback (most recent call last):\nRuntimeError: no\n\n"
            "Exception ignored in: <function f>\nTraceback (most recent call last):\n"
            "TypeError: at exit\n",
            None,
        ),
    ],
    ids=["ordinary", "another", "no traceback", "at exit"],
)
def test_an_error_of_the_program_itself_is_told(node: Node, text: str, line: str | None) -> None:
    """A run that fails by it was not stopped by its memory, however much it held."""
    node.log(f"step 1\n{text}")
    node.run("epilog")
    evidence = node.report()["evidence"]
    assert (evidence and (evidence["oom"], evidence["kind"], evidence["line"])) == (
        line and (False, "error", line)
    )


def test_a_report_that_cannot_be_kept_costs_no_more(node: Node) -> None:
    """No colocd, and a spool that hooks must not use: the job's state goes all the same, or its GPU
    would count as used for hours."""
    node.run("prolog")
    (node.folder / "spool").symlink_to("/")
    assert "report=lost (" in node.run("epilog")
    assert not (node.folder / "run/jobs/77.json").exists()
