# SPDX-License-Identifier: Apache-2.0
"""The tables of estimator.evaluate: their figures, and how measured rows are read."""

from pathlib import Path

import pytest

from estimator.evaluate import configs, judging, mlp
from estimator.evaluate.judging import Answer, Case
from slurm_coloc.estimate.api import TrainingOptions, registry
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from tests.unit.estimate.texts import example

CASES = [
    Case("a", 1000, {"ours": Answer(1100, 2024), "theirs": Answer(500, 500)}),
    Case("b", 1000, {"ours": Answer(980, 990)}),
    Case("c", 1000, {"ours": Answer(1000, 1000)}),
]


def test_figures() -> None:
    ours = judging.figures(CASES, "ours")
    assert ours is not None
    assert (ours.asked, ours.answered, ours.under, ours.above) == (3, 3, 1, 1)
    assert ours.median == pytest.approx(0.02) and ours.mean == pytest.approx(0.04)
    assert ours.over_gib == pytest.approx(1 / 3)  # what is missing elsewhere is not taken off
    # times 1000/980, with which no run is above
    assert ours.alike_gib == pytest.approx((3080 / 0.98 - 3000) / 3 / 1024)
    assert ours.within == pytest.approx((2 / 3, 2 / 3, 1.0))


def test_a_method_is_judged_by_what_it_answered() -> None:
    theirs = judging.figures(CASES, "theirs")
    assert theirs is not None and (theirs.asked, theirs.answered) == (3, 1)
    assert judging.figures(CASES, "nobody") is None
    assert "| theirs | 1 of 3 | 50.0 % |" in judging.table(CASES)


def test_the_table_has_a_cell_for_each_column() -> None:
    lines = judging.table(CASES).splitlines()
    assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_all_registered_estimators_are_asked() -> None:
    told = judging.ask(
        parse_summary(example("resnet50_torchinfo.txt")), TrainingOptions(8), Stack(1000)
    )
    assert set(told) <= {*registry(), "auto"}
    assert {"text", "auto", "horus", "deepspeed", "gpumemnet-mlp"} <= set(told)
    assert told["text"].upper_mib > told["text"].mib > 1000


def test_configs18(tmp_path: Path) -> None:
    """DataParallel: of two GPUs, XLNet's batch is that of each, GPT-2's is of both."""
    path = tmp_path / "configs18.csv"
    path.write_text(
        "model,batch_size,measured_mib,gpumemnet_mib,faketensor_mib,horus_mib\n"
        "vgg16,32,8222,16000,3121.3,21525.8\n"
        "xlnet_base,8,9718,16000,,3661.7\n"
        "gpt2_large,8,27902,48000,,127676.6\n"
    )
    vgg, xlnet, gpt = configs.configs18(path)
    assert (vgg.text, vgg.batch, vgg.gpus) == ("vgg16-224", 32, 1)
    assert vgg.published["FakeTensor, as published"] == Answer(3121.3, 3121.3)
    assert (xlnet.text, xlnet.batch, xlnet.gpus) == ("xlnet_base", 16, 2)
    assert (gpt.batch, gpt.gpus) == (8, 2)
    assert len(gpt.published) == 2  # no fake tensors there


def test_workloads_name_what_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "workloads.csv"
    path.write_text(
        "config,model,dataset,batch,mem_MiB\n"
        "S|c,S_mobilenetv3,cifar100,32,1784\n"
        "X|i,Xception,imagenet,32,7202\n"
        "U|c,unet,carvana,8,9000\n"
    )
    runs, left = configs.workloads(path)
    assert [run.text for run in runs] == ["mobilenetv3_small-32", "xception-224"]
    assert left == ["U|c: no model of that name in timm or transformers"]


def test_configurations_are_judged_from_their_texts(tmp_path: Path) -> None:
    (tmp_path / "resnet50-224.plain").write_text(example("resnet50_torchinfo.txt"))
    run = configs.Run("one", "resnet50-224", 32, 1, 5262.0, {"theirs": Answer(16000, 16000)})
    (case,) = configs.judged([run], tmp_path, Stack(1735))
    assert abs(case.told["text"].mib / 5262 - 1) < 0.03
    assert case.told["theirs"].mib == 16000
    assert "traced" not in case.told  # nothing was recorded


MLP_ROW = {
    "config": "input:300_output:16_depth:1_arch:uniform_batch:1500_act:relu",
    "layers": "[('linear', 1024, 308224), ('batch_normalization', 1024, 2048), ('ReLU', 1024, 0),"
    " ('dropout', 1024, 0), ('linear', 16, 16400), ('Softmax', 16, 0)]",
    "batch_size": "1500",
    "max_memory_mib": "1501",
}


def mlp_file(folder: Path, rows: int) -> Path:
    path = folder / "mlp.csv"
    quoted = ",".join(f'"{value}"' for value in MLP_ROW.values())
    path.write_text(",".join(MLP_ROW) + "\n" + f"{quoted}\n" * rows)
    return path


def test_mlp_rows(tmp_path: Path) -> None:
    (row,) = mlp.read(mlp_file(tmp_path, 1))
    assert (row.batch, row.measured_mib) == (1500, 1501)
    assert row.summary.parameters == 308224 + 2048 + 16400
    assert row.summary.layers[0].inputs == ((1, 300),)
    assert row.summary.layers[4].inputs == ((1, 1024),)


def test_a_run_of_a_script_has_a_smaller_last_batch(tmp_path: Path) -> None:
    (row,) = mlp.read(mlp_file(tmp_path, 1))
    events = mlp.as_run(row, Stack(0))
    batches = [1500, 1500, 4096 - 3000] * mlp.EPOCHS
    given = [event for event in events if event in {batch * 300 * 4 for batch in batches}]
    assert given == [batch * 300 * 4 for batch in batches]
    assert events.count(Stack(0).blas) == 2


def test_the_context_is_not_taken_from_the_rows_that_are_judged(tmp_path: Path) -> None:
    path = mlp_file(tmp_path, 4)
    lines = path.read_text().replace('"1501"', '"1511"').splitlines()
    original = path.read_text().splitlines()
    path.write_text("\n".join([original[0], original[1], lines[2], original[3], lines[4]]))
    cases, estimators, runs = mlp.judged(mlp.read(path), estimators=False)
    assert [case.measured_mib for case in cases] == [1511, 1511]
    assert all(case.told[mlp.AS_RUN].mib == 1501 for case in cases)
    assert estimators > 0 and runs > 0
    assert "within 8 MiB 0.0 %" in mlp.classes(cases, mlp.AS_RUN)


def test_both_halves_are_judged_by_the_other_one(tmp_path: Path) -> None:
    path = mlp_file(tmp_path, 4)
    first, *rows = path.read_text().splitlines()
    odd = [row.replace('"1501"', '"1511"') for row in rows[1::2]]
    path.write_text("\n".join([first, rows[0], odd[0], rows[2], odd[1]]))
    cases, _, _ = mlp.judged(mlp.read(path), estimators=False, first=1)
    assert [case.measured_mib for case in cases] == [1501, 1501]
    assert all(set(case.told) == {"text", mlp.AS_RUN} for case in cases)
    assert all(case.told[mlp.AS_RUN].mib == 1511 for case in cases)


def test_a_known_script_has_one_context() -> None:
    """Differences that are exact: their most frequent one, however many lie beside it."""
    assert mlp.usual([1428] * 5 + [1430] * 4 + [1438] * 3) == 1428
    assert mlp.usual([1430, 1428, 1430, 1428]) == 1428


def test_classes_begin_above_their_edge() -> None:
    cases = [
        Case("edge", 1024, {"x": Answer(1024, 0)}),
        Case("off", 1025, {"x": Answer(1020, 0)}),
    ]
    text = mlp.classes(cases, "x")
    assert "1 GiB 50.00 % (1 wrong)" in text and "1 GB 100.00 % (0 wrong)" in text
    assert "within 8 MiB 100.0 %" in text and "difference in 50.0 %" in text
