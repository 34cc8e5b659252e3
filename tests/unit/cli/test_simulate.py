# SPDX-License-Identifier: Apache-2.0
"""coloc simulate as it is called: its answers, its options, its errors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.cli.app import run
from tests.harness.answers import as_documented
from tests.unit.sim.month import lines

TRACE = """\
job,name,submit_s,gpus,run_s,memory_mib,smact,user,half_mib
1,a,0,1,1000,10000,0.4,ada,5000
2,b,10,1,1000,10000,0.4,ada,5000
3,c,20,1,1000,30000,0.4,bob,15000
4,d,30,2,500,10000,0.4,bob,
"""
ROOT = Path(__file__).resolve().parents[3]
CUT = "1xa100-40gb:3g.20gb+3g.20gb,2xa100-40gb"
KEYS = {
    "schema", "makespan_s", "mean_wait_s", "mean_exec_s", "mean_jct_s", "mean_slowdown",
    "p95_slowdown", "oom", "timeouts", "energy_mj", "bound_s",
}  # fmt: skip


class Coloc:
    """Calls the command line in this process."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        monkeypatch.delenv("COLOC_CONFIG", raising=False)

    def __call__(self, *arguments: str, source: str = "--trace", file: str = TRACE) -> str:
        code, out, err = self.tried(*arguments, source=source, file=file)
        assert code == 0, err
        return out

    def tried(
        self, *arguments: str, source: str = "--trace", file: str = TRACE
    ) -> tuple[int, str, str]:
        path = self.folder / "jobs.txt"
        path.write_text(file)
        words = ["coloc", "simulate", source, str(path), *arguments]
        self._monkeypatch.setattr("sys.argv", words)
        code = run()
        out, err = self._capsys.readouterr()
        return code, out, err

    def json(self, *arguments: str, source: str = "--trace", file: str = TRACE) -> dict[str, Any]:
        answer = json.loads(self(*arguments, "--json", source=source, file=file))
        return as_documented(["simulate"], answer)

    def refused(self, *arguments: str, source: str = "--trace", file: str = TRACE) -> str:
        code, out, err = self.tried(*arguments, source=source, file=file)
        assert code == 2 and out == ""
        return err


@pytest.fixture
def coloc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Coloc:
    return Coloc(tmp_path, monkeypatch, capsys)


def test_the_contract_in_json(coloc: Coloc) -> None:
    answer = coloc.json("--policy", "magm", "--gpus", "2xa100-40gb")
    assert set(answer) >= KEYS and answer["schema"] == 1 and answer["policy"] == "magm"
    assert answer["gpus"] == "2xa100-40gb" and answer["oom"] == 0
    assert answer["makespan_s"] >= answer["bound_s"] > 0


def test_figures_that_can_be_checked_by_hand(coloc: Coloc) -> None:
    """Three jobs of 1000 s on one GPU, then one of two GPUs that has to wait for both."""
    answer = coloc.json("--policy", "exclusive", "--gpus", "2xa100-40gb", "--queue", "fifo")
    assert answer["makespan_s"] == 2500 and answer["mean_slowdown"] == 1
    assert answer["mean_wait_s"] == pytest.approx((0 + 0 + 980 + 1970) / 4)
    assert answer["bound_s"] == 1020


def test_the_same_seed_gives_the_same_answer(coloc: Coloc) -> None:
    asked = ("--policy", "lug", "--runs", "3", "--seed", "7", "--estimator", "error:0.2")
    first, second = coloc.json(*asked), coloc.json(*asked)
    assert first == second and first["runs"] == 3 and first["spread"]["makespan_s"] > 0
    assert coloc.json(*asked[:-4], "--seed", "8") != first


def test_a_column_as_estimator_and_recovery(coloc: Coloc) -> None:
    """Half of what it takes is reserved: three jobs of one GPU meet, and one runs out."""
    asked = ("--policy", "mug", "--gpus", "1xa100-40gb", "--estimator", "half")
    one_gpu = "\n".join(TRACE.splitlines()[:4]) + "\n"
    assert coloc.json(*asked, file=one_gpu)["oom"] >= 1
    assert coloc.json(*asked, "--fence", file=one_gpu)["oom"] == 3
    assert coloc.json(*asked[:4], file=one_gpu)["oom"] == 0


def test_what_best_takes_for_granted_is_said(coloc: Coloc) -> None:
    said = coloc.json("--policy", "best", "--gpus", "2xa100-40gb")["assumed"]
    assert len(said) == 1 and "75%" in said[0] and "--logs" in said[0]
    assert "75%" in coloc("--policy", "best", "--gpus", "2xa100-40gb")
    assert coloc.json("--policy", "best", "--gpus", "2xa100-40gb", "--logs", "0")["assumed"] == []
    assert coloc.json("--policy", "magm", "--gpus", "2xa100-40gb")["assumed"] == []


def test_steered_placement_as_the_site_has_it(coloc: Coloc) -> None:
    on = ("--gpus", "2xa100-40gb")
    for name in ("steered", "planned"):
        answer = coloc.json("--policy", name, *on)
        assert answer["policy"] == name and f"{name}: colocd pins by auto" in answer["assumed"][0]
    table = coloc("--compare", "first-fit,steered,planned", *on)
    assert "steered " in table and "planned " in table
    assert "best-fit, clairvoyant, exclusive" in coloc.refused("--policy", "stered", *on)


def test_conditions_reach_the_policy(coloc: Coloc) -> None:
    """Whatever forbids sharing gives exclusive's makespan, however it is said. The second job comes
    when telemetry has seen the first one."""
    on = ("--gpus", "1xa100-40gb")
    jobs = "\n".join(TRACE.splitlines()[:3]).replace("b,10", "b,200") + "\n"
    alone = coloc.json("--policy", "exclusive", *on, file=jobs)["makespan_s"]
    assert coloc.json("--policy", "magm", *on, file=jobs)["makespan_s"] < alone
    for forbids in (
        ("--budget", "0.7"),
        ("--jobs-per-gpu", "1"),
        ("--pool", "0"),
        ("--max-slowdown", "1.01"),
        ("--free-mib", "35000"),
        ("--smact-at-most", "0.1"),
        ("--margin-mib", "30000"),
        ("--idle-first", "--jobs-per-gpu", "1"),
    ):
        found = coloc.json("--policy", "magm", *on, *forbids, file=jobs)["makespan_s"]
        assert found == pytest.approx(alone, abs=100), forbids


ORDER = """\
job,name,submit_s,gpus,run_s,memory_mib,smact,user,limit_s
1,a,0,1,50000,39000,0.9,ada,50000
2,b,10,2,1000,39000,0.9,ada,1000
3,c,20,1,600,39000,0.9,ada,600
4,d,30,2,600,39000,0.9,bob,600
"""


@pytest.mark.parametrize(
    ("queue", "waits"),
    [
        ("fifo", (0, 49990, 50980, 51570)),
        ("backfill", (0, 49990, 0, 50970)),  # job 3 ends before both GPUs are free
        ("priority", (0, 50590, 0, 49970)),  # ada has used much: bob's job goes first
    ],
)
def test_queues(coloc: Coloc, queue: str, waits: tuple[float, ...]) -> None:
    asked = ("--policy", "exclusive", "--queue", queue, "--gpus", "2xa100-40gb")
    assert coloc.json(*asked, file=ORDER)["mean_wait_s"] == pytest.approx(sum(waits) / 4)


def test_users_may_be_kept_apart(coloc: Coloc) -> None:
    jobs = TRACE.replace("10,1,1000,10000,0.4,ada", "10,1,1000,10000,0.4,bob")
    jobs = "\n".join(jobs.splitlines()[:3]) + "\n"
    on = ("--gpus", "1xa100-40gb", "--policy", "magm")
    assert coloc.json(*on, "--share-with", "user", file=jobs)["makespan_s"] == 2000
    assert coloc.json(*on, file=jobs)["makespan_s"] < 2000


def test_comparison_in_json(coloc: Coloc) -> None:
    answer = coloc.json("--compare", "magm,mug", "--gpus", "2xa100-40gb")
    assert answer["policy"] == "magm" and list(answer["policies"]) == ["exclusive", "magm", "mug"]
    magm, whole = answer["policies"]["magm"], answer["policies"]["exclusive"]
    assert magm["makespan_s"] == answer["makespan_s"]
    saved = 1 - magm["makespan_s"] / whole["makespan_s"]
    assert magm["saving_ratio"] == pytest.approx(saved) and 0 < magm["of_bound_ratio"] <= 1
    repeated = coloc.json("--policy", "magm", "--policy", "mug", "--gpus", "2xa100-40gb")
    assert repeated == answer


def test_table_for_people(coloc: Coloc) -> None:
    out = coloc("--policy", "magm", "--gpus", "2xa100-40gb", "--runs", "2")
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert {"exclusive", "magm", "bound"} <= set(rows)
    assert "4 jobs on 2xa100-40gb, means of 2 runs" in out and "less time than exclusive" in out


@pytest.mark.parametrize("method", ["mps", "streams", "mig"])
def test_methods(coloc: Coloc, method: str) -> None:
    answer = coloc.json("--policy", "first-fit", "--method", method)
    assert answer["method"] == method and answer["oom"] == 0
    if method == "mig":
        assert answer["gpus"] == "4xa100-40gb"
        cut = coloc.json("--policy", "first-fit", "--method", method, "--gpus", CUT)
        assert cut["gpus"] == CUT and cut["mean_slowdown"] > 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "nobody"), "unknown policy 'nobody': one of "),
        (("--policy", "magm", "--gpus", "4xabacus"), "unknown GPU 'abacus'"),
        (("--policy", "magm", "--estimator", "crystal"), "no column crystal_mib"),
        (("--policy", "magm", "--method", "magic"), "--method magic: one of mps, streams, mig"),
        (("--policy", "magm", "--interference", "none"), "--interference none: one of reference"),
        (("--policy", "magm", "--share-with", "all"), "--share-with all: one of user"),
        (("--policy", "magm", "--queue", "lifo"), "--queue lifo: one of fifo"),
        (("--policy", "magm", "--power", "nuclear"), "power nuclear: one of"),
        (("--policy", "magm", "--runs", "0"), "--runs"),
        (("--policy", "magm", "--gpus", "1xa100-40gb"), "fit nowhere"),
        (("--policy", "magm", "--sacct", "x"), "give one of --trace"),
        (("--policy", "magm", "--partition", "a"), "--partition and --history need --sacct"),
        (("--policy", "magm", "--markdown", "x.md"), "--markdown needs --sacct"),
        (("--policy", "magm", "--bogus"), "No such option"),
    ],
)
def test_usage_is_refused(coloc: Coloc, arguments: tuple[str, ...], words: str) -> None:
    assert words in coloc.refused(*arguments)


def test_a_bad_file_in_one_line(coloc: Coloc) -> None:
    err = coloc.refused("--policy", "magm", file=TRACE.replace("1000,10000", "soon,10000"))
    assert err.count("\n") == 1 and "jobs.txt, line 2, column run_s: 'soon'" in err


def test_a_broken_configuration_is_3(coloc: Coloc, monkeypatch: pytest.MonkeyPatch) -> None:
    path = coloc.folder / "coloc.toml"
    path.write_text("[pool]\nmax_jobs_per_gpu = 0\n")
    monkeypatch.setenv("COLOC_CONFIG", str(path))
    assert coloc.tried("--policy", "magm")[0] == 3


def test_defaults_of_the_pool_come_from_the_configuration(
    coloc: Coloc, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = coloc.folder / "coloc.toml"
    path.write_text("[pool]\nmax_jobs_per_gpu = 3\n")
    monkeypatch.setenv("COLOC_CONFIG", str(path))
    assert coloc.json("--policy", "magm")["conditions"]["jobs"] == 3
    assert coloc.json("--policy", "magm", "--jobs-per-gpu", "2")["conditions"]["jobs"] == 2


def month() -> str:
    return "\n".join(lines(jobs=60, gpus=4)) + "\n"


def test_page_for_an_admin(coloc: Coloc) -> None:
    out = coloc("--policy", "magm", source="--sacct", file=month())
    assert out.startswith("Sharing GPUs: 60 runs of ") and "4xa100-40gb" in out.splitlines()[0]
    for words in ("GPU hours in use", "could share a GPU", "What was assumed", "(this page)"):
        assert words in out
    assert "the same user on a GPU" in out, "as the configuration has it"
    assert "needs steered placement, or ExclusiveUser" in out


def test_a_past_with_shares_has_the_gpus_that_were_there(coloc: Coloc) -> None:
    """Four shares of ten GiB at a time on one A100, beside a whole A100 and an H100."""
    head = "JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|AllocTRES"
    when = "2026-11-01T00:00:00|2026-11-01T00:00:00|2026-11-01T01:00:00|3600|90|COMPLETED"
    shares = ["gres/shard=10"] * 4
    whole = ["gres/gpu=1,gres/gpu:a100=1"] * 3 + ["gres/gpu=1,gres/gpu:h100=1"]
    rows = [f"{n}|u|a|p|{when}|cpu=1,{tres}" for n, tres in enumerate(shares + whole, start=1)]
    answer = coloc.json("--policy", "magm", source="--sacct", file="\n".join([head, *rows]) + "\n")
    assert answer["gpus"].startswith("4xa100-40gb,1xh100"), answer["gpus"]
    assert "shares name no GPU type: they are taken for parts of a100-40gb" in answer["assumed"]


def test_waits_by_what_a_job_wants(coloc: Coloc) -> None:
    """Makespans of days in days and hours, and a table of waits where jobs differ."""
    jobs = [f"{n},j{n},{n},1,180000,9000,0.5,{n % 2}" for n in range(1, 7)]
    jobs.append("7,wide,8,2,3600,9000,0.5,1")
    file = "\n".join(["job,name,submit_s,gpus,run_s,memory_mib,smact,coloc", *jobs]) + "\n"
    out = coloc("--policy", "first-fit", "--gpus", "2xa100-40gb", file=file)
    table = out[out.index("mean wait") :].splitlines()
    assert table[0].split() == ["mean", "wait", "a", "share", "one", "GPU", "several"]
    assert re.search(r"exclusive +6d0[67]h", out), out
    answer = coloc.json("--policy", "first-fit", "--gpus", "2xa100-40gb", file=file)
    assert answer["mean_wait_share_s"] < answer["mean_wait_one_s"]


def test_the_page_takes_the_keys_of_the_site(coloc: Coloc, monkeypatch: pytest.MonkeyPatch) -> None:
    """It assumes nothing of who shares, or of activities, that the site's shares do not have."""
    path = coloc.folder / "coloc.toml"
    monkeypatch.setenv("COLOC_CONFIG", str(path))

    def page(text: str, *words: str) -> str:
        path.write_text(text)
        return str(coloc(*words, source="--sacct", file=month()))

    out = page('[sharing]\nwith = "anyone"\n')
    assert "policy first-fit" in out and "anyone on a GPU" in out and "add up to" not in out
    assert "ExclusiveUser" not in out and "SM activity (" in out
    sized = page("[pool]\nsize_by_smact = true\ncompute_budget = 1.5\n")
    assert "each with room for its SM activity (1.5 a GPU)" in sized
    assert "each with room" not in page("[pool]\nsize_by_smact = false\n")
    assert "policy magm" in page("[placement]\nidle_first = true\n")
    steered = page('[placement]\nmode = "steered"\npolicy = "best-fit"\n')
    assert "policy best-fit" in steered and "ExclusiveUser" not in steered
    assert "add up to 1.2 at most" in page("", "--budget", "1.2")


def test_page_in_json_and_markdown_and_as_a_picture(coloc: Coloc) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib (the extra plot)")
    page, picture = coloc.folder / "page.md", coloc.folder / "page.png"
    files = ("--markdown", str(page), "--plot", str(picture))
    answer = coloc.json("--policy", "magm", *files, source="--sacct", file=month())
    assert set(answer) >= KEYS and answer["estimator"] == "error:0.1"
    made = answer["page"]
    assert made["gpu_hours_saved"] == made["whole"]["gpu_hours"] - made["shared"]["gpu_hours"]
    assert [case["name"] for case in made["cases"]] == ["low", "as assumed", "high"]
    assert made["shared"]["mean_wait_s"] == answer["mean_wait_s"]
    assert page.read_text().startswith("# Sharing GPUs: 60 runs")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_assumptions_change_the_page(coloc: Coloc) -> None:
    def asked(*arguments: str) -> dict[str, Any]:
        return coloc.json("--policy", "magm", *arguments, source="--sacct", file=month())

    heavy = asked("--assume-smact", "0.9", "--assume-memory", "high")
    assert any("90% in the mean" in line for line in heavy["assumed"])
    assert heavy["page"]["shared"]["did"] < asked()["page"]["shared"]["did"]
    assert asked("--joining", "0")["page"]["shared"]["did"] == 0
    assert "GPU type" in coloc.refused(
        "--policy", "magm", source="--sacct", file=month().replace("a100", "voodoo")
    )


def test_peaks_of_our_own_history_are_used(coloc: Coloc) -> None:
    """What `coloc history --json` prints; a job without a peak in it is drawn."""
    path = coloc.folder / "history.json"
    runs = [
        {"job_id": 1001, "peak_mib": 4000},
        {"job_id": 1001, "peak_mib": 5000},
        {"job_id": 1002, "peak_mib": None},
    ]
    path.write_text(json.dumps({"schema": 1, "runs": runs, "observed": []}))
    asked = ("--policy", "magm", "--history", str(path))
    said = coloc.json(*asked, source="--sacct", file=month())["assumed"]
    assert "peaks of 1 run from coloc's history" in said
    assert "GPU memory of 1 run: as recorded" in said
    path.write_text('{"runs": [{"job_id": 1}]}')
    assert "run 1: no job_id or peak_mib" in coloc.refused(*asked, source="--sacct", file=month())
    path.write_text("[]")
    assert "is not what" in coloc.refused(*asked, source="--sacct", file=month())


def test_other_traces(coloc: Coloc) -> None:
    header = "job_id,user,vc,gpu_num,cpu_num,state,submit_time,start_time,end_time,duration"
    row = "1,u,v,1,4,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,,3600"
    file = f"{header}\n{row}\n{row.replace('1,u', '2,u')}\n"
    answer = coloc.json("--policy", "magm", source="--helios", file=file)
    assert answer["jobs"] == 2 and answer["gpus"] == "2xa100-40gb"
    assert any("taken for A100-40GB" in line for line in answer["assumed"])
    compared = coloc.json("--compare", "magm,mug", source="--helios", file=file)
    assert list(compared["policies"]) == ["exclusive", "magm", "mug"]
    log = [{
        "jobid": "a", "user": "u", "vc": "v", "submitted_time": "2017-10-07 01:00:00",
        "attempts": [{
            "start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 02:00:00",
            "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
        }],
    }]  # fmt: skip
    assert coloc.json("--policy", "magm", source="--philly", file=json.dumps(log))["jobs"] == 1


def test_pictures_of_a_trace(coloc: Coloc) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib (the extra plot)")
    path = coloc.folder / "run.svg"
    coloc("--policy", "magm", "--plot", str(path))
    assert path.read_text().count("<svg") == 1
    coloc("--compare", "magm,mug", "--plot", str(path))
    assert (coloc.folder / "run-magm.svg").exists()
    assert "the name must end in" in coloc.refused("--policy", "magm", "--plot", "x.jpg")


def test_the_example_trace(coloc: Coloc) -> None:
    """The one that the README plays: what sharing saves on it is what one sees there."""
    file = (ROOT / "etc/examples/simulate/trace.csv").read_text()
    answer = coloc.json("--compare", "magm", "--estimator", "mine", file=file)
    assert answer["jobs"] == 40 and answer["policies"]["magm"]["saving_ratio"] > 0.1
