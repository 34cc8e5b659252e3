# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a real Lua interpreter that runs etc/coloc.lua, and a peer on a real socket."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.lua.peer import Behaviour, Peer

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
PATIENT_MS = 20_000
USER = 54321  # an ordinary user, never the uid that runs the tests


def usable(interpreter: str) -> bool:
    """Is it there, and does it find lua-posix?"""
    probe = [interpreter, "-e", 'require("posix.poll")']
    return (
        shutil.which(interpreter) is not None
        and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


INTERPRETERS = [name for name in ("lua5.1", "lua5.3", "lua5.4") if usable(name)]


@dataclass
class Result:
    """What one call of the hook did."""

    called: bool = False
    rc: float = -99
    ms: float = 0.0
    user: list[str] = field(default_factory=list)
    info: list[str] = field(default_factory=list)
    error: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    long: dict[str, int] = field(default_factory=dict)  # lengths of values beyond 400 KB
    work: dict[str, int] = field(default_factory=dict)  # with Hook.measure; see harness.lua


class Lua(str):
    """Lua source, for values that are too large to be written out."""


def lua_literal(value: Any) -> str:
    """A Python value as Lua source; bytes and str become strings byte for byte."""
    if isinstance(value, Lua):
        return str(value)
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return '"' + "".join(f"\\{byte:03d}" for byte in value) + '"'
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"[{lua_literal(k)}]={lua_literal(v)}" for k, v in value.items()) + "}"
        )
    return "{" + ",".join(lua_literal(item) for item in value) + "}"


def spank(v: str = "1", **options: str | bytes) -> dict[str, Any]:
    """job_desc fields of what the SPANK plugin forwards, indexed from 0."""
    given: dict[str, str | bytes] = {"V": v, **options}
    entries = {
        i: b"COLOC_" + k.encode() + b"=" + (v if isinstance(v, bytes) else v.encode())
        for i, (k, v) in enumerate(given.items())
    }
    return {"spank_job_env": entries, "spank_job_env_size": len(entries)}


def submit(uid: int = USER, fails: Sequence[str] = (), **job: Any) -> dict[str, Any]:
    return {"op": "submit", "uid": uid, "fails": dict.fromkeys(fails, True), "job": job}


def modify(uid: int = USER, rec: dict[str, Any] | None = None, **job: Any) -> dict[str, Any]:
    return {"op": "modify", "uid": uid, "rec": rec or {}, "job": job}


def parse_results(out: str) -> dict[int, Result]:
    results: dict[int, Result] = {}
    for line in out.splitlines():
        number, what, name, hexed = line.split("\t")
        value = bytes.fromhex(hexed).decode("utf-8", "replace")
        result = results.setdefault(int(number), Result())
        match what:
            case "called":
                result.called = value == "true"
            case "rc":
                result.rc = float(value)
            case "ms":
                result.ms = float(value)
            case "field":
                result.fields[name] = value.removesuffix(".0")
            case "env":
                result.env[name] = value
            case "long":
                result.long[name] = int(value)
            case "work":
                result.work[name] = int(float(value))
            case _:
                getattr(result, what).append(value)
    return results


class Hook:
    """Runs steps in one Lua state, as slurmctld keeps one."""

    def __init__(self, interpreter: str, folder: Path):
        self.interpreter = interpreter
        self.folder = folder
        self.socket = folder / "s"
        self.off_file = folder / "off"
        # An answer is in time on a busy machine too; the tests of late ones set a deadline.
        self.setup: dict[str, Any] = {
            "socket": str(self.socket), "off_file": str(self.off_file), "deadline_ms": PATIENT_MS,
        }  # fmt: skip
        self.release = "24.11"
        self.measure = False
        self.peer: Peer | None = None

    def serve(self, *behaviours: Behaviour, keeps: bool = False) -> Peer:
        if self.peer:
            self.peer.close()
        self.peer = Peer(self.socket, behaviours, keeps=keeps)
        return self.peer

    def run(self, *steps: dict[str, Any], env: dict[str, str] | None = None) -> list[Result]:
        scenario = self.folder / "scenario.lua"
        text = {
            "lua": str(ROOT / "etc"),
            "setup": self.setup,
            "release": self.release,
            "measure": self.measure,
            "steps": steps,
        }
        scenario.write_text("return " + lua_literal(text), encoding="ascii")
        # restore_signals=False: SIGPIPE stays ignored, as in slurmctld.
        done = subprocess.run(
            [self.interpreter, str(HERE / "harness.lua"), str(scenario)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            restore_signals=False,
            env=env,
        )
        assert done.returncode == 0, done.stderr
        results = parse_results(done.stdout)
        return [results[i] for i, step in enumerate(steps, 1) if step["op"] != "sleep"]


@pytest.fixture(params=INTERPRETERS or [""])
def hook(request: pytest.FixtureRequest) -> Iterator[Hook]:
    """The hook under each installed Lua; its socket's path is short (108 bytes at most)."""
    if not request.param:
        pytest.skip("no Lua interpreter with lua-posix here (apt-get install lua5.1 lua-posix)")
    with tempfile.TemporaryDirectory(prefix="lua") as folder:
        hook = Hook(request.param, Path(folder))
        yield hook
        if hook.peer:
            hook.peer.close()
