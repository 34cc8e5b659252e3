# SPDX-License-Identifier: Apache-2.0
"""The process that runs the user's code, under the user's own Python.

`coloc summarize` starts it with two arguments: a file with the request and one for the answer, both
JSON. Request: ``target`` or ``command`` (list), and the fields of Wish, ``real`` (no fake tensors),
``no_operators`` (see compat).
Answer: ``text``, ``notes``; or ``error`` as failure.told gives it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from slurm_coloc.summarize.failure import told
from slurm_coloc.summarize.jobs import Wish


def wish_of(request: dict[str, Any]) -> Wish:
    """The options of the request."""
    shape = request.get("shape")
    return Wish(
        batch_size=request.get("batch_size"),
        shape=tuple(shape) if shape else None,
        seq_len=request.get("seq_len"),
        optimizer=request.get("optimizer"),
        precision=request.get("precision") or "fp32",
    )


def answer(path: str, given: dict[str, Any]) -> None:
    """Write the answer: whole or not at all."""
    temporary = Path(f"{path}.part")
    temporary.write_text(json.dumps(given), encoding="utf-8")
    temporary.replace(path)


def main() -> None:
    """See the module."""
    asked, path = sys.argv[1:3]
    request = json.loads(Path(asked).read_text(encoding="utf-8"))
    # Its errors come back as exceptions, and are told once.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    try:
        if request.get("no_operators"):
            from slurm_coloc.summarize.compat import torchvision_without_operators

            torchvision_without_operators()
        if request.get("command"):
            from slurm_coloc.summarize.script.run import run

            run(request, path)
        else:
            _of_target(request, path)
    except BaseException as err:
        answer(path, {"error": told(err)})
        # Threads of a library, or what the user's code left behind, must not keep it alive.
        sys.stderr.flush()
        os._exit(1)


def _of_target(request: dict[str, Any], path: str) -> None:
    from slurm_coloc.summarize.making import made
    from slurm_coloc.summarize.target import maker

    wish = wish_of(request)
    found = made(maker(request["target"], wish), wish)
    answer(path, {"text": found.text, "notes": list(found.notes)})


if __name__ == "__main__":
    main()
