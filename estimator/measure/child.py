# SPDX-License-Identifier: Apache-2.0
"""One training in a process of its own: ``python -m estimator.measure.child``, its key on stdin.

With all imports done it waits for that line and touches no GPU before. Prints one line of JSON when
its steps are done and holds its memory until its standard input ends, so that whoever started it
can look at NVML meanwhile: the allocator gives nothing back, so what is held then is the peak.
Needs torch and a GPU.
"""

import json
import sys
from contextlib import suppress
from typing import Any

import torch

from estimator.measure.models import job
from estimator.measure.plan import Run, of_key
from slurm_coloc.summarize.jobs import arguments

STEPS = 4
MIB = 2**20


def optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """By its name in `coloc estimate`, as PyTorch makes it by default."""
    parameters = model.parameters()
    if name == "adam":
        return torch.optim.Adam(parameters)
    if name == "adamw":
        return torch.optim.AdamW(parameters)
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9 if name == "sgd-momentum" else 0.0)


def train(run: Run, device: str = "cuda", steps: int = STEPS) -> None:
    """A plain loop: batch, zero_grad, forward, backward, step."""
    with torch.device(device):
        todo = job(run)
    model = todo.model.train().to(device)
    half = run.precision == "bf16"
    if half:
        model = model.to(torch.bfloat16)
    steps_by = optimizer(run.optimizer, model)
    amp = run.precision == "amp"
    scaler = torch.amp.GradScaler(device, enabled=amp)
    for _ in range(steps):
        with torch.device(device):
            given, keywords = arguments(todo.inputs(run.batch))
        if half:
            given = tuple(_low(x) for x in given)
            keywords = {name: _low(x) for name, x in keywords.items()}
        steps_by.zero_grad()
        with torch.autocast(device, dtype=torch.float16, enabled=amp):
            output = model(*given, **keywords)
            loss = todo.loss(output)
        scaler.scale(loss).backward()
        scaler.step(steps_by)
        scaler.update()


def _low(x: Any) -> Any:
    floats = isinstance(x, torch.Tensor) and x.is_floating_point()
    return x.to(torch.bfloat16) if floats else x


def told() -> dict[str, Any]:
    """What torch says of the memory at its highest, and of itself."""
    torch.cuda.synchronize()
    return {
        "status": "ok",
        "reserved_mib": -(-torch.cuda.max_memory_reserved() // MIB),
        "allocated_mib": -(-torch.cuda.max_memory_allocated() // MIB),
        "card": torch.cuda.get_device_name(),
        "capability": torch.cuda.get_device_capability()[0],
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def main() -> int:
    """Import, wait for a run, train, tell, wait."""
    with suppress(ImportError):  # a run that needs it says so
        import timm  # noqa: F401
        import transformers  # noqa: F401
    key = sys.stdin.readline().strip()
    try:
        train(of_key(key))
        answer = told()
    except torch.cuda.OutOfMemoryError:
        answer = {"status": "oom"}
    except Exception as err:  # whatever a model's code does is this run's result
        answer = {"status": f"failed: {type(err).__name__}: {str(err)[:120]}"}
    print(json.dumps(answer), flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
