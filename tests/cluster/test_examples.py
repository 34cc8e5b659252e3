# SPDX-License-Identifier: Apache-2.0
"""Every way to submit of etc/examples, as a plain user on a real Slurm.

The scripts run as they stand. Where their framework cannot be imported by the lab's users the
training program is replaced through TRAIN, the one variable that they know for it; where the
interpreter of COLOC_TORCH_PYTHON can, the true program runs too.
"""

import importlib.util
import os
import pwd
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import known, train, until

EXAMPLES = Path(__file__).resolve().parents[2] / "etc" / "examples"
WAYS = {"plain": "torch", "torchrun": "torch", "hf-trainer": "transformers, accelerate",
        "lightning": "lightning"}  # fmt: skip
PURE = ("submitit", "cloudpickle", "typing_extensions", "hydra", "omegaconf", "antlr4", "yaml",
        "packaging", "hydra_plugins")  # fmt: skip


def folder(lab: Lab, name: str, user: str | None = None) -> Path:
    """A user's own copy of the examples; the folder of one way."""
    who = pwd.getpwnam(user or lab.users[0])
    copy = lab.home(who.pw_name) / "examples"
    if not copy.exists():
        shutil.copytree(EXAMPLES, copy)
        for path in (copy, *copy.rglob("*")):
            os.chown(path, who.pw_uid, who.pw_gid)
    return copy / name


def sbatch(lab: Lab, where: Path, *args: str, **env: str) -> int:
    """The line of the table: `sbatch train.sh` in the folder of the way."""
    argv = ["sbatch", "--parsable", *args, "train.sh"]
    done = lab.run(argv, user=lab.users[0], cwd=where, env=env)
    assert "shares" in done.stderr or "several GPUs" in done.stderr, done.stderr
    return int(done.stdout.split()[-1])


def ended(lab: Lab, where: Path, job_id: int) -> str:
    """Wait for the job; what it wrote. It must have completed in a share."""
    job = lab.wait(job_id, ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"), 240)
    out = (where / f"slurm-{job_id}.out").read_text()
    assert job["JobState"] == "COMPLETED", out
    assert shared(lab, job_id), explained(lab, job_id)
    return out


def shared(lab: Lab, job_id: int) -> bool:
    until(lambda: explained(lab, job_id), 30, "colocd has seen the job")
    return bool(explained(lab, job_id)["decision"]["action"] == "collocate")


def explained(lab: Lab, job_id: int) -> dict[str, dict[str, str]]:
    return known(lab, "explain", str(job_id), user=lab.users[0])


def stand_in(lab: Lab, **more: object) -> str:
    return train(lab, **{"memory_mib": 1500, "smact": 0.2, "work_s": 1, **more})


def true_python(lab: Lab, modules: str) -> str:
    """The interpreter for the true program; skips where there is none."""
    python = os.environ.get("COLOC_TORCH_PYTHON")
    if not python:
        pytest.skip("COLOC_TORCH_PYTHON names no interpreter with torch")
    words = ["/usr/bin/env", python, "-c", f"import {modules}"]
    if lab.run(words, user=lab.users[0], check=False, timeout=120).returncode:
        pytest.skip(f"{python} cannot import {modules} as another user")
    return python


def test_srun_python(lab: Lab) -> None:
    places = [folder(lab, name) for name in ("plain", "hf-trainer", "lightning")]
    jobs = [sbatch(lab, where, TRAIN=stand_in(lab)) for where in places]
    for where, job_id in zip(places, jobs, strict=True):
        assert "done work_s" in ended(lab, where, job_id)


@pytest.mark.parametrize("name", ["plain", "hf-trainer", "lightning"])
def test_srun_python_true(lab: Lab, name: str) -> None:
    where = folder(lab, name)
    python = true_python(lab, WAYS[name])
    out = ended(lab, where, sbatch(lab, where, TRAIN=f"{python} train.py"))
    assert "trained on" in out


@pytest.mark.needs_slurm("24.11", "no shards of several GPUs in one job")
def test_torchrun_on_two_shared_gpus(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(multi_gpu=True)
    where = folder(lab, "torchrun")
    job_id = sbatch(lab, where, TRAIN=stand_in(lab, processes=2))
    out = ended(lab, where, job_id)
    assert len(set(re.findall(r"rank \d on (GPU-\S+)", out))) == 2, out
    assert "2 GPUs" in explained(lab, job_id)["decision"]["why"]
    if not os.environ.get("COLOC_TORCH_PYTHON"):
        return
    python = true_python(lab, WAYS["torchrun"])
    program = f"{python} -m torch.distributed.run --standalone --nproc-per-node=2 train.py"
    out = ended(lab, where, sbatch(lab, where, TRAIN=program))
    assert "rank 1 of 2 trained" in out


def test_torchrun_where_several_gpus_cannot_be_shared(lab: Lab) -> None:
    where = folder(lab, "torchrun")
    job_id = sbatch(lab, where, TRAIN=stand_in(lab, processes=2))
    lab.wait(job_id, "COMPLETED", 120)
    assert not shared(lab, job_id)
    out = (where / f"slurm-{job_id}.out").read_text()
    assert len(set(re.findall(r"rank \d on (GPU-\S+)", out))) == 2, out


@pytest.fixture
def python_path(lab: Lab) -> str:
    """The launchers where the lab's users can read them."""
    site = lab.dir / "home" / "launchers"
    if not site.exists():
        site.mkdir(mode=0o755)
        for name in PURE:
            spec = importlib.util.find_spec(name)
            if spec is None:
                shutil.rmtree(site)
                pytest.skip(f"{name} is not installed (extra dev)")
            for place in spec.submodule_search_locations or [str(spec.origin)]:
                source = Path(place)
                if source.is_dir():
                    shutil.copytree(source, site / name, dirs_exist_ok=True)
                else:
                    shutil.copy(source, site)
        for info in (
            Path(str(importlib.util.find_spec("submitit").origin))
            .parents[1]
            .glob(  # type: ignore[union-attr]
                "*.dist-info"
            )
        ):
            if info.name.lower().startswith(("submitit", "hydra", "omegaconf")):
                shutil.copytree(info, site / info.name)
        lab.run(["chmod", "-R", "a+rX", str(site)])
    return str(site)


def test_submitit(lab: Lab, python_path: str) -> None:
    where = folder(lab, "submitit")
    env = {"PYTHONPATH": python_path, "TRAIN": stand_in(lab)}
    done = lab.run(
        ["/usr/bin/python3", "submit.py"], user=lab.users[0], cwd=where, env=env, timeout=180
    )
    found = re.search(r"job (\d+)\n", done.stdout)
    assert found, done.stdout + done.stderr
    assert re.search(r"lr 0.001 on GPU GPU-", done.stdout)
    assert shared(lab, int(found[1]))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Hydra 1.3 does not start on Python 3.14")
def test_hydra_sweep_is_an_array(lab: Lab, python_path: str) -> None:
    where = folder(lab, "hydra")
    env = {"PYTHONPATH": python_path, "TRAIN": stand_in(lab), "PWD": str(where)}
    earlier = {job["JobId"] for job in lab.jobs()}
    lab.run(
        ["/usr/bin/python3", "train.py", "--multirun", "lr=0.1,0.01,0.001"],
        user=lab.users[0], cwd=where, env=env, timeout=180,
    )  # fmt: skip
    mine = [job for job in lab.jobs() if job["JobId"] not in earlier]
    assert len({job["ArrayJobId"] for job in mine}) == 1
    assert sorted(job["ArrayTaskId"] for job in mine) == ["0", "1", "2"]
    assert all("shard" in job["TresPerNode"] for job in mine)
    said = "".join(path.read_text() for path in where.rglob("*_log.out"))
    assert set(re.findall(r"lr (\S+) on GPU GPU-", said)) == {"0.1", "0.01", "0.001"}


def test_a_container_runtime_s_environment(lab: Lab) -> None:
    where = folder(lab, "container")
    ledger = f"COLOC_EMU_LEDGER={lab.dir}/nodes/n1/ledger"
    seen = "env COLOC_SEEN=1 sh -c 'env; ls -A /tmp | wc -l'"
    script = (where / "train.sh").read_text()
    # --export=NONE keeps TRAIN out, too: here it stands in the script.
    train_line = f"TRAIN='env {ledger} {stand_in(lab)}'\nsrun ./contained {seen}\n"
    (where / "train.sh").write_text(re.sub(r"(?m)^srun ", train_line + "srun ", script, count=1))
    job_id = sbatch(lab, where, "--export=NONE", SECRET="of the login node")
    out = ended(lab, where, job_id)
    assert re.search(r"^CUDA_VISIBLE_DEVICES=GPU-[0-9a-f-]+$", out, re.MULTILINE)
    assert "SECRET" not in out and "SLURM_" not in out, "nothing but what is let through"
    assert "done work_s" in out
    told = explained(lab, job_id)
    assert told["runs"][0]["outcome"] == "completed"  # type: ignore[index]


def test_looking_into_a_running_job(lab: Lab) -> None:
    where = folder(lab, "attach")
    blocker = lab.sbatch("--gpus=1", "--mem=100", wrap="sleep 300", user=lab.users[1])
    lab.wait(blocker, "RUNNING")
    job_id = sbatch(lab, where, TRAIN=stand_in(lab, work_s=300))
    lab.wait(job_id, "RUNNING")
    log = where / f"slurm-{job_id}.out"
    gpu = until(
        lambda: log.exists() and re.search(r" on (GPU-\S+)", log.read_text()), 60, "it trains"
    )[1]
    look = f"echo sees $CUDA_VISIBLE_DEVICES shards $SLURM_SHARDS_ON_NODE; {stand_in(lab)}"
    into = ["srun", f"--jobid={job_id}", "--overlap", "--mem=0", "bash", "-c", look]
    done = lab.run(into, user=lab.users[0], timeout=60)
    assert f" on {gpu} " in done.stdout, "the GPU of the job, beside the training"
    index = re.search(r"sees \d shards ?(\d*)", done.stdout)
    share = lab.job(job_id)["TresPerNode"].rsplit(":", 1)[1]
    # A step from outside the job carries none of our plugin's marks: Slurm alone tells the share.
    assert index, done.stdout
    assert index[1] == share
    other = lab.run(into, user=lab.users[2], check=False, timeout=60)
    assert other.returncode, "nobody else gets in"
