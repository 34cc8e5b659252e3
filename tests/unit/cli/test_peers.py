# SPDX-License-Identifier: Apache-2.0
"""The kernel tells colocd who asks: others may neither act nor see jobs that are not theirs."""

import os
import stat
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.flow.client.request import call_socket as ask
from tests.harness.other_user import as_user
from tests.unit.cli.conftest import STRANGER, Site

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


def as_stranger(what: Callable[[], Any]) -> Any:
    return as_user(STRANGER, what)


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "submit", "uid": 0, "coloc": {}},
        {"op": "report", "job_id": 7, "restart": 1, "node": "n1", "uid": 4242},
        {"op": "reload"},
        {"op": "report", "uid": 0, "peer": 0},
    ],
    ids=lambda fields: fields["op"],
)
def test_only_slurm_may_act(site: Site, fields: dict[str, Any]) -> None:
    told = as_stranger(lambda: ask(site.socket, **fields))
    assert told == {"error": "not-allowed"}


def test_others_see_only_their_own(site: Site) -> None:
    jobs = as_stranger(lambda: ask(site.socket, "jobs"))["jobs"]
    assert [row["job_id"] for row in jobs] == [8]
    found = as_stranger(lambda: ask(site.socket, "history"))
    assert [row["job_id"] for row in found["runs"]] == [8]
    assert found["observed"] == []


@pytest.mark.parametrize("since_s", ["1", None, -1, 10**400, 2**63, float("nan"), [0]], ids=repr)
def test_a_moment_that_is_none_is_refused(site: Site, since_s: object) -> None:
    """A number beyond 64 bits would be an error of the database's."""
    told = as_stranger(lambda: ask(site.socket, "history", since_s=since_s))
    assert told == {"error": "bad-request"}


def test_a_uid_in_the_request_changes_nothing(site: Site) -> None:
    jobs = as_stranger(lambda: ask(site.socket, "jobs", uid=0, seen_as=0))["jobs"]
    assert [row["uid"] for row in jobs] == [STRANGER]


def test_a_foreign_job_looks_like_none(site: Site) -> None:
    own = as_stranger(lambda: ask(site.socket, "explain", job_id=8))
    assert own["job_id"] == 8
    foreign = as_stranger(lambda: ask(site.socket, "explain", job_id=7))
    missing = as_stranger(lambda: ask(site.socket, "explain", job_id=99))
    assert foreign == missing == {"error": "unknown-job"}


def test_the_database_is_closed_to_others(site: Site) -> None:
    mode = (site.folder / "state").stat().st_mode
    assert stat.S_IMODE(mode) & 0o077 == 0
    told = as_stranger(lambda: os.access(site.folder / "state" / "coloc.db", os.R_OK))
    assert told is False
