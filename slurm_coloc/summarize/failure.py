# SPDX-License-Identifier: Apache-2.0
"""What went wrong in a user's code: what, where in the user's own files, and what to try."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from slurm_coloc.errors import ColocError

_OURS = str(Path(__file__).resolve().parent)
_LIBRARIES = ("site-packages", "dist-packages", "<frozen", "/lib/python3")
_RANKS = "torchrun sets these: coloc summarize -- torchrun train.py ..."

_HINTS = (
    ("DataDependentOutput", "the code decides by the values of a tensor: there are none here"),
    ("DynamicOutputShape", "a shape hangs on the values of a tensor: there are none here"),
    ("CUDA", "the code needs a real GPU: guard that part with torch.cuda.is_available()"),
    ("not linked with support for cuda", "make tensors with .to(device) instead"),
    ("size mismatch", "the inputs do not fit the model: see --input, --seq-len"),
    ("shapes cannot be multiplied", "the inputs do not fit the model: see --input, --seq-len"),
    ("expected input", "the inputs do not fit the model: see --input"),
    ("Expected more than 1 value per channel", "give a --batch-size of 2 or more"),
    ("'LOCAL_RANK'", _RANKS),
    ("'RANK'", _RANKS),
    ("'WORLD_SIZE'", _RANKS),
    ("environment variable", _RANKS),
    (
        "its step keeps other tensors",
        "sequences of one length, if that is what differs; else sbatch --coloc=auto",
    ),
    ("No such file or directory", "run it where the script finds its data"),
)


def described(err: BaseException) -> dict[str, Any]:
    """``message``, ``where`` (file and line of the user's), ``hint``, ``code``."""
    if isinstance(err, ColocError):
        return {"message": err.message, "where": "", "hint": "", "code": err.code}
    text = str(err).strip().split("\n")[0][:300]
    root: BaseException = err
    while root.__cause__ is not None:
        root = root.__cause__
    if root is not err:
        first = str(root).strip().split("\n")[0][:200]
        text += f" (because of {type(root).__name__}: {first})"
    kind = type(err).__name__
    hint = next((hint for part, hint in _HINTS if part in f"{kind} {err}"), "")
    return {
        "message": f"{kind}: {text}" if text else kind,
        "where": _where(err.__traceback__),
        "hint": hint or "give MODULE:CALLABLE instead: a function that makes the model alone",
        "code": "not_recorded",
    }


def _where(trace: TracebackType | None) -> str:
    """The innermost line that is neither ours nor a library's, and the module that was running."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_OURS)]
    own = [f for f in frames if not any(part in f.filename for part in _LIBRARIES)]
    modules = _modules(trace)
    inside = f" (module {modules[-1]})" if modules else ""
    for frame in reversed(own):
        line = f": {frame.line}" if frame.line else ""
        return f"{frame.filename}:{frame.lineno}, in {frame.name}{line}{inside}"
    return f"the model{inside}" if inside else ""


def _modules(trace: TracebackType | None) -> list[str]:
    """Class names of the torch modules that were running, the innermost last."""
    found = []
    while trace is not None:
        own = trace.tb_frame.f_locals.get("self")
        if isinstance(own, torch.nn.Module):
            found.append(type(own).__name__)
        trace = trace.tb_next
    return found
