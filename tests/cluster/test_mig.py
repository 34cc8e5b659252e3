# SPDX-License-Identifier: Apache-2.0
"""MIG devices beside a whole, shared GPU on one node of a real Slurm.

The node has an A100-40GB with shards, and one cut into 1c.3g.20gb and 2c.3g.20gb (one memory),
2g.10gb and two 1g.5gb.
"""

import re
from collections.abc import Iterator

import pytest

from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.cluster.conftest import PATIENT_MS, PREFIX, lab_of
from tests.cluster.jobs import Desk, desk, until

SMALL, MIDDLE, LARGE, HUGE = 60, 150, 400, 900  # million parameters: about 3, 6, 12 and 23 GiB


@pytest.fixture(scope="module")
def mig_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Every job that fits a MIG device gets one."""
    settings: dict[str, dict[str, object]] = {"sharing": {"method": "mig"}}
    with lab_of(
        request,
        LabSpec(
            name=f"{PREFIX}m",
            machine="mig-mixed",
            users=2,
            settings=settings,
            deadline_ms=PATIENT_MS,
        ),
    ) as lab:
        yield lab


@pytest.fixture
def lab(mig_lab: Lab) -> Iterator[Lab]:
    """Emptied after each test; nothing may have drained."""
    yield mig_lab
    mig_lab.clear()
    assert "DRAIN" not in mig_lab.run(["scontrol", "show", "node", "-o"]).stdout.upper()


def devices(lab: Lab) -> dict[str, str]:
    """MIG devices of the node by UUID, and what each is."""
    node = {"COLOC_EMU_LEDGER": f"{lab.dir}/nodes/n1/ledger"}
    text = lab.run(["nvidia-smi", "-L"], env=node).stdout
    return {uuid: kind for kind, uuid in re.findall(r"MIG (\S+)\s+Device.*UUID: (MIG-\S+)\)", text)}


def trains_on(lab: Lab, job_id: int) -> str:
    """UUID of what the training of a job found as its GPU."""

    def seen() -> str:
        found = re.search(r"rank 0 on (\S+)", lab.output(job_id))
        return found[1] if found else ""

    try:
        return str(until(seen, 60, f"job {job_id} trains"))
    except AssertionError as err:
        err.add_note(f"{lab.job(job_id)}\n{lab.output(job_id)}")
        raise


def start(me: Desk, memory_mib: int, *args: str, work_s: int = 60) -> int:
    train = me.train(memory_mib=memory_mib, smact=0.1, work_s=work_s)
    return me.submit("--mem=50", *args, wrap=train)


def why(me: Desk, *jobs: int) -> str:
    """What was decided of these jobs, by what had been measured: for a test that fails."""
    told = []
    for job_id in jobs:
        decision = me.explain(job_id)["decision"]
        told.append(f"job {job_id}: {decision['why']}; {decision['learning']}")
    return "\n".join(told)


def test_each_job_gets_the_smallest_device_that_holds_it(lab: Lab) -> None:
    have = devices(lab)
    me, other = desk(lab, SMALL), desk(lab, MIDDLE, user=1)
    jobs = [start(me, 1500), start(me, 1500), start(other, 5000, "--gres=gpu:1")]
    where = [trains_on(lab, job_id) for job_id in jobs]
    found = [have.get(uuid, uuid) for uuid in where]
    assert found == ["1g.5gb", "1g.5gb", "1c.3g.20gb"], why(me, *jobs[:2])
    assert len(set(where)) == 3
    assert "coloc: MIG device, 4.8 GiB for this job" in lab.output(jobs[0])


def test_a_device_of_which_colocd_told_nothing_is_the_jobs(lab: Lab) -> None:
    """A Prolog without an answer: the job has what its device has, and not one shard of a GPU."""
    have = devices(lab)
    small, middle = desk(lab, SMALL), desk(lab, MIDDLE, user=1)
    jobs = [start(small, 1500, "--hold", work_s=3), start(middle, 5000, "--hold", work_s=3)]
    assert "1g.5gb" in lab.job(jobs[0])["TresPerNode"], why(small, jobs[0])
    lab.colocd.term()
    try:
        lab.run(["scontrol", "release", ",".join(map(str, jobs))])
        assert [have[trains_on(lab, one)] for one in jobs] == ["1g.5gb", "1c.3g.20gb"]
        assert "coloc: MIG device, 4.8 GiB for this job" in lab.output(jobs[0])
        assert " 6.5 GiB for this job" in lab.output(jobs[1]), "it shares the device's memory"
    finally:
        lab.colocd.start()
    for one in jobs:
        lab.wait(one, "COMPLETED", 60)
        assert lab.job(one)["Restarts"] == "0"


def test_two_compute_instances_share_the_memory_of_one_gpu_instance(lab: Lab) -> None:
    have = devices(lab)
    one, two = desk(lab, MIDDLE), desk(lab, LARGE, user=1)
    first, second = start(one, 5000), start(two, 11000)
    where = [trains_on(lab, first), trains_on(lab, second)]
    assert [have[uuid] for uuid in where] == ["1c.3g.20gb", "2c.3g.20gb"]
    # each is held to its part of the 19.6 GiB
    for job_id, gib in ((first, "6.5"), (second, "13.1")):
        until(lambda job_id=job_id: "MPS" in lab.output(job_id), 30, "it tells its fence")
        assert f"{gib} GiB for this job (MPS)" in lab.output(job_id)
        assert "MPS client" in lab.output(job_id)


def test_a_job_too_large_for_a_device_shares_or_gets_the_whole_gpu(lab: Lab) -> None:
    me, other = desk(lab, HUGE), desk(lab, SMALL, user=1)
    small = start(other, 1500)
    shared = start(me, 20000, "--gres=gpu:1", work_s=3)
    assert "shard" in lab.job(shared)["TresPerNode"]
    assert trains_on(lab, shared).startswith("GPU-")
    assert trains_on(lab, small).startswith("MIG-")
    lab.wait(shared, "COMPLETED", 60)
    alone = start(me, 20000, "--gres=gpu:1", "--coloc-policy=exclusive", work_s=3)
    assert trains_on(lab, alone) == trains_on(lab, shared)
    lab.wait(alone, "COMPLETED", 60)


def sound(lab: Lab) -> bool:
    """Whether Slurm keeps whole GPUs apart from shared ones, and changes types of gres."""
    return bool(lab.release) and lab.release >= (23, 11)


def test_an_out_of_memory_on_a_device_goes_on_with_more(lab: Lab) -> None:
    """It is requeued, and its second run finds more memory and ends well: a whole GPU; on 22.05,
    which would put shares on that too, the largest device with a memory of its own."""
    have = devices(lab)
    me = desk(lab, SMALL + 1)  # a model of its own: what runs out is remembered
    job_id = start(me, 9000, work_s=3)
    assert have[trains_on(lab, job_id)] == "1g.5gb"
    lab.wait(job_id, "COMPLETED", 120)
    where = re.findall(r"rank 0 on (\S+)", lab.output(job_id))
    assert len(where) == 2 and lab.job(job_id)["Restarts"] == "1"
    assert "out of memory" in lab.output(job_id)
    if sound(lab):
        assert lab.job(job_id)["TresPerNode"] == "gres/gpu:a100:1"
        assert where[1].startswith("GPU-")
    else:
        assert lab.job(job_id)["TresPerNode"] == "gres:gpu:2g.10gb:1"
        assert have[where[1]] == "2g.10gb"
    runs = until(
        lambda: [run for run in me.explain(job_id)["runs"] if run["outcome"]][1:], 60, "recorded"
    )
    assert [run["outcome"] for run in me.explain(job_id)["runs"]] == ["oom-gpu", "completed"], runs
    again = start(me, 9000, work_s=1)
    assert "1g.5gb" not in lab.job(again)["TresPerNode"]


def test_an_array_on_devices(lab: Lab) -> None:
    """Each task has a device of its own, as many at once as there are; of those that wait none
    goes where the first ran out of memory."""
    have = devices(lab)
    me = desk(lab, SMALL + 2)
    train = me.train(memory_mib=1500, smact=0.1, work_s=3)
    array = me.submit("--mem=50", "--array=1-3", "--output=a-%a.txt", wrap=train)
    logs = [lab.home(me.user) / f"a-{task}.txt" for task in (1, 2, 3)]
    until(lambda: all(log.exists() and "done" in log.read_text() for log in logs), 120, "trained")
    where = [re.findall(r"rank 0 on (\S+)", log.read_text())[-1] for log in logs]
    assert [have[uuid] for uuid in where] == ["1g.5gb"] * 3
    assert len(set(where)) == 2, "the third waited for one of the two"
    until(lambda: not lab.run(["squeue", "-h"]).stdout.strip(), 60, "the array has ended")
    assert me.explain(array)["decision"]["reason"] == "fits-slice"


def test_an_array_that_does_not_fit_its_devices(lab: Lab) -> None:
    """The waiting tasks are given what the first one's recovery gives, and do not run out too."""
    if not sound(lab):
        pytest.skip("22.05 changes a type of gres in two steps, between which a task could start")
    me = desk(lab, SMALL + 3)
    # A training that loads for some seconds, as all do: Slurm starts the second task within a
    # second of the first one's end, and the others have to wait for what is decided meanwhile.
    train = "sleep 5; " + me.train(memory_mib=9000, smact=0.1, work_s=2)
    array = me.submit("--mem=50", "--array=1-4%1", "--output=b-%a.txt", wrap=train)
    logs = [lab.home(me.user) / f"b-{task}.txt" for task in (1, 2, 3, 4)]
    until(lambda: all(log.exists() and "done" in log.read_text() for log in logs), 240, "trained")
    ran_out = [log.name for log in logs if "out of memory" in log.read_text()]
    assert len(ran_out) <= 2, ran_out  # one more may have begun meanwhile
    where = [re.findall(r"rank 0 on (\S+)", log.read_text())[-1] for log in logs]
    assert all(uuid.startswith("GPU-") for uuid in where)
    assert any(one["kind"] == "siblings" for one in me.explain(array)["story"])


def test_auto_leaves_larger_jobs_to_shards(lab: Lab) -> None:
    """The lab's colocd is asked with the default method."""
    path = lab.dir / "coloc.toml"
    text = path.read_text()
    path.write_text(text.replace('method = "mig"', 'method = "auto"'))
    lab.colocd.term()
    lab.colocd.start()
    try:
        small, middle = desk(lab, SMALL), desk(lab, MIDDLE, user=1)
        jobs = [start(small, 1500, work_s=2), start(middle, 5000, work_s=2)]
        assert "1g.5gb" in lab.job(jobs[0])["TresPerNode"], why(small, jobs[0])
        assert "shard" in lab.job(jobs[1])["TresPerNode"]
        for job_id in jobs:
            lab.wait(job_id, "COMPLETED", 60)
    finally:
        path.write_text(text)
        lab.colocd.term()
        lab.colocd.start()
