# SPDX-License-Identifier: Apache-2.0
"""``coloc summarize``: a summary with a recording, from a model or from a training script."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.api import PRECISIONS
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.request import shape_of

ROOT = Path(__file__).resolve().parents[2]
# Our package comes last on the path: what the user's environment has is the user's own.
START = (
    f"import sys; sys.path.append({str(ROOT)!r});"
    " from slurm_coloc.summarize.worker import main; main()"
)
CHECK = "import sys, importlib.util as u; sys.exit(0 if u.find_spec('torch') else 3)"
NO_TORCH = (
    "torch is not installed for {}: activate the environment that trains, or pip install torch"
    " there"
)
#: programs that start a script in several processes; it is recorded as the first one of one
LAUNCHERS = ("torchrun", "accelerate")
MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
ONE_PROCESS = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29501",
}
QUIET = {"WANDB_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false", "COLOC_SUMMARIZE": "1"}


def _python(command: list[str]) -> str:
    """The interpreter that has torch: of the command, ours, or the first on PATH."""
    if command and Path(command[0]).name.startswith("python"):
        found = shutil.which(command[0])
        if found is None:
            raise UsageFault(f"{command[0]}: no such program")
        if not _has_torch(found):
            raise UsageFault(NO_TORCH.format(found), "no_torch")
        return found
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    launcher = shutil.which(command[0]) if command else None
    beside = [str(Path(launcher).with_name("python"))] if launcher else []
    for name in (*beside, "python", "python3"):
        found = shutil.which(name)
        if found is not None and _has_torch(found):
            return found
    raise UsageFault(NO_TORCH.format(sys.executable), "no_torch")


def _has_torch(python: str) -> bool:
    done = subprocess.run([python, "-c", CHECK], capture_output=True, check=False)
    return done.returncode == 0


def _request(words: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Target or command. Raises UsageFault."""
    first = words[0]
    if script := _launched(words):
        return {"command": script, "launched": _environment(words), **options}
    if len(words) == 1 and ":" in first and not first.endswith(".py"):
        return {"target": first, **options}
    if Path(first).name.startswith("python"):
        if len(words) < 2:
            raise UsageFault("give the script: coloc summarize -- python train.py ...")
        return {"command": words[1:], **options}
    if first.endswith(".py"):
        return {"command": words, **options}
    raise UsageFault(
        f"{first!r} is neither MODULE:CALLABLE nor a Python script: coloc summarize timm:resnet50,"
        " or coloc summarize -- python train.py ..."
    )


def _launched(words: list[str]) -> list[str]:
    """Script and arguments behind a launcher and its options; empty without one."""
    module = words[2:3] if words[1:2] == ["-m"] and Path(words[0]).name.startswith("python") else []
    if Path(words[0]).name not in LAUNCHERS and not set(module) & set(MODULES):
        return []
    found = next((place for place, word in enumerate(words) if word.endswith(".py")), len(words))
    return words[found:]


def _environment(words: list[str]) -> dict[str, str]:
    """What the launcher would tell the script."""
    given = [word.partition("=") for word in words]
    for place, (name, _, value) in enumerate(given[:-1]):
        if name == "--mixed_precision":  # of accelerate
            return ONE_PROCESS | {"ACCELERATE_MIXED_PRECISION": value or words[place + 1]}
    return ONE_PROCESS


def _run(python: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """The worker's answer. What the user's code prints goes to standard error."""
    more = request.get("launched") or {}
    with tempfile.TemporaryDirectory(prefix="coloc-summarize-") as folder:
        asked, path = Path(folder, "request.json"), Path(folder, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        call = [python, "-c", START, str(asked), str(path)]
        sys.stdout.flush()
        try:
            done = subprocess.run(
                call,
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=QUIET | more | dict(os.environ),
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            hint = "no training step within the time; --timeout gives more"
            return {"error": {"message": f"given up after {timeout_s:.0f} s", "hint": hint}}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            why = f"{python} ended with {done.returncode} and gave no answer"
            return {"error": {"message": why, "hint": "Python 3.11 or later is needed"}}
        return found if isinstance(found, dict) else {}


def _as_json(found: dict[str, Any]) -> dict[str, Any]:
    summary = parse_summary(found["text"])
    known = summary.recording
    names = ("batch", "scales", "precision", "optimizer", "accumulate", "seq_len", "torch")
    return {
        "schema": 1,
        "text": found["text"],
        "notes": list(found.get("notes", ())),
        "recording": {name: getattr(known, name) for name in names} if known else None,
        "summary": {
            "format": summary.format,
            "family": summary.family,
            "parameters": summary.parameters,
            "layers": len(summary.layers),
        },
    }


def _may_write(output: Path) -> None:
    """Before the user's code runs for minutes. Raises UsageFault."""
    there = os.access(output, os.F_OK)
    place, rights = (output, os.W_OK) if there else (output.parent, os.W_OK | os.X_OK)
    if not os.access(place, rights) or (there and output.is_dir()):
        raise UsageFault(f"{output}: no file can be written there")


def _failed(error: dict[str, Any]) -> SummaryError:
    lines = [str(error.get("message", "no answer"))]
    if error.get("where"):
        lines.append(f"  in {error['where']}")
    if error.get("hint"):
        lines.append(f"  try: {error['hint']}")
    return SummaryError("\n".join(lines), str(error.get("code", "not_recorded")))


def _summarize(
    words: list[str] | None = typer.Argument(
        None, metavar="MODULE:CALLABLE | -- python SCRIPT ...", help="What to record."
    ),
    batch_size: int | None = typer.Option(None, min=1, max=2**30, help="Of one process."),
    shape: str | None = typer.Option(None, "--input", help="Shape of one sample: 3x224x224."),
    seq_len: int | None = typer.Option(None, min=1, max=2**24, help="Tokens a sample."),
    optimizer: str | None = typer.Option(None, help=" | ".join(OPTIMIZERS)),
    precision: str | None = typer.Option(None, help=" | ".join(PRECISIONS)),
    output: Path | None = typer.Option(None, "-o", "--output", help="File; default stdout."),
    real: bool = typer.Option(False, "--real", help="On the CPU with numbers, few samples."),
    as_json: bool = typer.Option(False, "--json", help="Text and what is known as JSON."),
    timeout: float = typer.Option(600.0, min=1, help="Seconds for the user's code."),
) -> None:
    """Write the summary that --coloc wants: a table and a recording of one training step.

    Needs no GPU. MODULE:CALLABLE gives a torch module, (module, example inputs), or an object with
    model and inputs(batch_size); timm:NAME and transformers:NAME are known. With a script, its own
    code runs up to the first optimizer step and is stopped there.
    """
    if not words:
        raise UsageFault("give MODULE:CALLABLE, or -- python SCRIPT ...")
    for value, known in ((optimizer, OPTIMIZERS), (precision, PRECISIONS)):
        if value is not None and value not in known:
            raise UsageFault(f"{value!r} is none of {', '.join(known)}", "bad_option")
    options = {
        "batch_size": batch_size,
        "shape": shape_of(shape),
        "seq_len": seq_len,
        "optimizer": optimizer,
        "precision": precision,
        "real": real,
    }
    request = _request(words, options)
    if output is not None:
        _may_write(output)
    python = _python(words if "command" in request else [])
    found = _run(python, request, timeout)
    if "operator torchvision::" in found.get("error", {}).get("message", ""):
        request["no_operators"] = True
        found = _run(python, request, timeout)
    if found.get("error", {}).get("fake") and not real:
        typer.echo("coloc: once more on the CPU, with numbers and few samples", err=True)
        found = _run(python, request | {"real": True}, timeout)
    if "error" in found:
        raise _failed(found["error"])
    for note in found.get("notes", ()):
        typer.echo(f"note: {note}", err=True)
    if as_json:
        typer.echo(json.dumps(_as_json(found)))
    elif output is None:
        sys.stdout.write(found["text"])
    if output is not None:
        try:
            output.write_text(found["text"], encoding="utf-8")
        except OSError as err:
            if not as_json:  # which has the text
                sys.stdout.write(found["text"])
            raise UsageFault(f"{output}: {err.strerror}") from err
        typer.echo(f"{output}: ready for sbatch --coloc {output} ...", err=True)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("summarize")(_summarize)
