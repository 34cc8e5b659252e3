# SPDX-License-Identifier: Apache-2.0
"""coloc config check|show, and the files that are made from the model."""

import json
import tomllib
from pathlib import Path

import pytest

from slurm_coloc.cli.texts import reference
from slurm_coloc.config import Config, ModeRule, parse_config
from tests.harness.answers import as_documented
from tests.unit.cli.conftest import Site

ROOT = Path(__file__).resolve().parents[3]


def test_check_good(site: Site) -> None:
    done = site.coloc("config", "check")
    assert (done.returncode, done.stdout) == (0, f"{site.config}: ok\n")
    assert site.json("config", "check")["valid"] is True


def test_check_names_every_wrong_key(site: Site) -> None:
    wrong = site.folder / "wrong-many.toml"
    wrong.write_text(
        "version = 1\n[daemon]\nsockett = 1\nrefresh_s = -1\n[pool]\nshard_mib = 1\n[nonsense]\n"
        '[[mode.rules]]\nmode = "maybe"\n'
    )
    done = site.coloc("config", "check", str(wrong))
    assert done.returncode == 3
    assert done.stdout == ""
    for key in ("daemon.sockett", "daemon.refresh_s", "pool.shard_mib", "nonsense", "mode.rules.0"):
        assert sum(key in line for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ('[placement]\npolicy = "nope"\n', "unknown policy 'nope'"),
        ('[estimate]\nstacks_dir = "{stacks}"\n', "a100.toml: cannot be used"),
    ],
)
def test_check_names_what_colocd_would_refuse(
    site: Site, tmp_path: Path, lines: str, named: str
) -> None:
    stacks = tmp_path / "stacks"
    stacks.mkdir()
    (stacks / "a100.toml").write_text("context_mib =\n")
    wrong = site.folder / "refused.toml"
    wrong.write_text("version = 1\n" + lines.format(stacks=stacks))
    done = site.coloc("config", "check", str(wrong))
    assert done.returncode == 3 and named in done.stderr


@pytest.mark.parametrize("content", [b"version = \n", b"\xff\xfe", b"version = 2\n"])
def test_check_unreadable(site: Site, content: bytes) -> None:
    wrong = site.folder / "unreadable.toml"
    wrong.write_bytes(content)
    done = site.coloc("config", "check", str(wrong), "--json")
    assert done.returncode == 3
    assert as_documented(["config", "check"], json.loads(done.stdout))["valid"] is False
    assert str(wrong) in done.stderr


def test_check_missing(site: Site) -> None:
    done = site.coloc("config", "check", str(site.folder / "missing.toml"))
    assert (done.returncode, "no such file" in done.stderr) == (3, True)


def test_show_is_the_configuration_in_force(site: Site) -> None:
    shown = tomllib.loads(site.coloc("config", "show").stdout)
    assert shown["daemon"]["socket"] == str(site.socket)
    assert shown["pool"]["shard_mib"] == 1024
    answer = site.json("config", "show")
    assert answer["schema"] == 1 and answer["daemon"]["socket"] == str(site.socket)


def test_effective_reads_back_the_same() -> None:
    rules = (ModeRule(partition='a "quoted" \\ name', mode="on"), ModeRule(user="7", mode="off"))
    config = Config.model_validate(
        {
            "mode": {"rules": [rule.model_dump() for rule in rules]},
            "pool": {"partitions": ["a"]},
            "sharing": {"rules": [{"node": "n[1-4]", "gpu": "0", "method": "streams"}]},
        }
    )
    assert parse_config(tomllib.loads(reference.effective(config)), "test") == config


def test_reference_has_every_field() -> None:
    text = reference.markdown()
    for name, kind in reference.sections():
        assert name in text
        for key, field in kind.model_fields.items():
            assert field.description or key == "version", f"{name}.{key} needs a description"
            assert key == "rules" or f"| `{field.alias or key}` |" in text


def test_sample_is_up_to_date_and_changes_nothing() -> None:
    text = (ROOT / "etc" / "coloc.toml").read_text()
    assert text == reference.sample(), "run: .venv/bin/coloc config show --sample > etc/coloc.toml"
    assert parse_config(tomllib.loads(text), "sample") == Config()
    spelled = "\n".join(
        line.removeprefix("#") if line.startswith("#") and not line.startswith("# ") else line
        for line in text.splitlines()
    )
    keys = tomllib.loads(spelled)
    assert keys["mode"]["default"] == "observe"
    assert set(keys) == {"version", *(name for name, _ in reference.sections() if "." not in name)}
