# SPDX-License-Identifier: Apache-2.0
"""The plain package, without the extra ``networks``: onnxruntime cannot be imported here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUMMARY = str(ROOT / "etc" / "examples" / "resnet50_torchinfo.txt")
HINT = "pip install onnxruntime"
#: what a node must not need, refused by a finder that comes first
BLOCK = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
"""
COLOC = "from slurm_coloc.__main__ import main; sys.argv = {argv!r}; main()"
EXTRAS = ("onnxruntime", "numpy", "matplotlib", "torch")


def python(tmp_path: Path, code: str, refused: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environ = {"COLOC_CONFIG": str(tmp_path / "coloc.toml"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(refused=refused) + code],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        check=False,
    )


def coloc(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    config = tmp_path / "coloc.toml"
    if not config.exists():
        config.write_text("")
    return python(tmp_path, COLOC.format(argv=["coloc", *words]), EXTRAS)


@pytest.mark.parametrize("words", [["--help"], ["agent", "--help"], ["estimate", SUMMARY]])
def test_the_plain_package_runs(tmp_path: Path, words: list[str]) -> None:
    done = coloc(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert HINT not in done.stderr


def test_a_network_estimator_says_which_extra_to_install(tmp_path: Path) -> None:
    done = coloc(tmp_path, "estimate", SUMMARY, "--estimator", "gpumemnet-mlp")
    assert done.returncode == 3
    (line,) = done.stderr.strip().splitlines()
    assert "gpumemnet-mlp" in line and HINT in line


def test_all_leaves_network_estimators_out(tmp_path: Path) -> None:
    done = coloc(tmp_path, "estimate", SUMMARY, "--estimator", "all", "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert "gpumemnet-mlp, gpumemnet-transformer left out" in line and HINT in line
    names = [one["name"] for one in json.loads(done.stdout)["estimates"]]
    assert {"horus", "text", "traced"} <= set(names)
    assert not any(name.startswith("gpumemnet") for name in names)


def test_colocd_does_not_start_with_a_network_estimator(tmp_path: Path) -> None:
    code = (
        "from slurm_coloc.config import EstimateConfig\n"
        "from slurm_coloc.errors import ConfigError\n"
        "from slurm_coloc.flow.submit.estimate import Lookup\n"
        "from slurm_coloc.flow.submit.tickets import Texts\n"
        "Lookup(EstimateConfig(), Texts(), print)\n"
        "try:\n"
        "    Lookup(EstimateConfig(estimator='gpumemnet-mlp'), Texts(), print)\n"
        "except ConfigError as err:\n"
        "    print(err.message)\n"
        "    sys.exit(err.exit_code)\n"
    )
    done = python(tmp_path, code, EXTRAS)
    assert done.returncode == 3, done.stderr
    assert "gpumemnet-mlp" in done.stdout and HINT in done.stdout


@pytest.mark.parametrize("module", ["slurm_coloc.agent", "slurm_coloc.flow.launch.hooks"])
def test_agent_and_hooks_load_no_heavy_library(tmp_path: Path, module: str) -> None:
    done = python(tmp_path, f"import {module}", (*EXTRAS, "rich"))
    assert done.returncode == 0, done.stderr
