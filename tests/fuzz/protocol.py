# SPDX-License-Identifier: Apache-2.0
"""What comes over sockets: lines to colocd, frames of coloc/1, and the messages in them. Anything
is a checked value or an error that says what is wrong."""

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

from pydantic import ValidationError

from slurm_coloc.adapters.link import frames
from slurm_coloc.adapters.server import decode, encode
from slurm_coloc.core.decide.decision import Estimate, Reason
from slurm_coloc.core.decide.prepared import Estimated, Prepared, Variant
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.nodes import epilog, prolog, usage
from slurm_coloc.flow.submit.message import read_message
from slurm_coloc.front.tickets import Options

LONGEST = 20_000
DEEPEST = 6
KEY, NONCE = bytes(range(32)), "0123456789abcdef" * 2
PREPARED = Prepared(
    (Variant("", False, Estimated(Estimate("text", 5, 6), key="k"), {"a100-40gb": 0.5}),),
    Estimated(None, Reason.SLOW_ESTIMATE, "x"),
)
MESSAGES: tuple[dict[str, Any], ...] = (
    {"v": 1, "op": "submit", "uid": 1000, "partition": "gpu", "tres_per_node": "gres/gpu:1",
     "num_tasks": 1, "requeue": 1, "env": ["A"], "loaded_monotonic_ms": 1_700_000_000,
     "coloc": {"summary": "eNoDAAAAAAE=", "batch_size": 32, "optimizer": "adam", "slot": 3600,
               "policy": "collocate", "kind": "batch", "max_slowdown": 1.5, "ticket": "0" * 32,
               "memory_mib": 10240, "training": "accumulate,fsdp"}},
    {"v": 1, "op": "report", "job_id": 7, "restart": 0, "node": "n1", "exit_code": 1,
     "gpu_uuids": ["GPU-1"], "evidence": {"oom": True, "kind": "torch", "line": "out of memory"}},
    {"v": 1, "op": "launch", "job_id": 7, "node": "n1", "restart": 0, "decision": "0a0b0c"},
    {"v": 1, "op": "ticket", "coloc": {"summary": "eNoDAAAAAAE=", "batch_size": "32"}},
    {"v": 1, "op": "use", "use": {"job_id": 7, "restart": 0, "gpus": [], "series": None}},
    {"v": 1, "op": "prepared", "prepared": PREPARED.as_json()},
    {"v": 1, "key": KEY.hex(), "nonce": NONCE, "cluster": "c", "node": "n1"},
)  # fmt: skip
LINES: tuple[bytes, ...] = (
    f"coloc/1 {NONCE} active\n".encode(),
    f"coloc/1 {NONCE} standby\n".encode(),
    b"auth MUNGE:AwQDAADq+/=:\n",
    b"refused busy too many\n",
    frames.Session(KEY, NONCE, server=False).seal(b'{"v": 1, "op": "ping"}'),
)
CORPUS: tuple[bytes, ...] = (
    *(json.dumps(message).encode() + b"\n" for message in MESSAGES),
    *LINES,
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 2**70, 10**40, 1e308, -0.0, 0.5, "", "x",
    "x" * 300, "\x00", "\x1b[0m", "../..", "gpu:1", "é\ud800", [], {}, [[]], [1] * 70, {"v": 1},
    {"": None}, "1" * 70_000, "NaN",
)  # fmt: skip


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, ...]] = []
    for key, inner in items:
        found.append((*at, key))
        if isinstance(inner, dict | list) and len(at) < DEEPEST:
            found += _paths(inner, (*at, key))
    return found


def _changed(random: Random, line: bytes) -> bytes:
    """Another value at some place of a JSON document."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return _bytes(random, line)
    if not isinstance(document, dict) or not document:
        return line
    for _ in range(random.choice((1, 1, 2, 4))):
        paths = _paths(document)
        if not paths:
            break
        *way, last = random.choice(paths)
        inner: Any = document
        for key in way:
            inner = inner[key]
        match random.randrange(4):
            case 0:
                del inner[last]
            case 1 if isinstance(inner, dict):
                name = random.choice([*inner, "v"]) + random.choice(("", "x", "\n"))
                inner[name] = deepcopy(random.choice(VALUES))
            case 2 if len(_paths(document)) < 200:
                inner[last] = json.loads(random.choice(CORPUS[: len(MESSAGES)]))
            case _:
                inner[last] = deepcopy(random.choice(VALUES))
    return json.dumps(document).encode() + b"\n"


def _bytes(random: Random, line: bytes) -> bytes:
    start = random.randrange(len(line) + 1)
    some = b'{}[]",:\\ \n\x00\xff\x80eE+-0123456789abcdefunlt/='
    new = bytes(random.choice(some) for _ in range(random.choice((0, 1, 1, 2, 30))))
    if random.random() < 0.05:
        new = random.choice((b"[" * 5000, b'{"a":' * 3000, b"\xf0\x9f", b"1e999999", b'"\\ud800"'))
    return line[:start] + new + line[start + random.choice((0, 1, 1, 3, 30)) :]


def mutated(random: Random, inputs: Sequence[bytes]) -> bytes:
    line = random.choice(inputs)
    for _ in range(random.choice((1, 1, 2, 3))):
        line = random.choice((_changed, _changed, _bytes))(random, line)
    return line[:LONGEST]


def _said(work: Callable[[], object]) -> str:
    try:
        return type(work()).__name__
    except ColocError as err:
        assert len(err.message) < 1000
        return f"{err.code} {re.sub(r'[0-9]+', '0', err.message)[:50]}"
    except ValidationError:  # the front tells it as a UsageFault
        return "not valid"


def one(line: bytes) -> str:
    """What came of it, in a word."""
    made = [_said(lambda: frames.read_greeting(line)), _said(lambda: frames.credential_in(line))]
    made.append(_said(lambda: frames.Session(KEY, NONCE, server=True).open(line)))
    made.append(_said(lambda: frames.read_hello(line)))
    made.append(_said(lambda: frames.read_answer(line)))
    try:
        message = decode(line)
    except ColocError as err:
        assert encode({"v": 1, "ok": False, "error": {"code": err.code, "message": err.message}})
        return " ".join([*made, err.code])
    made.append(_said(lambda: read_message(message)))
    made.append(_said(lambda: epilog.read(message)))
    made.append(_said(lambda: prolog.read_launch(message)))
    made.append(_said(lambda: Options.model_validate(message.get("coloc"))))
    made.append(_said(lambda: Prepared.read(message.get("prepared"))))
    made.append(_said(lambda: usage.read(message.get("use"), 7, 0)))
    return " ".join(made)
