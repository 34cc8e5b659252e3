# SPDX-License-Identifier: Apache-2.0
"""What a user can put before a hook that runs as root: values, names, paths, links, planted files.

Each test has a file of root's beside the user's folder; nothing may change, read or remove it. The
list of threats, and where each is tested, is docs/threats.md.
"""

import fcntl
import json
import os
import shutil
import socket
import stat
import time
from pathlib import Path

import pytest

from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob
from slurm_coloc.core.gpu.sharing import Rules

from .conftest import TORCH, USER, Node

SECRET = TORCH.replace("64.00 MiB", "13.00 MiB")  # would be evidence, were it read
#: Linux lets one variable have 128 KiB
LONG = "A" * 130_000
NAMES = ("V", "KIND", "SUMMARY", "AUTO", "BATCH_SIZE", "SEQ_LEN", "OPTIMIZER", "POLICY", "X" * 99)


@pytest.fixture
def secret(public: Path) -> Path:
    """A file that root alone may read."""
    path = public / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def untouched(secret: Path) -> None:
    seen = secret.stat()
    assert secret.read_text() == SECRET
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (0, 0o600)
    assert not Path("/tmp/coloc-owned").exists()


@pytest.mark.parametrize(
    "value",
    [
        "1\nSLURM_JOB_UID=0\nCOLOC_PROGRAM=/bin/sh",
        "%s%n%x%999999999d",
        "../../../../secret",
        "$(touch /tmp/coloc-owned)",
        "`touch /tmp/coloc-owned`; touch /tmp/coloc-owned | & > /tmp/coloc-owned",
        "\x1b[2J\x1b]0;owned\x07\x7f",
        "\udcff\udcfe",
        LONG,
    ],
    ids=["lines", "format", "path", "shell", "more-shell", "terminal", "no-utf8", "130000-bytes"],
)
def test_spank_values_change_nothing(node: Node, secret: Path, value: str) -> None:
    """NUL bytes cannot be in an environment, and what is longer does not pass exec."""
    hostile = {f"SPANK_COLOC_{name}": value for name in NAMES}
    said = node.run("prolog", **hostile)
    assert node.state()["uid"] == USER
    assert {file.name for file in (node.folder / "run/jobs").iterdir()} >= {"77.json"}
    said += node.run("epilog", **hostile)
    report = node.report()
    assert (report["job_id"], report["uid"]) == (77, USER)
    assert value not in json.dumps(report)
    assert value not in said
    untouched(secret)


@pytest.mark.parametrize(
    "pattern",
    [
        "../secret",
        "%x/../../secret",
        "{public}/secret",
        "/proc/self/mem",
        "/proc/1/environ",
        "/dev/../{public}/secret",
        "a\nb",
        "%999999999999j",
        "%" * 2000,
        "x/" * 2000,
        "*[!a-z]?{{a,b}}",
        "-rf",
        "\udcff%j",
    ],
)
@pytest.mark.parametrize("stream", ["SLURM_JOB_STDOUT", "SLURM_JOB_STDERR"])
def test_log_patterns_read_the_users_own_files_only(
    node: Node, secret: Path, stream: str, pattern: str
) -> None:
    wish = {stream: pattern.replace("{public}", str(node.folder))}
    began = time.monotonic()
    node.run("prolog", **wish)
    node.run("epilog", **wish)
    assert time.monotonic() - began < 20
    report = node.report()
    assert not (report["evidence"] or {}).get("oom")
    assert "13.00 MiB" not in json.dumps(report)
    untouched(secret)


@pytest.mark.parametrize("kind", ["link", "linked-folder", "fifo", "socket", "device", "folder"])
def test_what_stands_at_the_logs_place(node: Node, secret: Path, kind: str) -> None:
    path = node.work / "slurm-77.out"
    wish = {}
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "linked-folder":
        (node.work / "d").symlink_to(node.folder)
        wish = {"SLURM_JOB_STDOUT": "d/secret"}
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "device":
        wish = {"SLURM_JOB_STDOUT": "/dev/zero"}
    else:
        path.mkdir()
    began = time.monotonic()
    node.run("prolog", **wish)
    node.run("epilog", **wish)
    assert time.monotonic() - began < 20
    assert node.report()["evidence"] is None
    untouched(secret)


@pytest.mark.parametrize("suffix", ["json", "share", "step", "logs", "fence"])
@pytest.mark.parametrize("kind", ["link", "file", "fifo", "folder"])
def test_planted_state_is_not_believed(node: Node, secret: Path, suffix: str, kind: str) -> None:
    """As if a user could write there, which the folder's mode forbids."""
    jobs = node.folder / "run" / "jobs"
    jobs.mkdir(parents=True)
    (node.folder / "run").chmod(0o755)
    jobs.chmod(0o755)
    planted = jobs / f"77.{suffix}"
    text = json.dumps({"schema": 1, "restart": 0, "log_marks": {}, "gpu": {}, "sharing": {}})
    if kind == "link":
        planted.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(planted)
    elif kind == "folder":
        planted.mkdir()
    else:
        planted.write_text(text if suffix == "json" else "fence 1\nrung cgroup\nmib 1\n")
        os.chown(planted, USER, USER)
    node.log(TORCH)
    began = time.monotonic()
    node.run("epilog")  # without a Prolog: nothing has replaced it
    assert time.monotonic() - began < 20
    report = node.report()
    assert report["fence"] is None
    assert report["method"] is None
    assert "13.00 MiB" not in json.dumps(report)
    untouched(secret)
    shutil.rmtree(jobs)


def test_a_forged_share_file_is_replaced_by_the_prolog(node: Node) -> None:
    jobs = node.folder / "run" / "jobs"
    jobs.mkdir(parents=True)
    (node.folder / "run").chmod(0o755)
    for suffix in ("share", "fence", "step"):
        (jobs / f"77.{suffix}").write_text("share 1\nmethod mps\nprogram /tmp/x\n")
    node.run("prolog")
    assert not (jobs / "77.fence").exists()
    assert not (jobs / "77.step").exists()
    assert "/tmp/x" not in (jobs / "77.share").read_text()


@pytest.mark.parametrize("where", ["run", "spool"])
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_folders_that_others_may_write_are_refused(node: Node, where: str, mode: int) -> None:
    folder = node.folder / ("run/jobs" if where == "run" else "spool")
    folder.mkdir(parents=True)
    folder.chmod(mode)
    node.run("prolog")
    node.log(TORCH)
    node.run("epilog")
    assert list(folder.iterdir()) == []


def test_what_a_user_does_to_their_mps_folder(
    as_root: None, public: Path, secret: Path, tmp_path: Path
) -> None:
    """The folder of a daemon is its user's: links in it lead out of nothing."""
    run_dir = public / "jobs"
    run_dir.mkdir(mode=0o755)
    (run_dir / "1.json").write_text("{}")
    control = public / "control"
    # A daemon that listens, and then ends by itself: what it leaves is the user's.
    control.write_text(
        "#!/usr/bin/env python3\n"
        "import os, socket, time\n"
        "pipe = os.environ['CUDA_MPS_PIPE_DIRECTORY']\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.bind(pipe + '/control'); s.listen(4)\n"
        "time.sleep(1.5)\n"
    )
    control.chmod(0o755)
    gpu = Gpu(run_dir, "GPU-f5154b82-fd38", control, {"PATH": os.environ["PATH"]})
    job = MpsJob(1, 0, USER, USER)
    found, pipe = gpu.join(job, Rules())
    assert (str(found.method), pipe is not None) == ("mps", True), found.reason
    assert pipe is not None
    own = pipe.parent
    keep = public / "keep"
    keep.mkdir()
    (keep / "file").write_text("kept")
    for name, goal in (("a", secret), ("b", keep), ("c", Path("/etc"))):
        (own / name).symlink_to(goal)
    shutil.rmtree(own / "log")
    (own / "log").symlink_to(keep)
    gpu.leave(job)
    with (gpu.folder / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # held by what goes on behind an Epilog
    if own.exists():  # what that could not do is the agent's next try, which raises why
        gpu.reap()
    assert not own.exists()
    assert (keep / "file").read_text() == "kept"
    untouched(secret)
    again, _ = gpu.join(job, Rules())
    assert str(again.method) == "mps", again.reason
    gpu.leave(job)
    assert not (public / "keep" / "pipe").exists()
