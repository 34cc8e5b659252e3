# SPDX-License-Identifier: Apache-2.0
"""Jobs of several GPUs, one a task, that share each of them; checked on each device by
``scontrol show node -d``.

The lab has MULTIPLE_SHARING_GRES_PJ, under which Slurm splits an ordinary share over several GPUs:
the tests of one-GPU jobs here say that ours never are.
"""

import re
from collections.abc import Callable, Iterator

import pytest

from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.cluster.conftest import PATIENT_MS, PREFIX, lab_of
from tests.cluster.jobs import Desk, desk, until

pytestmark = pytest.mark.needs_slurm("24.11", "no shards of several GPUs in one job")

FOUR = "dgx-station-a100"
EACH = 'echo "task $SLURM_PROCID sees $CUDA_VISIBLE_DEVICES"'


@pytest.fixture(scope="module")
def module_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """One lab of four A100 for this file."""
    with lab_of(
        request, LabSpec(name=f"{PREFIX}m", machine=FOUR, multi_gpu=True, deadline_ms=PATIENT_MS)
    ) as lab:
        yield lab


@pytest.fixture
def four(module_lab: Lab) -> Iterator[Lab]:
    """The lab of four A100; its jobs are ended after each test."""
    yield module_lab
    module_lab.clear()


def use(lab: Lab) -> list[int]:
    """Shards taken on each device; -1 where a job has the device whole."""
    text = lab.run(["scontrol", "show", "node", "n1", "-d"]).stdout
    used = re.search(r"GresUsed=(\S+)", text)
    assert used
    shares = re.search(r"shard:[^(]*\(([\d/,-]+)\)", used[1])
    whole = re.search(r"gpu:[^(]*\(IDX:([\d,-]+)\)", used[1])
    assert shares
    taken = [part.split("/")[0] for part in shares[1].split(",")]
    found = [0 if part == "-" else int(part) for part in taken]
    for part in whole[1].split(",") if whole else ():
        first, _, last = part.partition("-")
        for index in range(int(first), int(last or first) + 1):
            assert found[index] == 0, f"GPU {index} is whole and shared: {text}"
            found[index] = -1
    return found


def share_of(lab: Lab, job_id: int) -> int:
    """Shards of each GPU that a job asks for per task."""
    found = re.search(r"shard:(?:\w+:)?(\d+)", lab.job(job_id).get("TresPerTask", ""))
    return int(found[1]) if found else 0


def said(me: Desk, *args: str) -> str:
    """What sbatch said."""
    argv = ["sbatch", f"--coloc={me.summary}", "--mem=200", *args, "--wrap=true"]
    return me.lab.run(argv, user=me.user).stderr


def test_two_tasks_on_two_shared_gpus(four: Lab) -> None:
    me = desk(four, 300)
    script = (
        "#!/bin/bash\n"
        'echo "batch sees $CUDA_VISIBLE_DEVICES shards $COLOC_SHARDS"\n'
        f"srun bash -c '{EACH}'\n"
        f"srun --gpus-per-task=1 bash -c '{EACH.replace('task', 'again')}'\n"
        f"srun -n1 bash -c '{EACH.replace('task', 'alone')}'\n"
        f"srun {me.train(memory_mib=4000, smact=0.2, work_s=60)}\n"
    )
    job_id = me.submit("-n2", "--gpus-per-task=1", "--mem=200", script=script)
    job = four.wait(job_id, "RUNNING")
    each = share_of(four, job_id)
    assert 0 < each < 39
    assert job["GresOneTaskPerSharing"] == "Yes"
    assert use(four) == [each, each, 0, 0]
    until(lambda: "step " in four.output(job_id), 60, "both trainings hold their memory")
    out = four.output(job_id)
    assert f"batch sees 0,1 shards {each}" in out
    for name in ("task", "again"):
        seen = set(re.findall(rf"{name} (\d) sees (\d)\n", out))
        assert seen == {("0", "0"), ("1", "1")}, out
    assert re.search(r"alone 0 sees \d\n", out), out
    told = me.explain(job_id)
    assert "on each of 2 GPUs" in told["decision"]["why"]
    assert told["live"]["placement"] == "n1 GPU 0,1"


def test_single_jobs_fill_the_rest_and_are_never_split(four: Lab) -> None:
    me = desk(four, 340)  # 10 or 11 shards: four GPUs' rests are enough for one more
    two = me.submit("-n2", "--gpus-per-task=1", "--mem=100", wrap="sleep 300")
    four.wait(two, "RUNNING")
    each = share_of(four, two)
    first = me.submit("--gpus=1", "--mem=100", wrap="sleep 300")
    four.wait(first, "RUNNING")
    alone = share_of(four, first)
    assert alone < each  # one process has no buckets of DDP
    free = [39 - each, 39 - each, 39, 39]
    fit = sum(gpu // alone for gpu in free)
    singles = [me.submit("--gpus=1", "--mem=100", wrap="sleep 300") for _ in range(fit - 1)]
    for job_id in singles:
        four.wait(job_id, "RUNNING")
        assert share_of(four, job_id) == alone
    full = sorted(39 - gpu % alone for gpu in free)
    assert sorted(use(four)) == full
    # The rest of all GPUs is enough for a share in sum, and too little on any one.
    assert sum(gpu % alone for gpu in free) >= alone
    late = me.submit("--gpus=1", "--mem=100", wrap="sleep 300")
    more = me.submit("-n2", "--gpus-per-task=1", "--mem=100", wrap="sleep 300")
    until(lambda: four.job(late)["Reason"] in ("Resources", "Priority"), 20, "the next waits")
    assert four.job(more)["JobState"] == "PENDING"
    bound = until(lambda: me.explain(late)["binding"], 20, "what binds it")
    assert f"{alone} shards on one GPU needed" in bound["text"]
    assert sorted(use(four)) == full
    four.run(["scancel", str(two)])
    four.wait(late, "RUNNING")


def test_whole_gpus_and_shares_keep_apart(four: Lab) -> None:
    me = desk(four, 300)
    whole = four.sbatch("--gpus=1", "--mem=100", wrap="sleep 300", user=four.users[1])
    four.wait(whole, "RUNNING")
    three = me.submit("-n3", "--tres-per-task=gres/gpu:1", "--mem=100", wrap="sleep 300")
    four.wait(three, "RUNNING")
    each = share_of(four, three)
    assert use(four) == [-1, each, each, each]
    wide = me.submit("-n4", "--gpus-per-task=a100:1", "--mem=100", wrap="sleep 300")
    until(lambda: four.job(wide)["Reason"] == "Resources", 20, "four GPUs are not to be had")
    bound = until(lambda: me.explain(wide)["binding"], 20, "what binds it")
    assert f"{each} shards on each of 4 GPUs needed, 0 free" in bound["text"]
    four.run(["scancel", str(whole)])
    four.wait(wide, "RUNNING")
    assert use(four) == [each, 2 * each, 2 * each, 2 * each]


@pytest.mark.parametrize("tasks", [2, 1])
def test_after_an_oom_it_comes_back_on_its_whole_gpus(four: Lab, tasks: int) -> None:
    me = desk(four, 200, user=tasks)  # the history of a model is that of one user
    script = (
        f"#!/bin/bash\necho \"run $SLURM_RESTART_COUNT\"\nsrun bash -c '{EACH}'\n"
        f"srun {me.train(memory_mib=38000, smact=0.3, work_s=1)}\n"
    )
    neighbour = me.submit(
        "-n2", "--gpus-per-task=1", "--mem=100",
        wrap=f"srun {me.train(memory_mib=4000, smact=0.2, work_s=600)}",
    )  # fmt: skip
    four.wait(neighbour, "RUNNING")
    until(lambda: four.output(neighbour).count("step ") >= 2, 40, "the neighbour trains")
    args = (f"-n{tasks}", "--gpus-per-task=1", "--cpus-per-gpu=2", "--mem=200")
    liar = me.submit(*args, script=script)
    assert share_of(four, liar)
    # Two tasks take turns without a fence: they run out at the end of the card, and their log tells
    # that no share would do. The one task is held to its share by MPS, and has a try with more.
    tries = 2 if tasks == 1 else 1
    until(lambda: int(four.job(liar)["Restarts"]) == tries, 90, "it is put back")
    until(lambda: f"run {tries}" in four.output(liar), 60, "the job runs again")
    job = four.wait(liar, ("COMPLETED", "FAILED"), 90)
    assert job["JobState"] == "COMPLETED", four.output(liar)
    assert re.search(r"gres/gpu[:=]1", job["TresPerTask"]), job
    assert "shard" not in job["TresPerTask"] + job.get("TresPerNode", "")
    assert job["NumCPUs"] == str(2 * tasks)
    out = four.output(liar).split(f"run {tries}", 1)[1]
    seen = re.findall(r"task (\d) sees (\d)\n", out)
    assert len(seen) == tasks
    assert len({device for _, device in seen}) == tasks
    until(lambda: me.explain(liar)["runs"][-1]["outcome"], 30, "colocd has recorded its end")
    found = [run["outcome"] for run in me.explain(liar)["runs"]]
    assert found == [*["oom-gpu"] * tries, "completed"]
    assert four.job(neighbour)["JobState"] == "RUNNING"


def test_what_goes_to_whole_gpus_says_why(four: Lab) -> None:
    me = desk(four, 300)
    assert "only with one for each task" in said(me, "-n2", "--gpus=2")
    assert "only with one for each task" in said(me, "--gres=gpu:2")
    assert "only with one for each task" in said(me, "-n1", "--gpus-per-task=2")
    assert "no GPU that this job may get" in said(me, "-n5", "--gpus-per-task=1", "--hold", "-N1-2")
    assert "options per GPU" in said(me, "-n2", "--gpus-per-task=1", "--gpu-bind=none")
    assert "may split a share" in said(me, "-n2", "--gpus=1")
    assert "shares 2 GPUs" in said(me, "-N1", "--ntasks-per-node=2", "--gpus-per-task=1")
    assert "shares 2 GPUs" in said(me, "--gpus=2", "--gpus-per-task=1")


def test_the_owner_may_go_back_to_whole_gpus(four: Lab) -> None:
    me = desk(four, 300)
    job_id = me.submit("--hold", "-n2", "--gpus-per-task=1", "--mem=100", wrap="sleep 300")

    def update(change: str) -> bool:
        done = four.run(
            ["scontrol", "update", f"JobId={job_id}", change], user=me.user, check=False
        )
        return done.returncode == 0

    assert not update("TresPerTask=gres/shard:1")
    assert not update("TresPerNode=gres/gpu:1")
    assert not update("TresPerTask=gres/gpu:4")
    assert update("TresPerTask=gres/gpu:1")
    four.run(["scontrol", "release", str(job_id)], user=me.user)
    four.wait(job_id, "RUNNING")
    assert use(four) == [-1, -1, 0, 0]


def test_a_site_without_the_parameter_runs_them_on_whole_gpus(lab: Lab) -> None:
    me = desk(lab, 300)
    assert "MULTIPLE_SHARING_GRES_PJ" in said(me, "-n2", "--gpus-per-task=1")
    job_id = me.submit("-n2", "--gpus-per-task=1", "--mem=100", wrap=f"srun bash -c '{EACH}'")
    lab.wait(job_id, "COMPLETED")
    # The whole GPUs, too, are one a task: the step keeps the request that sbatch handed on.
    assert len(set(re.findall(r"sees (\d)\n", lab.output(job_id)))) == 2, lab.output(job_id)
    until(lambda: me.explain(job_id)["decision"]["reason"] == "multi-gpu-site", 20, "the reason")


def test_least_loaded(make_lab: Callable[..., Lab]) -> None:
    four = make_lab(machine=FOUR, multi_gpu=True, least_loaded=True)
    me = desk(four, 300)
    one = me.submit("--gpus=1", "--mem=100", wrap="sleep 300")
    four.wait(one, "RUNNING")
    alone = share_of(four, one)
    three = me.submit("-n3", "--gpus-per-task=1", "--mem=100", wrap="sleep 300")
    four.wait(three, "RUNNING")
    each = share_of(four, three)
    assert sorted(use(four)) == [alone, each, each, each]


def test_each_task_has_the_mps_of_its_gpu(make_lab: Callable[..., Lab]) -> None:
    settings = {"sharing": {"several_gpus": "tasks"}}
    four = make_lab(machine=FOUR, multi_gpu=True, settings=settings)
    me = desk(four, 300)
    train = me.train(memory_mib=4000, smact=0.2, work_s=30)
    job_id = me.submit("-n2", "--gpus-per-task=1", "--mem=200", wrap=f"srun {train}")
    clients = re.compile(r"rank 0 on (GPU-\S+) .*fence (\d+) MiB, MPS client")
    until(lambda: four.output(job_id).count("rank 0 on ") == 2, 60, "both have begun")
    assert len(clients.findall(four.output(job_id))) == 2, four.output(job_id)
    found = clients.findall(four.output(job_id))
    assert len({uuid for uuid, _ in found}) == 2
    assert {int(mib) for _, mib in found} == {share_of(four, job_id) * 1024}
    assert "a task with one of them is a client of its MPS" in four.output(job_id)
    four.run(["scancel", str(job_id)])
