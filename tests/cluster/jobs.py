# SPDX-License-Identifier: Apache-2.0
"""Jobs for the cluster tests: summaries of a wanted size and training stand-ins."""

import json
import os
import pwd
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import procs
from slurm_coloc.lab.client import Done
from slurm_coloc.lab.lab import Lab
from tests.harness import program
from tests.harness.answers import as_documented

RULE = "=" * 64
THIN = "-" * 64


def mlp_summary(millions: int) -> str:
    """torchsummary's text of a network of about so many million parameters, batch 32."""
    width = 1000
    layers = max(1, millions)
    rows = [
        f"{f'Linear-{i}':>18} {f'[32, {width}]':>26} {'1,000,000':>15}"
        for i in range(1, layers + 1)
    ]
    head = f"{THIN}\n        Layer (type)               Output Shape         Param #\n{RULE}\n"
    total = f"{layers * 1_000_000:,}"
    foot = (
        f"\n{RULE}\nTotal params: {total}\nTrainable params: {total}\nNon-trainable params: 0\n"
        f"{THIN}\nInput size (MB): 0.12\nForward/backward pass size (MB): 1.00\n"
        f"Params size (MB): {layers * 3.81:.2f}\nEstimated Total Size (MB): {layers * 4.0:.2f}\n"
        f"{THIN}\n"
    )
    return head + "\n".join(rows) + foot


@dataclass(frozen=True)
class Desk:
    """A user of a lab (None: root) with a summary file at hand."""

    lab: Lab
    user: str | None
    summary: Path

    def submit(self, *args: str, wrap: str | None = None, script: str | None = None) -> int:
        """sbatch --coloc with this desk's summary."""
        return self.lab.sbatch(
            f"--coloc={self.summary}", *args, wrap=wrap, script=script, user=self.user
        )

    def train(self, **options: object) -> str:
        """The command line of a training stand-in."""
        return train(self.lab, **options)

    def explain(self, job_id: int) -> dict[str, Any]:
        """`coloc explain --json` as this user."""
        return coloc(self.lab, "explain", str(job_id), user=self.user)


def train(lab: Lab, **options: object) -> str:
    """``emu-train`` with its options: memory_mib=..., work_s=..., smact=..."""
    words = [str(lab.dir / "bin" / "emu-train")]
    for name, value in options.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    return " ".join(words)


def desk(lab: Lab, millions: int = 300, user: int = 0) -> Desk:
    """A desk of the lab's n-th user; 300 million parameters under Adam are about 5 GiB."""
    name = lab.users[user]
    path = lab.home(name) / f"model-{millions}m.txt"
    path.write_text(mlp_summary(millions))
    path.chmod(0o644)
    return Desk(lab, name, path)


@contextmanager
def other_text(path: Path) -> Iterator[str]:
    """A file of a shared lab that a test rewrites: text and time of change come back, since the
    doctor compares the time with that of slurmd's start."""
    text, times = path.read_text(), path.stat()
    try:
        yield text
    finally:
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def own_slurm(lab: Lab, user: str, plugstack: str) -> dict[str, str]:
    """The environment of a user who has plugins of their own: an own slurm.conf names them."""
    home = lab.home(user)
    (home / "plugstack.conf").write_text(plugstack + "\n")
    lines = (lab.dir / "slurm.conf").read_text().splitlines()
    theirs = ("plugstackconfig", "clifilterplugins")  # its Lua stands beside slurm.conf
    kept = [line for line in lines if not line.lower().startswith(theirs)]
    kept.append(f"PlugStackConfig={home}/plugstack.conf")
    (home / "slurm.conf").write_text("\n".join(kept) + "\n")
    return {"SLURM_CONF": f"{home}/slurm.conf"}


ASKED_EACH_S = 0.3
_asked_s: dict[str | None, float] = {}  # when a user last asked so (monotonic seconds)


def coloc(lab: Lab, *args: str, user: str | None = None) -> dict[str, Any]:
    """A `coloc ... --json`; SlurmError where it fails."""
    done = _coloc(lab, args, user)
    if done.returncode:
        raise SlurmError(f"{done.args} ended with {done.returncode}: {done.stderr}")
    return as_documented(args, _object(done.stdout))


def known(lab: Lab, *args: str, user: str | None = None) -> dict[str, Any]:
    """The same; {} where it fails, as before colocd has seen a job."""
    done = _coloc(lab, args, user)
    return {} if done.returncode else _object(done.stdout)


def _coloc(lab: Lab, args: tuple[str, ...], user: str | None) -> Done:
    """What tests ask while they wait is asked without a program's start, and not as often as that
    would allow: colocd answers a user five times a second."""
    words = ["coloc", *args, "--json"]
    if args[0] not in program.FORKED:
        return lab.run(words, user=user, check=False)
    time.sleep(max(0.0, _asked_s.get(user, 0.0) + ASKED_EACH_S - time.monotonic()))
    _asked_s[user] = time.monotonic()
    who = pwd.getpwnam(user) if user else pwd.getpwuid(0)
    return program.run(words, lab.login_env(user), lab.home(user), who.pw_uid, who.pw_gid)


def _object(text: str) -> dict[str, Any]:
    answer = json.loads(text)
    assert isinstance(answer, dict)
    return answer


def ask(lab: Lab, **request: Any) -> dict[str, Any]:
    """One request to the lab's colocd as root, straight to its socket."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(10)
        peer.connect(str(lab.dir / "coloc" / "colocd.sock"))
        peer.sendall(json.dumps({"v": 1, **request}).encode() + b"\n")
        answer = json.loads(peer.makefile("rb").readline())
    assert isinstance(answer, dict)
    return answer


def until(
    check: Callable[[], Any], timeout: float = 30, what: str = "condition", each_s: float = 0.1
) -> Any:
    """Poll ``check`` until it is true; its value. AssertionError after ``timeout`` seconds."""
    began = time.monotonic()
    while not (found := check()):
        waited = time.monotonic() - began
        assert waited < timeout, f"not within {timeout:g} s: {what}"
        time.sleep(procs.pause_s(waited, each_s))
    return found


def shards(job: dict[str, str]) -> int:
    """Shards in a job's TresPerNode; 0 where there are none."""
    tres = job.get("TresPerNode", "")
    return int(tres.rsplit(":", 1)[1]) if "shard" in tres else 0
