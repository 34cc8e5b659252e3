# SPDX-License-Identifier: Apache-2.0
"""docs/reference, made from the code: python -m slurm_coloc.cli.texts.pages docs/reference"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from slurm_coloc.cli.app import build
from slurm_coloc.cli.simulate import given
from slurm_coloc.cli.texts import manual, reference
from slurm_coloc.cli.tries import NEXT, STAYS
from slurm_coloc.core.decide.decision import TEXTS, Action
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.core.place.steering.snapshot import Why
from slurm_coloc.core.recover.next_try import Verdict
from slurm_coloc.core.recover.outcome import WHOSE, Outcome

MADE_BY = "python -m slurm_coloc.cli.texts.pages docs/reference"
HEAD = f"""\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by {MADE_BY} (make docs); edit the code instead. -->
"""

COMMANDS = """\
# Command line

Every command and option of `coloc`. Data go to standard output, messages to standard error. With
`--json` the answer is one JSON object with a schema number. `coloc COMMAND --help` prints the same
text. The options of `sbatch` are on the page [Options](../user/options.md).

slurmd calls two more commands by the scripts coloc-prolog and coloc-epilog; nobody else does:
`coloc prolog` and `coloc epilog`. `prolog/README.md` and `epilog/README.md` describe them.
"""

CODES = """\
# Codes

Short words that stand in `coloc jobs`, `coloc history`, `coloc explain`, in their JSON and in
colocd's log, and what each means.
"""

SCENARIOS = """\
# Scenarios

The keys of a scenario, for `coloc simulate --scenario FILE.toml` and `--set KEY=VALUE`. A key in a
table is written `TABLE.KEY` after `--set`. A path in the file begins at the file's folder. Options
win over `--set`, and both over the file. [Simulate](../simulate.md) has examples.
"""

ACTIONS = {
    Action.COLLOCATE: "the job shares: shards of one GPU, or of one for each task, or a MIG device",
    Action.EXCLUSIVE: "the job has a whole GPU",
    Action.ASIS: "the request stays as it was submitted",
}

OUTCOMES = {
    Outcome.COMPLETED: "Slurm says COMPLETED",
    Outcome.OOM_GPU: "the job FAILED, and its log or the driver shows that GPU memory ran out",
    Outcome.OVERRUN: "the agent ended its processes, which held more of a GPU than was promised"
    " (`fence.overrun`), and the job FAILED by that; recovered like an out-of-memory of its own",
    Outcome.OOM_HOST: "the node's memory ran out, not the GPU's: left to Slurm and the owner",
    Outcome.FAILED: "the job FAILED for another reason",
    Outcome.CANCELLED: "somebody cancelled it",
    Outcome.TIMEOUT: "its time limit or deadline passed",
    Outcome.PREEMPTED: "Slurm preempted it",
    Outcome.NODE_FAIL: "its node failed",
    Outcome.REQUEUED: "somebody else than colocd put it back into the queue",
    Outcome.PUT_BACK: "colocd put it back before it began, because its GPU was not fit for it",
    Outcome.SLOT: "it left at the end of its time slot, to go on in the next one",
    Outcome.GONE: "Slurm no longer knows the job, and nothing tells how it ended",
}

VERDICTS = STAYS | {
    Verdict.REQUEUE: "put back for its own need: with more memory, then on a whole GPU",
    Verdict.VICTIM: "put back with the same request, because others ended it",
    Verdict.NOT_OURS: "not requeued: another cause than GPU memory,"
    " or a job that colocd did not place",
}

FENCES = {
    FenceLevel.CGROUP: "the kernel holds all processes of the job together"
    " (driver r615, cgroup v2, no MIG)",
    FenceLevel.MPS: "the MPS server refuses each client process what is above the share",
    FenceLevel.FRAMEWORK: "PyTorch or JAX refuses itself; other programs are not held",
    FenceLevel.NONE: "nothing holds the job to its share",
}

PLACES = {
    Why.POLICY: "the policy chose this GPU",
    Why.MOVED: "the GPU that it was pinned to no longer suits; this one does",
    Why.STALE: "the node's figures are too old: Slurm places the job",
    Why.CLOSED: "the node is drained, down or reserved: Slurm places the job",
    Why.NO_ROOM: "no GPU has room: Slurm places the job",
    Why.GATE: "every GPU with room is above placement.smact_gate: the job waits",
    Why.BEHIND: "a job before it in the queue waits for that GPU",
    Why.WHOLE: "placement.whole_first keeps these GPUs for a job that waits for whole ones",
    Why.GAVE_UP: "it waited for placement.max_pin_s: Slurm places the job",
    Why.NOT_YET: "Slurm does not consider the job yet (held, dependent, delayed, beyond a limit)",
    Why.ENOUGH: "placement.ahead jobs before it are placed first",
    Why.USERS: "every GPU with room has jobs of users that it may not share with (sharing.with)",
    Why.BOUND: "a slowdown limit, its own or a neighbour's, closes every GPU with room",
}


def _cell(text: str) -> str:
    """Text for one cell of a table, on one line."""
    return " ".join(text.replace("\f", "").split()).replace("|", "\\|")


def _table(first: str, second: str, rows: Iterable[tuple[object, str]]) -> Iterator[str]:
    yield f"| {first} | {second} |"
    yield "|---|---|"
    for name, text in rows:
        yield f"| `{_cell(str(name))}` | {_cell(text)} |"
    yield ""


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    words = [p.metavar or str(p.name).upper() for p in command.params if _is(p, "argument")]
    yield f"## coloc {' '.join(path)}"
    yield ""
    yield f"    coloc {' '.join([*path, *words])} [OPTIONS]"
    yield ""
    for paragraph in (command.help or "").replace("\f", "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    yield from _table("option", "meaning", manual.options_of(command))


def _is(param: Any, kind: str) -> bool:
    return str(param.param_type_name) == kind


def command_line() -> str:
    """The page of all commands."""
    lines = [COMMANDS]
    for path, command in manual.leaves(get_command(build())):
        lines += _command(path, command)
    return "\n".join(lines)


def scenarios() -> str:
    """The page of what `coloc simulate` can be given."""
    lines = [SCENARIOS]
    for name, model in given.tables().items():
        about = " ".join((model.__doc__ or "").split()).rpartition("] ")[2]
        lines += [f"## [{name}]" if name else "## Above all tables", "", about, ""]
        inside = {key: one for key, one in given.keys().items() if key.rpartition(".")[0] == name}
        lines += reference.table({key.rpartition(".")[2]: one for key, one in inside.items()})
    return "\n".join(lines)


def codes() -> str:
    """The page of the words that answers and logs use."""
    parts: tuple[tuple[str, str, Mapping[Any, str]], ...] = (
        ("What was decided", "`action` of a decision.", ACTIONS),
        ("Why it was decided", "`reason` of a decision; column WHY.", TEXTS),
        ("How a run ended", "`outcome`; column OUTCOME.", OUTCOMES),
        ("Who caused it", "`blame`, where GPU memory ran out or a GPU failed.", WHOSE),
        ("Whether it is put back", "`verdict` of an ended run.", VERDICTS),
        ("What the next run asks for", "`retry_way`, in brackets the cause.", NEXT),
        ("What holds a job to its memory", "The fence that the job's output names.", FENCES),
        ("Where it is placed", "Reasons of steered placement in `coloc explain`.", PLACES),
    )
    lines = [CODES]
    for title, about, words in parts:
        lines += [f"## {title}", "", about, "", *_table("code", "meaning", words.items())]
    lines += ["## Exit codes of coloc", "", *_table("code", "meaning", manual.EXITS)]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Every page by its file name, complete."""
    made = {
        "command-line.md": command_line(),
        "configuration.md": reference.markdown(),
        "scenarios.md": scenarios(),
        "codes.md": codes(),
    }
    return {name: HEAD + text.rstrip("\n") + "\n" for name, text in made.items()}


def main(folder: Path) -> None:
    """Write the pages into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
