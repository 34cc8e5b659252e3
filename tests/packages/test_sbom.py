# SPDX-License-Identifier: Apache-2.0
"""The list of parts beside the wheel (CycloneDX): the lock file's packages with their hashes."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_lists_what_the_lock_file_installs() -> None:
    (path,) = (ROOT / "build" / "packages" / "wheel").glob("slurm_coloc-*.cdx.json")
    found = json.loads(path.read_text())
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "slurm-coloc"
    lock = (ROOT / "etc" / "requirements.lock").read_text()
    locked = set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", lock, re.MULTILINE))
    parts = found["components"]
    assert {(one["name"], one["version"]) for one in parts} == locked
    told = {item["content"] for one in parts for ref in one["externalReferences"]
            for item in ref.get("hashes", [])}  # fmt: skip
    assert told == set(re.findall(r"sha256:([0-9a-f]{64})", lock))
