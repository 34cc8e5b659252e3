# SPDX-License-Identifier: Apache-2.0
"""The lab itself: it comes up, it serves, and it leaves nothing behind."""

import importlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from slurm_coloc.errors import SlurmError, UsageFault
from slurm_coloc.lab import parts, procs, registry, runtime
from slurm_coloc.lab.client import fields
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import BASE, LabSpec
from tests.cluster.jobs import desk, train, until
from tests.harness.answers import as_documented

NAME = f"l{os.getpid()}"
#: what a lab takes from Slurm's own folder
PREFIX = {
    "sbin": ("slurmctld", "slurmd"),
    "bin": ("sbatch", "srun", "salloc", "scancel", "scontrol", "sinfo", "squeue", "sacctmgr"),
}


def coloc(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The program from this checkout, as root."""
    return subprocess.run(
        [sys.executable, "-m", "slurm_coloc", *args],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=runtime.CHECKOUT,
        env=env,
        check=False,
    )


def accounts() -> set[str]:
    return {entry.pw_name for entry in pwd.getpwall() if entry.pw_name.startswith(f"coloc-{NAME}")}


def devices() -> set[str]:
    """A folder of devices goes with the last of them, which another lab may have made."""
    return {str(path) for path in Path("/dev").glob("nvidia*") if not path.is_dir()}


def registered() -> set[str]:
    with registry.locked() as data:
        return {name for name in data["labs"] if name.startswith(NAME)}


@pytest.fixture
def clean() -> Iterator[None]:
    """Nothing of this test's labs stays, and nothing of others goes."""
    with registry.locked() as data:
        # those that another lab made may go with it in the meantime
        foreign = devices() - set(data["devices_made"])
    yield
    assert not accounts() and not registered()
    with registry.locked() as data:
        used = {path for lab in data["labs"].values() for path in lab["devices"]}
        assert set(data["devices_made"]) <= used
    assert foreign <= devices()
    assert not (BASE / NAME).exists()
    assert not procs.leftovers(BASE / NAME, frozenset())


@pytest.mark.smoke
def test_up_status_down_by_the_command_line(clean: None) -> None:
    done = coloc("lab", "up", "--name", NAME, "--nodes", "2", "--no-coloc", "--json")
    try:
        assert done.returncode == 0, done.stderr
        about = as_documented(["lab", "up"], json.loads(done.stdout))
        assert about["schema"] == 1 and about["nodes"] == ["n1", "n2"]
        assert about["gpus_per_node"] == 2 and about["shards_per_gpu"] == 39
        assert about["users"] == [f"coloc-{NAME}-{i}" for i in (1, 2, 3)]
        assert set(about["env"]) == {"SLURM_CONF", "COLOC_CONFIG", "PATH"}
        assert Path(about["slurm_conf"]).is_file()
        sourced = subprocess.run(
            ["bash", "-c", f". {about['dir']}/env.sh && sinfo -h -N -o %N/%T"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert sourced.stdout.split() == ["n1/idle", "n2/idle"]
        again = coloc("lab", "up", "--name", NAME, "--no-coloc")
        assert again.returncode == 2 and "lab down" in again.stderr
        status = coloc("lab", "status", "--name", NAME, "--json")
        assert status.returncode == 0, status.stderr
        found = as_documented(["lab", "status"], json.loads(status.stdout))
        assert found["alive"] and set(found["daemons"]) == {
            "munged",
            "slurmctld",
            "slurmd-n1",
            "slurmd-n2",
        }
    finally:
        down = coloc("lab", "down", "--name", NAME)
    assert down.returncode == 0, down.stderr
    assert coloc("lab", "down", "--name", NAME).returncode == 0  # no lab is no error
    assert coloc("lab", "status", "--name", NAME).returncode == 2


def test_jobs_of_users_and_their_environment(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(coloc=False, emulator=False, nodes=2)
    user = lab.users[1]
    job = lab.sbatch("--gres=gpu:1", "-wn2", wrap="id -un; srun printenv SLURM_CONF", user=user)
    lab.wait(job)
    assert lab.output(job).split() == [user, f"{lab.dir}/slurm.conf"]
    # slurmd 23.11 and later would die of this in a container without CAP_SYS_ADMIN
    bare = lab.sbatch(
        "--gres=gpu:1", "--export=NONE", wrap="/usr/bin/printenv USER COLOC_EMU_LEDGER", user=user
    )
    lab.wait(bare)
    assert lab.output(bare).split() == [user, f"{lab.dir}/nodes/n1/ledger"]
    assert lab.daemon("slurmd-n1").alive()


def test_two_labs_side_by_side(clean: None, make_lab: Callable[..., Lab]) -> None:
    one = make_lab(name=f"{NAME}a", coloc=False, emulator=False, users=1)
    two = make_lab(
        name=f"{NAME}b", coloc=False, emulator=False, users=1, machine="dgx-station-a100"
    )
    try:
        jobs = [lab.sbatch("--gres=shard:4", wrap="sleep 300") for lab in (one, two)]
        for lab, job in zip((one, two), jobs, strict=True):
            lab.wait(job, "RUNNING")
        one.down()
        assert not one.dir.exists()
        assert not any(proc.alive() for proc in one.daemons.values())
        assert all(proc.alive() for proc in two.daemons.values())
        assert two.job(jobs[1])["JobState"] == "RUNNING"
        assert {f"/dev/nvidia{i}" for i in range(4)} <= devices()
    finally:
        two.down()
    assert not two.dir.exists()


def test_down_ends_what_jobs_left_and_nothing_else(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(coloc=False, emulator=False)
    # a process that left its job (own session, no parent), the script itself, its slurmstepd
    script = (
        "#!/bin/bash\necho $$ $PPID\n"
        "setsid bash -c 'echo $$; exec sleep 7654' & disown; exec sleep 7655\n"
    )
    jobs = [lab.sbatch(script=script), lab.sbatch(script=script, user=lab.users[0])]

    def said_its_pids(job: int) -> bool:
        return len(lab.output(job).split()) == 3

    for job in jobs:
        assert procs.wait_until(partial(said_its_pids, job), 20)
    pids = [int(word) for job in jobs for word in lab.output(job).split()]
    strays = [found for pid in pids if (found := procs.proc("stray", pid))]
    assert len(strays) == 6
    # a shell that merely uses the lab
    guest = subprocess.Popen(["sleep", "7656"], env={**os.environ, **lab.env})
    try:
        lab.down()
        assert not [stray for stray in strays if stray.alive()]
        assert guest.poll() is None
    finally:
        guest.kill()
        guest.wait()


def test_a_failed_up_leaves_nothing(clean: None) -> None:
    extra = "NodeName=n9 CPUs=nonsense\n"
    with pytest.raises(SlurmError) as caught:
        Lab.up(LabSpec(name=NAME, coloc=False, emulator=False, slurm_conf_extra=extra))
    assert "slurmctld died" in caught.value.message and "nonsense" in caught.value.message


def test_killed_daemons_are_cleared_by_the_next_up(clean: None) -> None:
    lab = Lab.up(LabSpec(name=NAME, coloc=False, emulator=False, users=1))
    for name in lab.daemons:
        lab.daemon(name).kill()
    assert Lab.attach(NAME).status()["alive"] is False
    again = Lab.up(LabSpec(name=NAME, coloc=False, emulator=False, users=2))
    try:
        assert len(again.status()["nodes"]) == 1
    finally:
        again.down()
    again.down()  # twice is no error


def test_up_that_was_killed_is_taken_down(clean: None) -> None:
    argv = [sys.executable, "-m", "slurm_coloc", "lab", "up", "--name", NAME, "--no-coloc"]
    up = subprocess.Popen(argv, cwd=runtime.CHECKOUT, stderr=subprocess.PIPE)
    try:
        assert procs.wait_until(lambda: bool(accounts()), 30)
    finally:
        up.kill()
        up.wait()
    assert coloc("lab", "down", "--name", NAME).returncode == 0


def test_accounts_of_others_are_not_touched(clean: None) -> None:
    name = f"coloc-{NAME}-2"
    subprocess.run(["useradd", "-M", name], check=True)
    try:
        with pytest.raises(SlurmError, match="on this machine already"):
            Lab.up(LabSpec(name=NAME, coloc=False, emulator=False))
        assert accounts() == {name}
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


def test_dry_run_changes_nothing(clean: None) -> None:
    done = coloc("lab", "up", "--name", NAME, "--dry-run")
    assert done.returncode == 0 and f"/{NAME} and the accounts" in done.stdout
    assert coloc("lab", "status", "--name", NAME).returncode == 2


def test_restarted_daemons_keep_their_jobs(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(coloc=False, emulator=False)
    job = lab.sbatch("--gres=shard:4", wrap="echo began; sleep 4; echo done")
    until(lambda: "began" in lab.output(job), 60, "it runs: slurmctld says so before slurmd does")
    lab.restart("slurmd-n1")
    lab.restart("slurmctld")
    lab.wait(job, "COMPLETED")
    assert lab.output(job).split() == ["began", "done"]
    assert Lab.attach(lab.spec.name).daemons["slurmctld"] == lab.daemons["slurmctld"]


def test_host_out_of_memory_ends_a_job(make_lab: Callable[..., Lab]) -> None:
    """Without cgroups the state is FAILED by signal 9, never OUT_OF_MEMORY; the text says why."""
    lab = make_lab(coloc=False, emulator=False)
    eat = "head -c 300M /dev/zero | (cat; sleep 30) | tail -c 300M | wc -c"
    job = lab.sbatch("--mem=60", wrap=eat)
    ended = lab.wait(job, {"FAILED", "OUT_OF_MEMORY"})
    assert ended["ExitCode"] == "0:9"
    assert "exceeded memory limit" in lab.output(job)


def test_a_checkout_closed_to_others_still_serves_every_account(
    clean: None, tmp_path: Path
) -> None:
    """As below /root: SlurmUser and the users run a copy in the lab's folder."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(runtime.PACKAGE, closed / "slurm_coloc")
    shutil.copyfile(runtime.CHECKOUT / "pyproject.toml", closed / "pyproject.toml")
    env = {**os.environ, "PYTHONPATH": str(closed)}
    code = (
        "from slurm_coloc.lab.lab import Lab; from slurm_coloc.lab.spec import LabSpec\n"
        f"lab = Lab.up(LabSpec(name={NAME!r}, coloc=False, emulator=False, users=1))\n"
        "print(lab.notes[0])\n"
        "done = lab.run([f'{lab.dir}/bin/coloc', '--version'], user=lab.users[0], check=False)\n"
        "lab.down()\n"
        "print(done.stdout or done.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        env=env,
        cwd="/",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "copied" in done.stdout and "slurm-coloc 0." in done.stdout


def test_an_installed_package_brings_up_a_lab(clean: None, tmp_path: Path) -> None:
    """What a wheel holds is enough: plugin, Lua and hooks come from slurm_coloc/lab/sources."""
    pytest.importorskip("setuptools", reason="the list of files is part of a setuptools command")
    wheel = importlib.import_module("etc.setup.wheel")
    shutil.copytree(runtime.PACKAGE, tmp_path / "slurm_coloc")
    for name in wheel.sources():
        target = tmp_path / wheel.TARGET / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(runtime.CHECKOUT / name, target)
    code = (
        "from slurm_coloc.lab import parts\n"
        "from slurm_coloc.lab.lab import Lab; from slurm_coloc.lab.spec import LabSpec\n"
        f"lab = Lab.up(LabSpec(name={NAME!r}, users=1))\n"
        "try:\n"
        "    lab.wait(lab.sbatch('--coloc=auto', wrap='nvidia-smi -L', user=lab.users[0]))\n"
        "    print(parts.SOURCES, lab.output(1))\n"
        "finally:\n"
        "    lab.down()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd="/",
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / wheel.TARGET) in done.stdout and "GPU 0: NVIDIA A100" in done.stdout


def test_only_root_may(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(coloc=False, emulator=False)
    done = lab.run(
        [f"{lab.dir}/bin/coloc", "lab", "up", "--name", NAME], user=lab.users[0], check=False
    )
    assert done.returncode == 2 and "root" in done.stderr


def test_missing_slurm_names_the_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parts, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="apt-get install slurmctld slurmd munge") as caught:
        Lab.up(LabSpec(name=NAME))
    assert caught.value.exit_code == 4


@pytest.mark.timeout(180)
def test_another_slurm_for_every_part(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By --slurm PREFIX: here a folder with links to the system's, which shows who is asked for."""
    monkeypatch.delenv(parts.BUILT, raising=False)  # its own plugin, with the headers from there
    prefix = Path(tempfile.mkdtemp(prefix="coloc-slurm-", dir="/tmp"))
    prefix.chmod(0o755)
    try:
        for folder, names in PREFIX.items():
            (prefix / folder).mkdir()
            for name in names:
                found = shutil.which(name, path=parts.SYSTEM_PATH)
                assert found is not None, name
                (prefix / folder / name).symlink_to(found)
        (prefix / "include").mkdir()
        (prefix / "include" / "slurm").symlink_to("/usr/include/slurm")
        lab = make_lab(slurm=str(prefix))
        for name in ("slurmctld", "slurmd-n1"):
            assert lab.commands[name].argv[0].startswith(f"{prefix}/sbin/"), lab.commands
        for name in ("slurmctld", "colocd"):
            assert f"{prefix}/bin:" in lab.commands[name].env["PATH"], name
        assert lab.run(["sh", "-c", "command -v sbatch"]).stdout.strip() == f"{prefix}/bin/sbatch"
        made = (lab.dir / "log" / "make-spank.log").read_text()
        assert f"-I{prefix}/include" in made
        me = desk(lab, 300)
        job = me.submit("--gpus=1", wrap=train(lab, memory_mib=2100, smact=0.2, work_s=2))
        until(lambda: me.explain(job)["runs"][-1]["outcome"] == "completed", 60, "a shared job")
    finally:
        shutil.rmtree(prefix)


def test_a_prefix_without_slurm(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="no sbin/slurmctld there"):
        Lab.up(LabSpec(name=NAME, slurm=str(tmp_path)))


@pytest.mark.parametrize(
    "wish",
    [
        {"name": "Bad Name"},
        {"machine": "9xzx81"},
        {"mode": "sometimes"},
        {"nodes": 0},
        {"dir": Path("/tmp/" + "x" * 80)},
        {"dir": Path("relative")},
        {"shard_mib": 1},
    ],
)
def test_wishes_that_cannot_be_met(wish: dict[str, object]) -> None:
    with pytest.raises(UsageFault):
        Lab.up(LabSpec(**wish))  # type: ignore[arg-type]


@pytest.mark.smoke
def test_least_loaded_is_refused_where_slurm_has_it_not(
    slurm_version: tuple[int, int], clean: None
) -> None:
    if slurm_version >= (23, 2):
        pytest.skip("this Slurm has LL_SHARED_GRES")
    with pytest.raises(UsageFault, match="LL_SHARED_GRES"):
        Lab.up(LabSpec(name=NAME, least_loaded=True))


def test_fields_of_scontrol() -> None:
    line = "JobId=7 Comment=two words ReqTRES=cpu=1,mem=2M,gres/gpu:a100=1 Reason=None"
    found = fields(line)
    assert found["Comment"] == "two words"
    assert found["ReqTRES"] == "cpu=1,mem=2M,gres/gpu:a100=1" and found["Reason"] == "None"
