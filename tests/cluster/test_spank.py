# SPDX-License-Identifier: Apache-2.0
"""The SPANK plugin on real daemons: refusals at submit, what travels, what a task sees."""

import os
import zlib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_coloc.lab.client import Done
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, other_text, own_slurm, shards

MARK = "cannot use --coloc="
ROOT = Path(__file__).parents[2]


@pytest.fixture
def me(lab: Lab) -> Desk:
    """The lab's first user with a summary of 300 million parameters."""
    return desk(lab, 300)


def submit(me: Desk, *args: str) -> Done:
    """sbatch as this user, whatever comes of it."""
    return me.lab.run(["sbatch", *args, "--wrap=true"], user=me.user, check=False)


def environment(text: str) -> dict[str, str]:
    """The output of env(1), one variable a line."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


# ---- refusals ------------------------------------------------------------------------------


def hostile_files(home: Path) -> Iterator[tuple[str, str]]:
    """Files no submission may get past, each with the end of the line that says why."""
    (home / "empty").touch()
    yield "empty", "it is empty"
    (home / "blank").write_text(" \n\t\r\n")
    yield "blank", "it is empty"
    (home / "folder").mkdir(exist_ok=True)
    yield "folder", "it is a directory"
    if not (home / "fifo").exists():
        os.mkfifo(home / "fifo", 0o666)
    yield "fifo", "it is a FIFO"
    (home / "utf16").write_text("Total params", encoding="utf-16")
    yield "utf16", "it is binary or UTF-16 (a NUL byte at offset 3)"
    (home / "control").write_bytes(bytes(range(1, 32)) * 10)
    yield "control", "it is binary (250 control characters in 310 bytes)"
    (home / "big").write_bytes(b"a" * ((4 << 20) + 1))
    yield "big", "it is larger than 4096 KiB"
    (home / "secret").write_text("Total params: 1\n")
    (home / "secret").chmod(0o600)  # root's
    yield "secret", "Permission denied"
    yield "missing", "No such file or directory"
    yield "/dev/zero", "it is a device"
    yield "none-%a.txt", "no file matches it with a number for %a"
    yield "m-%A.txt", "%A is not known before the job is submitted"


@pytest.mark.smoke
def test_a_bad_file_ends_sbatch_with_one_line(me: Desk) -> None:
    for name, why in hostile_files(me.lab.home(me.user)):
        done = submit(me, f"--coloc={name}", "--gpus=1")
        lines = done.stderr.splitlines()
        assert done.returncode == 1 and done.stdout == "", name
        assert len(lines) == 1, lines
        assert lines[0].startswith(f"sbatch: error: coloc: {MARK}{name} (give "), lines
        assert lines[0].endswith(f": {why}"), lines


def test_what_does_not_compress_into_the_limit_is_refused(me: Desk) -> None:
    noise = me.lab.home(me.user) / "noise"
    noise.write_text(os.urandom(100_000).hex())
    noise.chmod(0o644)
    done = submit(me, "--coloc=noise")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("and at most 48 KiB can be forwarded"), done.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--coloc-batch-size=0", "--coloc-batch-size=0 is not a whole number"),
        ("--coloc-seq-len=2147483648", "--coloc-seq-len=2147483648 is not a whole number"),
        ("--coloc-input=224,224", "--coloc-input=224,224 is no shape"),
        ("--coloc-optimizer=Adam", "--coloc-optimizer=Adam is not known: give one of sgd, "),
        ("--coloc-precision=fp16", "--coloc-precision=fp16 is not known: give one of fp32, "),
        ("--coloc-policy=both", "--coloc-policy=both is not known: give one of collocate, "),
    ],
)
def test_a_bad_value_ends_sbatch_with_one_line(me: Desk, option: str, words: str) -> None:
    done = submit(me, f"--coloc={me.summary}", option)
    assert done.returncode == 1
    assert done.stderr.startswith(f"sbatch: error: coloc: {words}"), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_options_without_a_summary(me: Desk) -> None:
    done = submit(me, "--coloc-batch-size=8")
    assert done.returncode == 1 and done.stderr.rstrip().endswith(
        "--coloc=FILE or --coloc-memory=SIZE"
    )
    assert submit(me, "--coloc-policy=exclusive", "--gpus=1").returncode == 0


def test_salloc_and_srun_refuse_alike(me: Desk) -> None:
    for program in ("salloc", "srun"):
        done = me.lab.run([program, "--coloc=missing", "true"], user=me.user, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(f"{program}: error: coloc: {MARK}missing"), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_an_option_in_place_of_the_file_is_refused(me: Desk) -> None:
    """getopt gives --coloc whatever stands behind it."""
    for program in ("sbatch", "salloc", "srun"):
        done = me.lab.run([program, "--coloc", "--mem=10", "true"], user=me.user, check=False)
        assert done.returncode not in (0, None)
        assert "and --mem=10 is an option" in done.stderr, done.stderr


def test_a_script_in_place_of_the_file_is_refused(me: Desk) -> None:
    """Before sbatch waits for a script on standard input, as it would on a terminal."""
    script = me.lab.home(me.user) / "train.sh"
    script.write_text("#!/bin/bash\ntrue\n")
    script.chmod(0o755)
    for words in (["sbatch", "--coloc", "train.sh"], ["sbatch", "-n1", "--coloc=./train.sh"]):
        done = me.lab.run(words, user=me.user, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("sbatch: error: coloc: --coloc needs the path of a model")
        assert done.stderr.rstrip().endswith("train.sh"), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    for program in ("salloc", "srun"):
        done = me.lab.run([program, "--coloc", "train.sh", "true"], user=me.user, check=False)
        assert done.returncode != 0 and "and train.sh is a script" in done.stderr, done.stderr
    # what stands behind a job's script is its own
    me.lab.sbatch("--hold", "train.sh", "--coloc", "train.sh", user=me.user)


def test_an_sbatch_line_counts_and_the_command_line_wins(me: Desk) -> None:
    script = "#!/bin/bash\n#SBATCH --coloc=missing\ntrue\n"
    done = me.lab.run(["sbatch"], user=me.user, check=False, input=script)
    assert done.returncode == 1 and "--coloc=missing" in done.stderr
    assert me.submit("--mem=100", script=script)


# ---- what travels --------------------------------------------------------------------------


def forwarded(me: Desk, *args: str) -> dict[str, str]:
    """What salloc was told to forward where it gets no ticket: it leaves it in its command's
    environment."""
    env = own_slurm(me.lab, me.user or "root", f"required {me.lab.dir}/spank/coloc.so ticket=off")
    argv = ["salloc", *args, "--gpus=1", "--mem=10", "env"]
    done = me.lab.run(argv, user=me.user, env=env)
    return {
        key.removeprefix("SLURM_SPANK_COLOC_"): value
        for key, value in environment(done.stdout).items()
        if key.startswith("SLURM_SPANK_COLOC_")
    }


@pytest.mark.smoke
def test_print_of_an_image_model_shares_where_its_input_is_told(lab: Lab) -> None:
    """By two users, with the ticket: the shape is part of what the ticket is for."""
    text = (ROOT / "tests/unit/estimate/data/resnet50_repr.txt").read_text()
    told = []
    for number, more in enumerate(([], ["--coloc-input=3x224x224"])):
        me = desk(lab, user=number)
        me.summary.write_text(text)
        job = me.submit("--coloc-batch-size=32", *more, wrap="true")
        told.append(me.explain(job)["decision"])
    assert [one["action"] for one in told] == ["exclusive", "collocate"], told
    assert "--coloc-input=3x224x224" in str(told[0])


def test_memory_that_the_user_names_needs_no_model(lab: Lab) -> None:
    """By two users: of sbatch with a script and of salloc; what is no size is refused at once."""
    me, other = desk(lab), desk(lab, user=1)
    job = lab.sbatch("--coloc-memory=10G", wrap="true", user=me.user)
    decision = me.explain(job)["decision"]
    assert (decision["action"], decision["shards"], decision["upper_mib"]) == (
        "collocate",
        10,
        10240,
    )
    done = lab.run(["salloc", "--gpus=1", "--coloc-memory=6000", "true"], user=other.user)
    assert "(as --coloc-memory says)" in done.stderr
    refused = submit(me, "--coloc-memory=lots")
    assert refused.returncode == 1
    assert "--coloc-memory=lots is no size" in refused.stderr


@pytest.mark.smoke
def test_the_summary_travels_whole(me: Desk) -> None:
    options = ["--coloc-batch-size=32", "--coloc-optimizer=adam", "--coloc-precision=amp"]
    seen = forwarded(me, f"--coloc={me.summary}", *options)
    assert zlib.decompress(b64decode(seen.pop("SUMMARY"), validate=True)) == (
        me.summary.read_bytes()
    )
    wanted = {"V": "1", "KIND": "salloc", "BATCH_SIZE": "32", "OPTIMIZER": "adam"}
    assert seen == wanted | {"PRECISION": "amp"}


@pytest.mark.smoke
def test_an_array_forwards_each_different_summary_once(me: Desk) -> None:
    home = me.lab.home(me.user)
    for index, text in {1: "one", 2: "second\n", 3: "one"}.items():
        (home / f"part-{index}.txt").write_text(text)
    seen = forwarded(me, "--coloc=part-%a.txt")
    assert zlib.decompress(b64decode(seen["SUMMARY"])) == b"second\n\f\none"


# ---- what a task sees ----------------------------------------------------------------------

STEPS = """#!/bin/bash
env > {out}.batch
try() {{ echo "$1: $("${{@:2}}" 2>&1 | tail -n 1)"; }}
try plain srun /bin/echo ok
try one srun -n1 /bin/echo ok
try shard srun --gres=shard:1 /bin/echo ok
try none srun --export=NONE /bin/echo ok
try without srun --gres=none /bin/echo ok
try elsewhere srun --coloc=missing /bin/echo ok
srun /usr/bin/env > {out}.step
"""
REQUESTS = {
    "gpus": ["--gpus=1"],
    "per-node": ["--gpus-per-node=1"],
    "gres": ["--gres=gpu:1"],
    "typed": ["--gres=gpu:a100:1"],
    "per-task": ["-n1", "--gpus-per-task=1"],
    "cpus-per-gpu": ["--gpus=1", "--cpus-per-gpu=2"],
    "mem-per-gpu": ["--gpus=1", "--mem-per-gpu=100"],
    "bind": ["--gpus=1", "--gpu-bind=closest"],
    "export-none": ["--gpus=1", "--export=NONE"],
    "all-none": ["--gpus=1", "--cpus-per-gpu=2", "--mem-per-gpu=100", "--export=NONE"],
}


@pytest.mark.smoke
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
def test_srun_works_inside_after_the_rewrite(me: Desk, request_: list[str]) -> None:
    out = me.lab.home(me.user) / "steps"
    script = STEPS.format(out=out).replace(
        "\n", f"\nexport SLURM_CONF={me.lab.dir}/slurm.conf\n", 1
    )
    mem = [] if any("mem" in word for word in request_) else ["--mem=100"]
    job = me.submit(*request_, *mem, script=script)
    count = shards(me.lab.job(job))
    assert count > 0, "the job was not rewritten"
    me.lab.wait(job)
    lines = me.lab.output(job).splitlines()
    # A busy slurmctld makes srun say that it tries again.
    said = dict(line.split(": ", 1) for line in lines if not line.startswith("srun: "))
    # Beside the job before, whose share is not known, the server's limit is the whole GPU.
    assert " for this job (MPS" in said.pop("coloc")
    assert said == dict.fromkeys(["plain", "one", "shard", "none", "without", "elsewhere"], "ok")
    for which in ("batch", "step"):
        seen = environment(Path(f"{out}.{which}").read_text())
        assert seen["COLOC_SHARDS"] == str(count), which
        assert seen["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={count * 1024}M", which
        assert seen["CUDA_VISIBLE_DEVICES"].startswith("GPU-"), which
        gone = "_OPTION_", "COLOC_SUMMARY", "COLOC_TICKET", "COLOC_TEXT"
        assert not [name for name in seen if any(part in name for part in gone)], which
        stale = {"SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_CPUS_PER_GPU"}
        assert not (stale | {"SLURM_MEM_PER_GPU", "SLURM_GPU_BIND"}) & set(seen), which
        assert "gpu" not in seen.get("SLURM_TRES_PER_TASK", ""), which


@pytest.mark.needs_slurm("23.11", "a whole GPU is all of its shards there")
def test_the_same_job_works_on_a_whole_gpu(me: Desk) -> None:
    """As after a recovery: the request is a GPU again, the environment that of the submission."""
    script = (
        f"#!/bin/bash\nexport SLURM_CONF={me.lab.dir}/slurm.conf\n"
        "srun --gres=gpu:1 /bin/echo explicit\nsrun /usr/bin/env\n"
    )
    job = me.submit("--gpus=1", "--cpus-per-gpu=2", "--mem-per-gpu=100", "--hold", script=script)
    assert shards(me.lab.job(job)) > 0
    me.lab.run(["scontrol", "update", f"JobId={job}", "TresPerNode=gres/gpu:1"])
    me.lab.run(["scontrol", "release", str(job)])
    me.lab.wait(job)
    text = me.lab.output(job)
    assert text.startswith("explicit\n")
    seen = environment(text)
    assert seen["SLURM_GPUS_ON_NODE"] == "1"
    assert not {"COLOC_SHARDS", "SLURM_GRES", "SLURM_SPANK_COLOC_SUMMARY"} & set(seen)
    assert not [name for name in ("SLURM_GPUS", "SLURM_CPUS_PER_GPU") if seen.get(name) == ""]


@pytest.mark.smoke
def test_srun_works_inside_a_salloc(me: Desk) -> None:
    args = [f"--coloc={me.summary}", "--gpus=1", "--cpus-per-gpu=2", "--mem=10"]
    done = me.lab.run(["salloc", *args, "srun", "/usr/bin/env"], user=me.user)
    seen = environment(done.stdout)
    assert int(seen["COLOC_SHARDS"]) > 0
    assert "SLURM_SPANK_COLOC_SUMMARY" not in seen and "SLURM_GPUS" not in seen


@pytest.mark.smoke
@pytest.mark.parametrize("gpus", [(), ("--gpus=1",), ("--gres=gpu:1",)], ids=str)
def test_srun_outside_of_a_job_runs(me: Desk, gpus: tuple[str, ...]) -> None:
    args = [f"--coloc={me.summary}", *gpus, "--mem=10"]
    done = me.lab.run(["srun", *args, "/bin/echo", "ok"], user=me.user)
    assert done.stdout.strip() == "ok"
    # Said once, of a share; a whole GPU has nothing to come back with.
    assert done.stderr.count("if GPU memory runs out") == (0 if gpus else 1), done.stderr


def test_a_job_from_inside_a_job_does_not_inherit(me: Desk) -> None:
    inner = me.lab.home(me.user) / "inner"
    script = (
        f"#!/bin/bash\nexport SLURM_CONF={me.lab.dir}/slurm.conf\n"
        f"cd /tmp && sbatch -W --mem=10 -o {inner} --wrap=/usr/bin/env\n"
    )
    me.lab.wait(me.submit("--mem=100", script=script))
    seen = environment(inner.read_text())
    assert seen["SLURM_JOB_ID"]
    assert not [name for name in seen if "SPANK" in name]
    assert "COLOC_SHARDS" not in seen and "SLURM_GRES" not in seen


# ---- jobs without --coloc ------------------------------------------------------------------

# What differs between any two jobs. 22.05 shows DefMemPerCPU (MinMemoryCPU) beside --mem-per-gpu in
# most jobs' records and not in all.
VOLATILE = (
    "MinMemoryCPU",
    *("JobId", "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime", "RunTime"),
    *("LastSchedEval", "Priority", "StdOut", "StdErr", "GRES", "CPU_IDs", "Scheduler"),
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_TASK_PID", "SLURM_JOB_START_TIME", "_", "PWD"),
    *("SLURM_JOB_END_TIME", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "SLURM_JOB_GPUS"),
    *("COLOC_LAB_JOB", "SLURM_TOPOLOGY_ADDR"),
    *("SLUID", "SLURM_JOB_SLUID"),  # 25.11 and later: a second name of the job
)


def steady(seen: dict[str, str]) -> dict[str, str]:
    """Fields and variables that two equal jobs share."""
    return {
        name: value
        for name, value in seen.items()
        if name not in VOLATILE and "PORT" not in name and "STEP" not in name
    }


def trace(me: Desk) -> tuple[dict[str, str], dict[str, str]]:
    """The record of a job without --coloc and the environment of its batch step and its srun."""
    args = ["--gpus=1", "--cpus-per-gpu=2", "--mem-per-gpu=100"]
    job = me.lab.sbatch(*args, wrap="/usr/bin/env; srun /usr/bin/env", user=me.user)
    record = me.lab.wait(job)
    return steady(record), steady(environment(me.lab.output(job)))


@pytest.mark.smoke
def test_a_job_without_coloc_is_the_same_with_and_without_the_plugin(me: Desk) -> None:
    plugstack = me.lab.dir / "plugstack.conf"
    with_plugin = trace(me)
    with other_text(plugstack):
        plugstack.write_text("# without\n")
        without = trace(me)
    assert with_plugin[0] == without[0]
    assert with_plugin[1] == without[1]


@pytest.mark.smoke
def test_an_unknown_argument_disables_only_ours(me: Desk) -> None:
    plugstack = me.lab.dir / "plugstack.conf"
    with other_text(plugstack) as line:
        plugstack.write_text(line.rstrip() + " max_kib=nonsense\n")
        other = submit(me, "--gpus=1")
        ours = submit(me, f"--coloc={me.summary}")
    assert other.returncode == 0 and other.stderr == ""
    assert ours.returncode == 1
    assert ours.stderr.rstrip().endswith('unknown plugstack.conf argument "max_kib=nonsense"')


def test_plugstack_arguments_count(me: Desk) -> None:
    plugstack = me.lab.dir / "plugstack.conf"
    me.summary.write_text(me.summary.read_text() + "\n" * 2048)
    with other_text(plugstack) as line:
        plugstack.write_text(line.rstrip() + " max_kib=1\n")
        refused = submit(me, f"--coloc={me.summary}")
    assert refused.stderr.rstrip().endswith("it is larger than 1 KiB")
