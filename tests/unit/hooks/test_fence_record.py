# SPDX-License-Identifier: Apache-2.0
"""What the Epilog says of a run's fence, by what the SPANK plugin noted in its tasks."""

import json

import pytest

from .conftest import Node


@pytest.mark.parametrize(
    "note, method", [("", "mps"), ("the job has a /dev/shm of its own\n", "streams")]
)
def test_a_run_whose_task_could_not_use_mps_is_not_called_fenced_by_it(
    node: Node, note: str, method: str
) -> None:
    node.run("prolog")
    jobs = node.folder / "run/jobs"
    state = node.state() | {"sharing": {"method": "mps", "reason": ""}}
    (jobs / "77.json").write_text(json.dumps(state))
    (jobs / "77.nomps").write_text(note)  # as the plugin does
    (jobs / "77.nomps").chmod(0o600)
    node.run("epilog")
    report = node.report()
    assert report["method"] == method
    assert ("a task ran without MPS: " + note.strip() in report["notes"]) is bool(note)
    assert not (jobs / "77.nomps").exists()
