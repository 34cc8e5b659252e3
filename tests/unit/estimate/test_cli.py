# SPDX-License-Identifier: Apache-2.0
"""``coloc estimate``: its JSON, its exit codes, what it does with files that are no summaries."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.cli.app import run
from tests.harness.answers import as_documented
from tests.unit.estimate.texts import EXAMPLES, NAMES, ROOT, TORCHSUMMARY, example

RESNET = str(EXAMPLES / "resnet50_torchinfo.txt")
BERT = str(EXAMPLES / "bert_base_repr.txt")

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def coloc(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Call:
    """Run ``coloc estimate`` in this process; gives exit code, stdout, stderr."""
    config = tmp_path / "coloc.toml"
    config.write_text("version = 1\n")
    monkeypatch.setenv("COLOC_CONFIG", str(config))

    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["coloc", "estimate", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code, (out, err) = run(), capsys.readouterr()
        for line in filter(None, out.splitlines() if "--json" in arguments else []):
            as_documented(["estimate"], json.loads(line))
        return code, out, err

    return call


def check_answer(answer: dict[str, Any]) -> None:
    """The object of DESIGN's command line, key by key."""
    assert (answer["schema"], *answer) == (1, "schema", "summary", "estimates", "chosen")
    assert set(answer["summary"]) == {"format", "family", "parameters", "activations", "layers"}
    for item in answer["estimates"]:
        assert set(item) == {"name", "version", "memory_mib", "upper_mib", "seconds"}
        assert isinstance(item["seconds"], float)
    chosen = answer["chosen"]
    assert sum(chosen.get("parts", {}).values()) in (0, chosen["memory_mib"])
    assert set(chosen) - {"parts"} == {
        "name", "memory_mib", "upper_mib", "smact", "smact_low", "smact_high", "dram", "shards",
        "reason",
    }  # fmt: skip
    assert chosen["name"] in {item["name"] for item in answer["estimates"]}
    assert chosen["reason"]
    if chosen["shards"] is None:
        assert chosen["reason"].startswith("whole GPU")
    else:
        assert isinstance(chosen["memory_mib"], int)
        per_gpu = int(chosen["reason"].split(" of ")[1].split()[0])
        least, needed = -(-per_gpu // 8), -(-chosen["upper_mib"] // 1024)  # 8 jobs a GPU at most
        assert chosen["shards"] == max(least, needed) <= per_gpu


@pytest.mark.parametrize("name", NAMES)
def test_json_of_every_example(coloc: Call, name: str) -> None:
    code, out, err = coloc(str(EXAMPLES / name), "--batch-size", "8", "--json")
    assert (code, err) == (0, "")
    check_answer(answer := json.loads(out))
    assert answer["chosen"]["memory_mib"] is not None


def test_all_estimators(coloc: Call) -> None:
    _, out, _ = coloc(RESNET, "--estimator", "all", "--json")
    answer = json.loads(out)
    assert {item["name"] for item in answer["estimates"]} >= {"horus", "text"}
    assert answer["chosen"]["name"] == "text"
    _, out, _ = coloc(RESNET, "--estimator", "horus", "--json")
    assert json.loads(out)["chosen"]["name"] == "horus"


def test_a_whole_gpu_has_its_figure_all_the_same(coloc: Call) -> None:
    for arguments in (["--batch-size", "4096"], ["--batch-size", "128", "--gpu", "t4-16gb"]):
        code, out, _ = coloc(RESNET, "--json", *arguments)
        answer = json.loads(out)
        check_answer(answer)
        assert code == 0
        assert answer["chosen"]["shards"] is None
        assert answer["chosen"]["memory_mib"] == answer["estimates"][0]["memory_mib"] > 0


def test_without_batch_a_whole_gpu(coloc: Call) -> None:
    code, out, _ = coloc(BERT, "--json")
    assert code == 0
    assert "give --coloc-batch-size" in json.loads(out)["chosen"]["reason"]


def test_options_reach_the_estimate(coloc: Call) -> None:
    def memory(*arguments: str) -> int:
        _, out, _ = coloc(BERT, "--batch-size", "4", "--json", *arguments)
        return int(json.loads(out)["estimates"][0]["memory_mib"])

    plain = memory()
    assert memory("--seq-len", "128") < plain
    assert memory("--optimizer", "sgd") < plain
    assert memory("--precision", "bf16") < plain


def test_the_level_moves_the_bound_alone(coloc: Call, tmp_path: Path) -> None:
    found = []
    for level in ("0.9", "0.99", "0.999"):
        code, out, _ = coloc(RESNET, "--json", "--level", level)
        assert code == 0
        found.append(json.loads(out)["chosen"])
        assert found[-1].pop("parts")["context"] == 1735
    assert len({one["memory_mib"] for one in found}) == 1
    assert found[0]["upper_mib"] < found[1]["upper_mib"] < found[2]["upper_mib"]
    assert json.loads(coloc(RESNET, "--json")[1])["chosen"].items() >= found[1].items()
    (tmp_path / "coloc.toml").write_text("version = 1\n[estimate]\nlevel = 0.9\n")
    assert json.loads(coloc(RESNET, "--json")[1])["chosen"].items() >= found[0].items()
    lines = [{"path": RESNET, "level": level} for level in (0.999, 1.5, 1, "x", 0.2)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    answers = coloc("--jsonl", "-", stdin=text.encode())[1].splitlines()
    assert json.loads(answers[0])["chosen"] == found[2]
    assert all("error" in json.loads(one) for one in answers[1:])


def test_table_for_people(coloc: Call) -> None:
    code, out, err = coloc(BERT, "--batch-size", "4", "--optimizer", "adamw")
    assert code == 0
    for part in (
        "text 7",
        "optimizer adamw,",
        "precision fp32 (default)",
        "GPU a100-40gb (default)",
    ):
        assert part in out
    assert "sequence length 512 assumed" in err and "sequence length 512 assumed" not in out


def test_activity_and_what_an_admin_makes_of_it(
    coloc: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, out, _ = coloc(RESNET)
    assert code == 0 and "activity alone: SM 0.6" in out
    _, out, _ = coloc(RESNET, "--json")
    by_memory = json.loads(out)["chosen"]
    assert by_memory["shards"] == max(5, -(-by_memory["upper_mib"] // 1024))
    sized = tmp_path / "sized.toml"
    sized.write_text("[pool]\nsize_by_smact = true\n")
    monkeypatch.setenv("COLOC_CONFIG", str(sized))
    _, out, _ = coloc(RESNET, "--json")
    chosen = json.loads(out)["chosen"]
    assert chosen["shards"] == -(-39 * chosen["smact"] // 1.7) > by_memory["shards"]


def test_calibration_allocator_processes_and_a_slice(
    coloc: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "stacks"
    folder.mkdir()
    (folder / "mine.toml").write_text("context_mib = 500\ntotal_mib = 20480\n")
    config = tmp_path / "with.toml"
    config.write_text(f'[estimate]\nstacks_dir = "{folder}"\n')
    monkeypatch.setenv("COLOC_CONFIG", str(config))

    def told(*arguments: str) -> dict[str, Any]:
        code, out, err = coloc(RESNET, "--json", *arguments)
        assert code == 0, err
        chosen: dict[str, Any] = json.loads(out)["chosen"]
        return chosen

    plain, mine = told(), told("--gpu", "mine")
    assert plain["memory_mib"] - mine["memory_mib"] == 1235  # the A100's typical context is 1735
    assert plain["upper_mib"] - mine["upper_mib"] == 1400  # its bound has the configured one
    assert "of 19 shards of one mine" in mine["reason"]
    assert told("--alloc-conf", "expandable_segments:True")["memory_mib"] < plain["memory_mib"]
    assert told("--world-size", "2")["memory_mib"] > plain["memory_mib"]
    assert told("--visible-mib", "4000")["memory_mib"] is None
    assert "that the process sees" in told("--visible-mib", "4000")["reason"]
    assert coloc(RESNET, "--alloc-conf", "nothing")[0] == 2
    (folder / "mine.toml").write_text('context_mib = "much"\n')
    code, _, err = coloc(RESNET)
    assert code == 3 and "mine.toml" in err and "context_mib" in err


def test_a_card_s_memory_bounds_what_is_kept(coloc: Call) -> None:
    """What fits only because the allocator gives back what it keeps, and what does not fit."""

    def told(batch: int, *arguments: str) -> dict[str, Any]:
        code, out, err = coloc(RESNET, "--json", "--batch-size", str(batch), *arguments)
        assert code == 0, err
        chosen: dict[str, Any] = json.loads(out)["chosen"]
        return chosen

    for batch in range(8, 200, 8):
        alone, there = told(batch, "--gpu", "h100-80gb"), told(batch, "--gpu", "rtx3060-12gb")
        assert there["memory_mib"] <= alone["memory_mib"]  # both have the same typical context
        if there["memory_mib"] > 12288:
            assert "does not fit in the 12288 MiB of one rtx3060-12gb" in there["reason"]
            assert there["memory_mib"] == alone["memory_mib"] and there["shards"] is None
            break
    else:
        pytest.fail("ResNet-50 with 199 images fits 12 GiB")


def test_which_gpus_it_fits(coloc: Call) -> None:
    code, out, err = coloc(RESNET, "--fit", "--json", "--batch-size", "64")
    assert code == 0, err
    found = {one["gpu"]: one for one in json.loads(out)["fit"]}
    assert found["t4-16gb"]["fits"] == "yes" and found["a100-40gb 1g.5gb"]["fits"] == "no"
    sizes = [(one["mib"], one["largest_batch"]) for one in found.values() if one["gpu"][0] == "h"]
    assert sizes == sorted(sizes) and len(sizes) > 6
    largest = found["a100-80gb"]["largest_batch"]
    uppers = []
    for batch in (largest, largest + 1):
        _, out, _ = coloc(RESNET, "--json", "--gpu", "a100-80gb", "--batch-size", str(batch))
        uppers.append(json.loads(out)["estimates"][0]["upper_mib"])
    assert uppers[0] <= found["a100-80gb"]["mib"] < uppers[1]
    code, out, _ = coloc(RESNET, "--fit", "--gpu", "a100-40gb")
    assert code == 0 and "a100-40gb 3g.20gb" in out and "t4" not in out


def test_a_line_for_each_batch_size(coloc: Call) -> None:
    code, out, err = coloc(RESNET, "--batch-sizes", "8,64,4096", "--json")
    assert code == 0, err
    sweep = json.loads(out)["sweep"]
    assert [one["batch_size"] for one in sweep] == [8, 64, 4096]
    assert [one["shards"] is None for one in sweep] == [False, False, True]
    _, out, _ = coloc(RESNET, "--batch-size", "64", "--json")
    alone = json.loads(out)["chosen"]
    assert sweep[1]["upper_mib"] == alone["upper_mib"]
    code, out, _ = coloc(RESNET, "--batch-sizes", "8,64,4096")
    assert code == 0 and "whole GPU" in out.splitlines()[-1]


def test_what_the_memory_is_for(coloc: Call) -> None:
    _, out, _ = coloc(RESNET, "--batch-size", "64", "--optimizer", "adam", "--json")
    chosen = json.loads(out)["chosen"]
    parts = chosen["parts"]
    assert sum(parts.values()) == chosen["memory_mib"]
    weights = 25_557_032 * 4 / 2**20
    assert parts["context"] == 1735
    assert abs(parts["weights"] - weights) < 1 and abs(parts["optimizer states"] - 2 * weights) < 1
    assert parts["activations"] > chosen["memory_mib"] / 2
    code, out, _ = coloc(RESNET, "--batch-size", "64")
    assert code == 0
    bar = next(line for line in out.splitlines() if line.startswith("cccc"))
    assert len(bar) == 76 and set(bar) <= set("cWkSGAswr")
    assert all(len(line) <= 80 for line in out.splitlines() if line.startswith(("c ", "A ")))


def test_standard_input(coloc: Call) -> None:
    code, out, _ = coloc("-", "--batch-size", "2", "--json", stdin=TORCHSUMMARY.encode())
    assert code == 0
    assert json.loads(out)["summary"]["parameters"] == 42_826


BAD: dict[str, tuple[bytes | None, str]] = {
    "empty": (b"", "empty"),
    "binary": (b"\x7fELF\x00\x00", "binary"),
    "latin": (b"gar\xe7on", "unknown_format"),
    "utf16": ("Layer (type)".encode("utf-16"), "binary"),
    "prose": (b"hello\n", "unknown_format"),
    "large": (b"x\n" * (2 * 2**20 + 1), "too_large"),
    "missing": (None, "not_found"),
}


@pytest.mark.parametrize(("data", "code"), BAD.values(), ids=BAD.keys())
def test_bad_files_exit_7(coloc: Call, tmp_path: Path, data: bytes | None, code: str) -> None:
    path = tmp_path / "model.txt"
    if data is not None:
        path.write_bytes(data)
    status, out, err = coloc(str(path))
    assert (status, out) == (7, "")
    assert err.startswith("coloc: ") and err.count("\n") == 1
    status, out, err = coloc(str(path), "--json")
    assert status == 7
    assert json.loads(out)["error"]["code"] == code


def test_things_that_are_no_files_exit_7(coloc: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    for path in ("fifo", "", "loop", "/dev/null", "/dev/zero", "x" * 5000, "model.txt/below"):
        status, out, err = coloc(str(tmp_path / path) if path[:1] != "/" else path)
        assert (status, out) == (7, ""), path
        assert err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_exits_7(coloc: Call, tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text(TORCHSUMMARY)
    path.chmod(0)
    assert coloc(str(path))[0] == 7


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [RESNET, "--jsonl", "-"],
        [RESNET, "--batch-size", "0"],
        [RESNET, "--batch-size", "x"],
        [RESNET, "--optimizer", "sophia"],
        [RESNET, "--precision", "fp8"],
        [RESNET, "--gpu", "voodoo2"],
        [RESNET, "--estimator", "none"],
        [RESNET, "--no-such-option"],
        ["--jsonl", "/no/such/file"],
        ["--jsonl", "/"],
        ["--jsonl", "-", "--fit"],
        ["--jsonl", "-", "--batch-sizes", "8"],
        [RESNET, "--batch-sizes", "8,"],
        [RESNET, "--batch-sizes", "0"],
        [RESNET, "--batch-sizes", ",".join(["8"] * 65)],
    ],
)
def test_usage_exits_2(coloc: Call, arguments: list[str]) -> None:
    code, out, err = coloc(*arguments)
    assert (code, out) == (2, "")
    assert err and "Traceback" not in err


def test_jsonl_keeps_order_and_answers_every_line(coloc: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    requests: list[tuple[object, str | None]] = [
        ({"path": RESNET}, None),
        ({"text": TORCHSUMMARY, "batch_size": 4}, None),
        ({"text": TORCHSUMMARY}, None),
        ({"text": example("gpt2_repr.txt"), "batch_size": 4, "gpus": 2, "seq_len": 128}, None),
        ({"path": RESNET, "optimizer": "sgd", "precision": "amp", "gpu": "h100-80gb"}, None),
        ({"path": RESNET, "batch_size": None}, None),
        ({"text": ""}, "empty"),
        ({"text": "\x00"}, "binary"),
        ({"text": "\ud800"}, "unknown_format"),
        ({"path": "/no/such"}, "not_found"),
        ({"path": str(tmp_path / "fifo")}, "not_regular"),
        ({"path": "-"}, "bad_request"),
        ({}, "bad_request"),
        ({"path": RESNET, "text": "x"}, "bad_request"),
        ({"path": RESNET, "colour": 1}, "bad_request"),
        ({"path": RESNET, "batch_size": "4"}, "bad_request"),
        ({"path": RESNET, "batch_size": True}, "bad_request"),
        ({"path": RESNET, "batch_size": 4.0}, "bad_request"),
        ({"path": RESNET, "batch_size": 2**31}, "bad_request"),
        ({"path": RESNET, "optimizer": 1}, "bad_request"),
        ({"path": RESNET, "optimizer": "sophia"}, "bad_option"),
        ({"path": RESNET, "gpu": "voodoo2"}, "unknown_gpu"),
        ([1], "bad_request"),
    ]
    lines = [json.dumps(request).encode() for request, _ in requests]
    broken = [b"", b"{", b"\xff", b"[" * 100_000, b'{"batch_size": ' + b"9" * 5000 + b"}", b"NaN"]
    code, out, err = coloc("--jsonl", "-", stdin=b"\n".join(lines + broken) + b"\n")
    assert (code, err) == (0, "")
    answers = [json.loads(line) for line in out.splitlines()]
    expected = [want for _, want in requests] + ["bad_request"] * len(broken)
    assert len(answers) == len(expected)
    for answer, want in zip(answers, expected, strict=True):
        if want is None:
            check_answer(answer)
        else:
            assert list(answer) == ["schema", "error"]
            assert set(answer["error"]) == {"code", "message"}
            assert answer["error"]["code"] == want
    assert answers[2]["chosen"]["memory_mib"] is None


def test_jsonl_file_without_final_newline(coloc: Call, tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_text(json.dumps({"path": RESNET}))
    code, out, _ = coloc("--jsonl", str(path))
    assert code == 0 and out.count("\n") == 1


def test_the_program_itself(tmp_path: Path) -> None:
    """One true process: nothing but the answer on stdout, and no waiting on a FIFO."""
    env = {**os.environ, "COLOC_CONFIG": str(tmp_path / "coloc.toml")}
    (tmp_path / "coloc.toml").write_text("version = 1\n[pool]\nshard_mib = 2048\n")
    os.mkfifo(tmp_path / "fifo")

    def process(path: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "slurm_coloc", "estimate", path, "--json"]
        return subprocess.run(
            command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )

    done = process(RESNET)
    chosen = json.loads(done.stdout)["chosen"]
    assert (done.returncode, done.stderr) == (0, "")
    assert chosen["shards"] == -(-chosen["upper_mib"] // 2048)
    refused = process(str(tmp_path / "fifo"))
    assert refused.returncode == 7
    assert "Traceback" not in refused.stderr
