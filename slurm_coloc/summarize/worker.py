# SPDX-License-Identifier: Apache-2.0
"""The process that runs the user's code, under the user's own Python.

`coloc summarize` starts it with two arguments: a file with the request and one for the answer, both
JSON. Request: ``target`` or ``command`` (list), the fields of Wish, ``real`` (no fake tensors) and
``no_operators`` (see without_operators).
Answer: ``text`` and ``notes``, or ``error`` as failure.described gives it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import types
from pathlib import Path
from typing import Any

import torch

from slurm_coloc.summarize.failure import described
from slurm_coloc.summarize.jobs import Wish

_LIBRARIES: list[Any] = []  # the operators live as long as their library object


def without_operators() -> None:
    """Lets torchvision be imported where its compiled operators do not load (a CUDA build on a
    login node, another release than torch's): its models need none. Call it before the import."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)
    name = "torchvision._meta_registrations"
    sys.modules[name] = types.ModuleType(name)


def main() -> None:
    """See the module."""
    request_path, path = sys.argv[1:3]
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))

    def answer(given: dict[str, Any]) -> None:
        """Write the answer: whole or not at all."""
        temporary = Path(f"{path}.part")
        temporary.write_text(json.dumps(given), encoding="utf-8")
        temporary.replace(path)

    # Its errors also come as exceptions, which the answer reports.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    try:
        if request.get("no_operators"):
            without_operators()
        wish = Wish.of(request)
        if request.get("command"):
            from slurm_coloc.summarize.script.run import run

            run(request["command"], wish, bool(request.get("real")), answer)
        else:
            from slurm_coloc.summarize.making import made
            from slurm_coloc.summarize.target import maker

            found = made(maker(request["target"], wish), wish)
            answer({"text": found.text, "notes": list(found.notes)})
    except BaseException as err:
        answer({"error": described(err)})
        # Threads of a library, or what the user's code left behind, must not keep it alive.
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
