# SPDX-License-Identifier: Apache-2.0
"""coloc prolog and coloc epilog as slurmd starts them: scripts, bare environment, real user."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, USER, Answer, Listener, ok

TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total"
    " capacity of 39.59 GiB of which 37.00 MiB is free.\n"
)
MACHINE = "dgx-station-a100"


class Node:
    """A compute node: its folders, and a way to run a hook on it."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.work = work
        self.program = folder / "coloc"
        self.program.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m slurm_coloc "$@"\n'
        )
        self.program.chmod(0o755)
        self.config = folder / "coloc.toml"
        self.config.write_text(
            f'version = 1\n[daemon]\nsocket = "{folder}/colocd.sock"\nslurm_user = "root"\n'
            f'[hooks]\nspool_dir = "{folder}/spool"\nrun_dir = "{folder}/run/jobs"\n'
        )
        self.env = {
            "COLOC_PROGRAM": str(self.program),
            "COLOC_CONFIG": str(self.config),
            "SPANK_COLOC_V": "1",
            "SLURM_CLUSTER_NAME": "c",
            "SLURMD_NODENAME": "n1",
            "SLURM_JOB_ID": "77",
            "SLURM_JOB_UID": str(USER),
            "SLURM_JOB_GID": str(USER),
            "SLURM_JOB_USER": "",
            "SLURM_JOB_WORK_DIR": str(work),
            "SLURM_JOB_STDIN": "/dev/null",
            "SLURM_JOB_RESTART_COUNT": "0",
            "SLURM_JOB_GPUS": "0",
        }

    def hook(self, kind: str, **changes: str) -> subprocess.CompletedProcess[str]:
        env = {**self.env, **changes}
        if kind == "epilog":
            env.setdefault("SLURM_JOB_EXIT_CODE2", "1:0")
        script = ROOT / kind / f"coloc-{kind}"
        return subprocess.run(
            [script], env=env, cwd="/", capture_output=True, text=True, timeout=30, check=False
        )

    def run(self, kind: str, **changes: str) -> str:
        done = self.hook(kind, **changes)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return done.stderr

    def log(self, text: str, name: str = "slurm-77.out") -> Path:
        path = self.work / name
        path.write_text(text)
        os.chown(path, USER, USER)
        return path

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / "run/jobs/77.json").read_bytes())
        return state

    def report(self) -> dict[str, Any]:
        (file,) = (self.folder / "spool").glob("*.json")
        report: dict[str, Any] = json.loads(file.read_bytes())
        file.unlink()
        return report


@pytest.fixture
def node(as_root: None, public: Path, work: Path) -> Node:
    return Node(public, work)


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
    assert (file.st_uid, file.st_mode & 0o777) == (0, 0o644)
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


def test_a_restart_is_not_blamed_for_the_first_runs_log(node: Node) -> None:
    log = node.log("one\n" + TORCH)
    again = {"SLURM_JOB_RESTART_COUNT": "1"}
    node.run("prolog", **again)
    with log.open("a") as file:
        file.write("Traceback (most recent call last):\nOSError: no data\n")
    node.run("epilog", **again)
    report = node.report()
    assert (report["restart"], report["evidence"]) == (1, None)
    node.run("prolog", **again)
    node.log("two\n" + TORCH)
    node.run("epilog", **again)
    assert node.report()["evidence"]["oom"] is True


def append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_an_older_jobs_oom_in_the_same_log_is_not_this_ones(node: Node) -> None:
    """--open-mode=append, or JobFileAppend=1: the log was there before the job."""
    log = node.log("job 76\n" + TORCH)
    node.run("prolog")
    append(log, "OSError: no data\n")
    node.run("epilog")
    assert node.report()["evidence"] is None
    node.run("prolog")
    append(log, TORCH)
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True


@pytest.mark.parametrize("text", [TORCH, "short", TORCH + "x" * 500, "another text\n" + TORCH])
def test_a_log_that_was_cut_after_the_prolog_is_all_this_runs(node: Node, text: str) -> None:
    node.log("job 76, a longer text than before\n" + TORCH)
    node.run("prolog")
    node.log(text)
    node.run("epilog")
    assert (node.report()["evidence"] is not None) == (TORCH in text)


def note_logs(node: Node, *starts: tuple[Path, int]) -> None:
    """What slurmstepd writes by the SPANK plugin: standard output's start, standard error's."""
    words = [f"{log.stat().st_ino if size >= 0 else 0} {max(size, 0)}" for log, size in starts]
    (node.folder / "run/jobs/77.logs").write_text(" ".join(words) + "\n")


def test_the_start_that_slurmstepd_saw_goes_before_the_marks(node: Node) -> None:
    """A log that was cut and then written with the same text and more has the same marks."""
    log = node.log("epoch 1\n" + TORCH)
    node.run("prolog")
    node.log("epoch 1\n" + TORCH + "slurmstepd: error: *** CANCELLED ***\n")
    note_logs(node, (log, 0), (log, 0))
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True
    assert not (node.folder / "run/jobs/77.logs").exists()
    before = log.stat().st_size
    node.run("prolog")
    append(log, TORCH)
    note_logs(node, (log, before), (log, before))
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True
    node.run("prolog")
    append(log, "fine\n")
    size = log.stat().st_size
    note_logs(node, (log, size - 5), (log, size - 5))
    node.run("epilog")
    assert node.report()["evidence"] is None


def test_each_stream_has_its_own_start(node: Node) -> None:
    out, err = node.log(TORCH, "o"), node.log(TORCH, "e")
    names = {"SLURM_JOB_STDOUT": str(out), "SLURM_JOB_STDERR": str(err)}
    node.run("prolog", **names)
    note_logs(node, (out, len(TORCH)), (err, 0))
    node.run("epilog", **names)
    assert node.report()["evidence"]["file"] == "stderr"


@pytest.mark.parametrize("text", ["", "1 2 3\n", "x y z w\n", "-1 2 3 4\n", "9" * 900, "\0" * 2000])
def test_strange_starts_are_survived(node: Node, text: str) -> None:
    node.run("prolog")
    (node.folder / "run/jobs/77.logs").write_text(text)
    node.log(TORCH)
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True


def test_the_start_of_another_file_is_not_used(node: Node) -> None:
    other = node.log("x" * 5000, "other")
    node.run("prolog")
    node.log(TORCH)
    note_logs(node, (other, 10), (other, 10))
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True


def test_what_a_killed_epilog_left_is_not_the_next_runs(node: Node) -> None:
    node.run("prolog")
    for suffix in ("step", "logs"):
        (node.folder / f"run/jobs/77.{suffix}").write_text("1 2 3 4\n")
    node.run("prolog", SLURM_JOB_RESTART_COUNT="1")
    assert [file.name for file in (node.folder / "run/jobs").iterdir()] == ["77.json"]


def test_a_restart_without_a_prolog_is_blamed_for_nothing(node: Node) -> None:
    """22.05 may skip the Prolog of a job that it starts again at once."""
    node.run("prolog")
    log = node.log(TORCH)
    note_logs(node, (log, 0), (log, 0))
    node.run("epilog", SLURM_JOB_RESTART_COUNT="1")
    report = node.report()
    assert report["evidence"] is None
    assert any("cannot be told apart" in note for note in report["notes"])


def test_a_log_that_the_prolog_could_not_look_at_is_not_judged(node: Node) -> None:
    node.run("prolog")
    state = node.state() | {"log_marks": None}
    file = node.folder / "run/jobs/77.json"
    file.write_text(json.dumps(state))
    log = node.log(TORCH)
    node.run("epilog")
    report = node.report()
    assert report["evidence"] is None
    assert "stdout not judged: the Prolog could not look at it in time" in report["notes"]
    node.run("prolog")
    file.write_text(json.dumps(state))
    note_logs(node, (log, 0), (log, 0))
    node.run("epilog")
    assert node.report()["evidence"]["oom"] is True


def test_state_of_another_run_is_not_used(node: Node) -> None:
    node.run("prolog")
    node.log(TORCH)
    node.run("epilog", SLURM_JOB_RESTART_COUNT="2")
    assert "no state of this run" in node.report()["notes"][0]


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
    assert time.monotonic() - start < 12


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in libnvidia-ml.so.1, built here."""
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.skip("needs make and cc to build the emulated GPU")
    folder = tmp_path_factory.mktemp("emulator")
    made = subprocess.run(
        ["make", "-C", str(ROOT / "tests/emulator"), f"BUILD={folder}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return folder


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
