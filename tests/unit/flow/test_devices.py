# SPDX-License-Identifier: Apache-2.0
"""From slurmd's numbers to GPUs and MIG devices, by what ``slurmd -G`` prints."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_coloc.adapters import slurmd
from slurm_coloc.adapters.nvml.mig import MigDevice, MigGpu, mig_uuid
from slurm_coloc.adapters.slurmd import GresGpu, parse_gpus
from slurm_coloc.errors import GpuError
from slurm_coloc.flow.launch import devices

CAP = "/dev/nvidia-caps/nvidia-cap"
# slurmd 22.05.8; the shards of a type stand before its GPUs
FILES = f"""\
slurmd: Gres Name=shard Type=a100 Count=39 Index=0 ID=1918986455 File=/dev/nvidia0 (null)
slurmd: Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
slurmd: Gres Name=shard Type=1g.5gb Count=0 Index=220 ID=1918986455 File={CAP}220 (null)
slurmd: Gres Name=gpu Type=1g.5gb Count=1 Index=220 ID=7696487 File={CAP}220 (null)
"""
# slurmd 24.11.5
MULTIPLE = (
    "slurmd: Gres Name=gpu Type=1g.5gb Count=1 Index=220 ID=7696487"
    f" File=/dev/nvidia1,{CAP}219,{CAP}220 Links=(null) Flags=HAS_FILE,HAS_TYPE,ENV_NVML\n"
    "slurmd: Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Links=(null)\n"
)


def device(ci_cap: int, uuid: str) -> MigDevice:
    return MigDevice(
        uuid, "GPU-1", 1, "", 1, 9, 0, "1g.5gb", 14, 0.13, 4864, 4864, ci_cap - 1, ci_cap
    )


CUT = [MigGpu("GPU-1", 1, 1, "A100", (device(220, "MIG-a"), device(229, "MIG-b")))]


def test_slurmds_list_in_its_order() -> None:
    assert parse_gpus(FILES) == [
        GresGpu("a100", ("/dev/nvidia0",)),
        GresGpu("1g.5gb", (f"{CAP}220",)),
    ]
    assert parse_gpus(MULTIPLE) == [
        GresGpu("1g.5gb", ("/dev/nvidia1", f"{CAP}219", f"{CAP}220")),
        GresGpu("a100", ("/dev/nvidia0",)),
    ]
    ranged = "Gres Name=gpu Type=(null) Count=3 Index=0 ID=1 File=/dev/nvidia[0-1,4] (null)\n"
    assert [one.files for one in parse_gpus(ranged)] == [
        ("/dev/nvidia0",),
        ("/dev/nvidia1",),
        ("/dev/nvidia4",),
    ]


def behind(gres: GresGpu) -> str:
    return mig_uuid(gres.type, gres.files, CUT)


def test_the_device_behind_the_file() -> None:
    assert behind(parse_gpus(FILES)[1]) == "MIG-a"
    assert behind(parse_gpus(MULTIPLE)[0]) == "MIG-a"


def test_what_no_device_stands_behind_is_told() -> None:
    with pytest.raises(GpuError, match="cut anew"):
        mig_uuid("1g.5gb", (f"{CAP}238",), CUT)
    with pytest.raises(GpuError, match="not MultipleFiles"):
        mig_uuid("1g.5gb", ("/dev/nvidia1",), CUT)


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A hook's, with a slurm.conf."""
    (tmp_path / "etc").mkdir()
    conf = tmp_path / "etc/slurm.conf"
    conf.write_text("Include nodes.conf\n")
    return {"SLURM_CONF": str(conf)}


def test_a_busy_nodes_slurmd_costs_no_job_its_device(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list is that of an earlier job where slurmd does not print it in time."""
    slurmd_program, run_dir = tmp_path / "slurmd", tmp_path / "run"
    run_dir.mkdir(0o711)
    monkeypatch.setattr(slurmd, "_program", lambda: str(slurmd_program))
    monkeypatch.setattr(slurmd, "LIMIT_S", 0.3)
    monkeypatch.setattr(devices, "Mig", lambda lib: SimpleNamespace(gpus=lambda: CUT))
    job = SimpleNamespace(uuids=(), numbers=(1,), node="n1")
    lib = SimpleNamespace(by_uuid=lambda uuids: uuids)

    def of_job() -> tuple[object, bool, list[int]]:
        return devices.gpus_of_job(job, environ, lib, run_dir)  # type: ignore[arg-type]

    program(slurmd_program, "sleep 5")
    with pytest.raises(GpuError, match="timed out"):
        of_job()
    program(slurmd_program, f"cat <<'END'\n{FILES}END")
    monkeypatch.setattr(slurmd, "LIMIT_S", 20.0)
    assert of_job() == (["MIG-a"], True, [4864])
    kept = (run_dir / devices.LAST_LIST).stat()
    assert stat.S_IMODE(kept.st_mode) == 0o600 and kept.st_uid == os.geteuid()
    program(slurmd_program, "exit 1")
    assert of_job() == (["MIG-a"], True, [4864])
    # What somebody else wrote there is not read.
    (run_dir / devices.LAST_LIST).chmod(0o666)
    with pytest.raises(GpuError, match="exit 1"):
        of_job()


def test_a_full_folder_of_temporary_files_hides_no_gpu(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users can fill /tmp."""
    (tmp_path / "run").mkdir(0o711)
    program(tmp_path / "slurmd", f"cat <<'END'\n{LEFT_OUT}END")
    monkeypatch.setattr(slurmd, "_program", lambda: str(tmp_path / "slurmd"))
    monkeypatch.setattr(slurmd, "LIMIT_S", 20.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "full"))
    monkeypatch.setattr(devices, "Mig", lambda lib: SimpleNamespace(gpus=list))
    job = SimpleNamespace(uuids=(), numbers=(0,), node="n1")
    lib = SimpleNamespace(by_minor=list)
    found = devices.gpus_of_job(job, environ, lib, tmp_path / "run")  # type: ignore[arg-type]
    assert found == ([1], True, [0])
    assert [path.name for path in (tmp_path / "run").iterdir()] == [devices.LAST_LIST]


def test_slurmd_is_asked_again_after_its_start_or_a_change_of_its_files(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, began = tmp_path / "asked", [1, 100]
    (tmp_path / "run").mkdir(0o711)
    program(tmp_path / "slurmd", f"echo >>{asked}\ncat <<'END'\n{LEFT_OUT}END")
    monkeypatch.setattr(slurmd, "_program", lambda: str(tmp_path / "slurmd"))
    monkeypatch.setattr(slurmd, "LIMIT_S", 20.0)
    monkeypatch.setattr(slurmd, "above", lambda: tuple(began) if began else None)
    monkeypatch.setattr(devices, "Mig", lambda lib: SimpleNamespace(gpus=list))
    job = SimpleNamespace(uuids=(), numbers=(0,), node="n1")
    lib = SimpleNamespace(by_minor=list)

    def times_asked() -> int:
        """By two jobs one after the other."""
        for _ in range(2):
            found = devices.gpus_of_job(job, environ, lib, tmp_path / "run")  # type: ignore[arg-type]
            assert found[0] == [1]
        count = len(asked.read_text())
        asked.unlink()
        return count if count < 3 else -1

    etc = tmp_path / "etc"
    assert times_asked() == 1
    asked.touch()
    assert times_asked() == 0
    (etc / "gres.conf").write_text("Name=gpu File=/dev/nvidia[1-2]\n")
    assert times_asked() == 1
    began[1] = 200  # slurmd was started again
    assert times_asked() == 1
    # What cannot be seen from here may have changed: each job asks.
    for elsewhere in (
        "include /shared/nodes.conf\n",
        "Include nodes.txt\n",
        "  INCLUDE d/n.conf\n",
    ):
        (etc / "nodes.conf").write_text("# nodes\n" + elsewhere)
        assert times_asked() == 2
    (etc / "nodes.conf").write_text("# include /shared/nodes.conf\nInclude more.conf\n")
    assert times_asked() == 1
    began.clear()
    assert times_asked() == 2


def test_the_slurmd_above_a_hook_is_the_topmost() -> None:
    """24.11 starts a hook by a slurmd of its own, which is another one each time."""
    code = (
        "import os, sys, time\n"
        "def named(name):\n"
        "    open('/proc/self/comm', 'w').write(name)\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        os.waitpid(child, 0)\n"
        "        os._exit(0)\n"
        "first = os.getpid()\n"
        "named('slurmd')\n"
        "named('slurmd')\n"
        "named('sh')\n"
        "from slurm_coloc.adapters import slurmd\n"
        "pid, ticks = slurmd.above()\n"
        "print(pid == first, ticks > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


# gres.conf leaves the first card out: "Name=gpu File=/dev/nvidia[1-2]" (22.05.8)
LEFT_OUT = """\
slurmd: Gres Name=gpu Type=(null) Count=1 Index=1 ID=7696487 File=/dev/nvidia1 (null)
slurmd: Gres Name=gpu Type=(null) Count=1 Index=2 ID=7696487 File=/dev/nvidia2 (null)
"""
# slurm.conf has type bb before aa
OTHER_ORDER = """\
slurmd: Gres Name=gpu Type=bb Count=1 Index=1 ID=7696487 File=/dev/nvidia1 (null)
slurmd: Gres Name=gpu Type=aa Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
"""
ALL = "slurmd: Gres Name=gpu Type=a100 Count=2 Index=0 ID=7696487 File=/dev/nvidia[0-1] (null)\n"


@pytest.mark.parametrize(
    "listed, numbers, minors, renumbered",
    [
        (LEFT_OUT, (0,), [1], True),
        (LEFT_OUT, (1, 0), [2, 1], True),
        (OTHER_ORDER, (0,), [1], True),
        (ALL, (0, 1), [0, 1], False),
        ("", (0,), [0], False),  # slurmd cannot be asked: mostly it is the device file's number
    ],
)
def test_without_mig_too_a_number_is_a_place_in_slurmds_list(
    listed: str,
    numbers: tuple[int, ...],
    minors: list[int],
    renumbered: bool,
    tmp_path: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "run").mkdir(0o711)
    program(tmp_path / "slurmd", f"cat <<'END'\n{listed}END")
    monkeypatch.setattr(slurmd, "_program", lambda: str(tmp_path / "slurmd"))
    monkeypatch.setattr(slurmd, "LIMIT_S", 20.0)
    monkeypatch.setattr(devices, "Mig", lambda lib: SimpleNamespace(gpus=list))
    job = SimpleNamespace(uuids=(), numbers=numbers, node="n1")
    lib = SimpleNamespace(by_minor=list)
    found = devices.gpus_of_job(job, environ, lib, tmp_path / "run")  # type: ignore[arg-type]
    assert found == (minors, renumbered, [0] * len(minors))
