# SPDX-License-Identifier: Apache-2.0
"""History first: measured peaks shrink the next reservation; --coloc=auto knows a script again."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from slurm_coloc.lab.client import Done
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, shards, train, until
from tests.cluster.rules import over, records, told

Make = Callable[..., Lab]
# A training of the tests lasts a second; on real machines a minute counts as a run.
SHORT = {"estimate": {"history_min_run_s": 0.5}}
# Each test has a model of its own, also at its second try: colocd remembers the first one's runs.
MILLIONS = itertools.count(600)


@pytest.fixture(scope="module")
def short_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab whose short runs count; one for this file."""
    from slurm_coloc.lab.spec import LabSpec
    from tests.cluster.conftest import PATIENT_MS, PREFIX, lab_of

    with lab_of(request, LabSpec(name=f"{PREFIX}h", settings=SHORT, deadline_ms=PATIENT_MS)) as lab:
        yield lab


def submit(me: Desk, *args: str, wrap: str | None = None, check: bool = True) -> tuple[int, str]:
    """The job's id and what sbatch said."""
    command = ["sbatch", "--parsable", *args, *(["--wrap", wrap] if wrap else [])]
    done: Done = me.lab.run(command, user=me.user, check=check)
    return int(done.stdout.split(";")[0] or 0), done.stderr


def ended(me: Desk, job: int) -> dict[str, object]:
    """The last run of a job once colocd has closed it."""

    def closed() -> dict[str, object] | None:
        runs = me.explain(job)["runs"]
        return runs[-1] if runs and runs[-1]["outcome"] else None

    found = until(closed, 60, f"job {job} has ended")
    assert isinstance(found, dict)
    return found


def learned(me: Desk, job: int) -> str:
    """What earlier runs said of a job's size."""
    return str((me.explain(job)["decision"]["learning"] or {}).get("why", ""))


@pytest.mark.timeout(240)
def test_the_same_model_three_times(short_lab: Lab) -> None:
    """It reserves less from the second run on, and none runs out of memory."""
    millions = next(MILLIONS)
    me = desk(short_lab, millions)
    coloc = f"--coloc={me.summary}"
    work = train(short_lab, memory_mib=7000, smact=0.2, work_s=1)
    reserved, lines, why = [], [], []
    for _ in range(3):
        job, said = submit(me, coloc, "--gpus=1", wrap=work)
        lines.append(said)
        reserved.append(me.explain(job)["decision"]["shards"])
        why.append(learned(me, job))
        run = ended(me, job)
        assert (run["outcome"], run["peak_mib"]) == ("completed", 7000)
    assert reserved[0] > reserved[1] >= reserved[2] >= 7
    assert "earlier run" not in lines[0]
    assert all("(earlier runs: 6.8, at most" in line for line in lines[1:])
    assert why[1:] == [
        "1 earlier run of this model used 7000 MiB at most",
        "2 earlier runs of this model used 7000 MiB at most",
    ]
    told = short_lab.run(["coloc", "explain", str(job)], user=me.user).stdout
    assert "Earlier runs" in told

    # Another user learns nothing from it, nor does another optimizer.
    other = desk(short_lab, millions, user=1)
    assert "earlier" not in submit(other, f"--coloc={other.summary}", "--hold", wrap="true")[1]
    adam8 = submit(me, coloc, "--coloc-optimizer=sgd", "--hold", wrap="true")[1]
    assert "earlier" not in adam8
    # Another batch size does, by measured over estimated.
    more, _ = submit(me, coloc, "--coloc-batch-size=64", "--hold", wrap="true")
    assert "3 earlier runs of this model with batch size 32 used" in learned(me, more)


@pytest.mark.timeout(240)
def test_neighbours_on_a_gpu_are_measured_apart(short_lab: Lab) -> None:
    """The agent knows whose each process is."""
    me = desk(short_lab, next(MILLIONS))
    works = [train(short_lab, memory_mib=mib, smact=0.2, work_s=6) for mib in (6000, 5000)]
    jobs = [submit(me, f"--coloc={me.summary}", "--gpus=1", wrap=work)[0] for work in works]
    runs = [ended(me, job) for job in jobs]
    assert runs[0]["gpu_uuids"] == runs[1]["gpu_uuids"]
    assert [run["peak_mib"] for run in runs] == [6000, 5000]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_minutes_beside_quick_neighbours(short_lab: Lab) -> None:
    """Neighbours that no sample meets come and go all the time: the run is learned all the same."""
    me, other = desk(short_lab, next(MILLIONS)), desk(short_lab, next(MILLIONS))
    work = train(short_lab, memory_mib=6000, smact=0.2, work_s=75)
    job, _ = submit(me, f"--coloc={me.summary}", "--gpus=1", wrap=work)
    short_lab.wait(job, "RUNNING", 60)
    quick = train(short_lab, memory_mib=2500, smact=0.1, work_s=0.1)
    while me.explain(job)["runs"][-1]["outcome"] is None:
        beside, _ = submit(other, f"--coloc={other.summary}", "--gpus=1", wrap=quick)
        ended(other, beside)
    run = ended(me, job)
    assert (run["outcome"], run["peak_mib"]) == ("completed", 6000)
    assert run["used"][0]["complete"]
    job, _ = submit(me, f"--coloc={me.summary}", "--hold", wrap="true")
    assert learned(me, job) == "1 earlier run of this model used 6000 MiB at most"


@pytest.mark.timeout(240)
def test_an_array_s_waiting_tasks_get_less_once_three_were_measured(short_lab: Lab) -> None:
    """Three tasks that agree are measured one after another; the others ask for less then."""
    me = desk(short_lab, next(MILLIONS))
    work = train(short_lab, memory_mib=5000, smact=0.2, work_s=1)
    array, _ = submit(me, f"--coloc={me.summary}", "--gpus=1", "--array=1-6%1", wrap=work)
    first = me.explain(array)["decision"]["shards"]

    def smaller() -> bool:
        rest = records(short_lab, array)
        return bool(rest) and all(shards(job) == 6 for job in rest)

    until(smaller, 90, "the waiting tasks ask for less")
    assert first > 6
    until(lambda: over(short_lab, array), 60, "all have run")
    assert "waiting tasks of the array ask for" in told(me, array)


SCRIPT = """#!/bin/bash
#SBATCH --gpus=1 --job-name=NAME
# NAME
WORK
"""


def script(me: Desk, name: str, work: str) -> str:
    """A batch script of this user's."""
    path = me.lab.home(me.user) / f"{name}.sh"
    path.write_text(SCRIPT.replace("NAME", name).replace("WORK", work))
    path.chmod(0o755)
    return str(path)


@pytest.mark.timeout(300)
def test_auto(short_lab: Lab) -> None:
    """The first run has a whole GPU and is measured, the second shares; another script is new."""
    lab, me = short_lab, desk(short_lab, next(MILLIONS))
    (lab.home(me.user) / "auto").write_text("not a summary")  # never opened
    work = f"{train(lab, memory_mib=9000, smact=0.2, work_s=1)} # {me.summary.name}"
    first = script(me, "first", work)

    job, said = submit(me, "--coloc=auto", first)
    assert "whole GPU: no earlier run of this script was measured yet" in said
    job_shown = next(one for one in lab.jobs() if one["JobId"] == str(job))
    # As it was submitted: --gpus is of the job on newer releases.
    asked = job_shown.get("TresPerNode") or job_shown["TresPerJob"]
    assert "gpu" in asked or shards(job_shown) == 39
    assert ended(me, job)["peak_mib"] == 9000

    # Renamed, another comment and job name: the same script.
    job, said = submit(me, "--coloc=auto", script(me, "second", work))
    assert "shares a GPU: 10.0 of 39.0 GiB (earlier runs: at most 9." in said
    assert learned(me, job) == "1 earlier run of this script used 9000 MiB at most"
    run = ended(me, job)
    assert (run["outcome"], run["peak_mib"]) == ("completed", 9000)

    for other in (
        [first, "--batch", "2"],  # other arguments
        [script(me, "third", work + "\ntrue")],
    ):
        assert "whole GPU: " in submit(me, "--coloc=auto", "--hold", *other)[1]
    named = submit(me, "--coloc=./auto", "--hold", first, check=False)[1]
    assert "whole GPU: bad summary: " in named


@pytest.mark.timeout(300)
@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_auto_of_a_framework_that_would_take_the_card(short_lab: Lab, framework: str) -> None:
    """The measured run grows instead, so what it needs is learned; the user's own word stays."""
    lab, me = short_lab, desk(short_lab, next(MILLIONS))
    work = train(lab, memory_mib=7000, smact=0.2, work_s=1, framework=framework)
    work += f" # {me.summary.name}"
    job, said = submit(me, "--coloc=auto", script(me, f"grow-{framework}", work))
    assert "whole GPU: " in said
    assert ended(me, job)["peak_mib"] == 7000
    job, _ = submit(me, "--coloc=auto", "--hold", script(me, f"again-{framework}", work))
    assert learned(me, job) == "1 earlier run of this script used 7000 MiB at most"

    own = "XLA_PYTHON_CLIENT_PREALLOCATE=true TF_FORCE_GPU_ALLOW_GROWTH=false"
    path = script(me, f"own-{framework}", f"env {own} {work}")
    job, _ = submit(me, "--coloc=auto", path)
    assert ended(me, job)["peak_mib"] > 28000
    assert "nothing is learned from this run" in told(me, job)
    assert (
        "no earlier run of this script was measured"
        in submit(me, "--coloc=auto", "--hold", path)[1]
    )


@pytest.mark.timeout(120)
def test_auto_without_a_script(short_lab: Lab) -> None:
    """salloc has none: a whole GPU, and the line says why."""
    me = desk(short_lab, next(MILLIONS))
    done = short_lab.run(["salloc", "--coloc=auto", "--gpus=1", "true"], user=me.user)
    assert "whole GPU: --coloc=auto: no script" in done.stderr


@pytest.mark.timeout(180)
def test_auto_in_observe_mode_and_without_colocd(make_lab: Make) -> None:
    """Observing changes nothing; without colocd the job runs on a whole GPU."""
    lab = make_lab(mode="observe")
    me = desk(lab, 300)
    path = script(me, "plain", "true")
    job, said = submit(me, "--coloc=auto", "--hold", path)
    assert "observe mode, would be: whole GPU: " in said
    told = me.explain(job)  # found by its id; there is no run that colocd follows
    assert (told["source"], told["job_id"]) == ("observe", job) and "runs" not in told
    lab.colocd.kill()
    said = submit(me, "--coloc=auto", "--hold", path)[1]
    assert "the job runs on a whole GPU" in said
