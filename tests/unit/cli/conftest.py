# SPDX-License-Identifier: Apache-2.0
"""A real colocd without Slurm, its database filled through the Store's own interface."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.lists import Recovery
from slurm_coloc.core.records.runs import Run, StoredDecision
from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.flow.client.request import call_socket as ask
from tests.harness.answers import as_documented

# A user of no rights who is none of those that colocd trusts.
STRANGER = 65534
OWNER = 4242
NOW = time.time()


@dataclass
class Site:
    """A colocd and its files."""

    folder: Path
    config: Path

    @property
    def socket(self) -> Path:
        return self.folder / "colocd.sock"

    def coloc(
        self, *argv: str, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """The real command line."""
        return subprocess.run(
            [sys.executable, "-m", "slurm_coloc", *argv],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "COLOC_CONFIG": str(self.config), **(env or {})},
            check=False,
        )

    def json(self, *argv: str) -> Any:
        done = self.coloc(*argv, "--json")
        assert done.returncode == 0, done.stderr
        return as_documented(argv, json.loads(done.stdout))


def decision(name: str, **changes: object) -> StoredDecision:
    """A row of decisions, as flow/submit/decide records one."""
    row: dict[str, Any] = {
        "id": name,
        "cluster": "c",
        "made_s": NOW - 300,
        "uid": OWNER,
        "account": "physics",
        "partition": "main",
        "mode": "on",
        "action": "collocate",
        "reason": "fits",
        "detail": "",
        "shards": 12,
        "shard_mib": 1024,
        "shards_per_gpu": 39,
        "estimator": "text",
        "memory_mib": 9800,
        "upper_mib": 11900,
        "smact": None,
        "fingerprint": "f",
        "options": "32/0/adam/fp32",
        "features": {
            "family": "cnn",
            "parameters": 25557032,
            "batch_size": 32,
            "seq_len": 0,
            "optimizer": "adam",
            "precision": "fp32",
            "given": ["batch_size"],
        },
        "exclusive_tres": "gres/gpu:1",
        "may_requeue": True,
        "bound": 1,
    }
    return StoredDecision(**row | changes)


def run_row(name: str, job_id: int, restart: int = 0, **changes: object) -> Run:
    """A row of runs."""
    row: dict[str, Any] = {
        "decision": name,
        "job_id": job_id,
        "restart": restart,
        "uid": OWNER,
        "submit_s": NOW - 300,
        "state": "RUNNING",
        "node": "n1",
        "tres": "gres/shard:12",
        "start_s": NOW - 200,
    }
    return Run(**row | changes)


def fill(store: Store) -> None:
    """Job 7 ran out of memory and runs again on a whole GPU; job 8, a stranger's, waits; one
    decision of observe mode."""
    evidence = {"oom": True, "kind": "cuda_oom", "line": "CUDA out of memory.\x1b[31m Tried"}
    store.decisions.add(decision("0123456789ab"))
    first = run_row("0123456789ab", 7)
    store.runs.see(first)
    store.runs.close(
        first,
        state="FAILED",
        outcome="oom-gpu",
        exit_code=1,
        end_s=NOW - 100,
        peak_mib=12000,
        gpu_uuids=["GPU-5a3b1c2d-0000-1111-2222-333344445555"],
        evidence=evidence,
        share_mib=12288,
        verdict="requeue",
    )
    store.recoveries.add(
        Recovery(
            decision="0123456789ab",
            job_id=7,
            restart=0,
            uid=OWNER,
            tres="gres/gpu:1",
            state="done",
            created_s=NOW - 100,
            updated_s=NOW - 99,
        )
    )
    store.note("0123456789ab", 7, "seen", "submitted")
    store.note("0123456789ab", 7, "ended", "ran out of GPU memory")
    store.runs.see(run_row("0123456789ab", 7, 1, tres="gres/gpu:1"))
    store.decisions.add(decision("00000000000b", uid=STRANGER))
    store.runs.see(run_row("00000000000b", 8, uid=STRANGER, state="PENDING", node=None))
    store.decisions.add(decision("00000000000c", mode="observe", bound=2))


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A colocd that has no Slurm commands."""
    folder = Path(tempfile.mkdtemp(prefix="coloc-cli-"))
    folder.chmod(0o755)
    state = folder / "state"
    state.mkdir(mode=0o700)
    (folder / "none").mkdir()
    config = folder / "coloc.toml"
    config.write_text(
        f"""version = 1
[daemon]
socket = "{folder}/colocd.sock"
state_dir = "{state}"
off_file = "{folder}/off"
slurm_user = "{pwd.getpwuid(os.geteuid()).pw_name}"
command_dir = "{folder}/none"
reconcile_s = 3600
[hooks]
spool_dir = "{folder}/spool"
"""
    )
    store = Store.open(state)
    fill(store)
    store.close()
    log = (folder / "log").open("wb")
    daemon = subprocess.Popen(
        [sys.executable, "-m", "slurm_coloc", "serve"],
        env={**os.environ, "COLOC_CONFIG": str(config)},
        stdout=log,
        stderr=log,
    )
    found = Site(folder, config)
    try:
        _wait(found, daemon)
        yield found
    finally:
        daemon.terminate()
        daemon.wait(20)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(site: Site, daemon: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and daemon.poll() is None:
        try:
            ask(site.socket, "ping", deadline_s=2)
            return
        except DaemonUnreachable:
            time.sleep(0.05)
    pytest.fail(f"colocd does not serve: {(site.folder / 'log').read_text()}")
