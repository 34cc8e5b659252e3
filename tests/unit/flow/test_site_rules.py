# SPDX-License-Identifier: Apache-2.0
"""Modes: the off switch, rules in their order, the default; and the configuration file."""

from pathlib import Path

import pytest

from slurm_coloc.config import Config, load_config, parse_config
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.errors import ConfigError
from slurm_coloc.flow.submit.message import ColocOptions, Submission, read_message
from slurm_coloc.flow.submit.site_rules import Modes


def job(uid: int, account: str | None, partitions: tuple[str, ...]) -> Submission:
    return Submission(ColocOptions(), JobRequest(uid, account=account), partitions=partitions)


def config(tmp_path: Path, account: str = "ml") -> Config:
    return parse_config(
        {
            "version": 1,
            "daemon": {"off_file": str(tmp_path / "off")},
            "mode": {
                "default": "observe",
                "rules": [
                    {"user": "0", "mode": "off"},
                    {"partition": "shared", "account": account, "mode": "on"},
                    {"user": "nobody-here", "mode": "on"},
                ],
            },
        },
        "test",
    )


def test_first_matching_rule_wins(tmp_path: Path) -> None:
    modes = Modes(config(tmp_path))
    assert modes.of(job(0, "ml", ("shared",))) == "off"
    assert modes.of(job(1, "ml", ("shared",))) == "on"
    assert modes.of(job(1, "ml", ("other",))) == "observe"
    assert modes.of(job(1, None, ())) == "observe"


def test_slurm_takes_accounts_and_qos_in_any_case(tmp_path: Path) -> None:
    """sbatch passes them on as they are written; slurmctld compares without case."""
    _, request = read_message({"uid": 1, "account": "ML", "default_account": "Ml", "qos": "Short"})
    assert (request.account, request.default_account, request.qos) == ("ml", "ml", "short")
    assert Modes(config(tmp_path, "Ml")).of(job(1, request.account, ("shared",))) == "on"


def test_of_several_partitions_the_most_careful_mode_counts(tmp_path: Path) -> None:
    modes = Modes(config(tmp_path))
    assert modes.of(job(1, "ml", ("shared", "other"))) == "observe"
    assert modes.of(job(0, "ml", ("other", "shared"))) == "off"


def test_off_switch_is_above_all(tmp_path: Path) -> None:
    modes = Modes(config(tmp_path))
    (tmp_path / "off").touch()
    assert modes.of(job(1, "ml", ("shared",))) == "off"


def test_after_install_nothing_is_changed() -> None:
    assert Config().mode.default == "observe"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("version = 2", "version"),
        ("[pool]\nshard_mb = 1024", "pool.shard_mb"),
        ("[pool]\nshard_mib = 1", "pool.shard_mib"),
        ('[recovery]\nraise_by = "qos"', "qos"),
        ("[mode\n", "not TOML"),
        ('[mode]\ndefault = "maybe"', "mode.default"),
    ],
)
def test_wrong_files_are_told_with_their_key(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "coloc.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named) as caught:
        load_config(path)
    assert str(path) in caught.value.message


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "missing.toml")
