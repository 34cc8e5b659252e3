# SPDX-License-Identifier: Apache-2.0
"""coloc simulate as it is called: its answers, its options, its errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.cli.app import run

TRACE = """\
job,name,submit_s,gpus,run_s,memory_mib,smact,user,half_mib
1,a,0,1,1000,10000,0.4,ada,5000
2,b,10,1,1000,10000,0.4,ada,5000
3,c,20,1,1000,30000,0.4,bob,15000
4,d,30,2,500,10000,0.4,bob,
"""
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
        answer: dict[str, Any] = json.loads(self(*arguments, "--json", source=source, file=file))
        return answer

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
    assert "4 jobs on 2xa100-40gb, means of 2 runs" in out and "less time than whole GPUs" in out


@pytest.mark.parametrize("method", ["mps", "streams", "mig"])
def test_methods(coloc: Coloc, method: str) -> None:
    answer = coloc.json("--policy", "first-fit", "--method", method)
    assert answer["method"] == method and answer["oom"] == 0
    if method == "mig":
        assert answer["gpus"] == "2xa100-40gb,2xa100-40gb:4g.20gb+3g.20gb"
        assert any("without a layout" in line for line in answer["assumed"])


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
        (("--policy", "magm", "--runs", "0"), "--runs"),
        (("--policy", "magm", "--gpus", "1xa100-40gb"), "fit nowhere"),
        (("--policy", "magm", "--sacct", "x"), "give one of --trace"),
        (("--policy", "magm", "--partition", "a"), "--partition needs --sacct"),
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
