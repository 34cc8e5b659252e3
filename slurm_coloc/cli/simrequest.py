# SPDX-License-Identifier: Apache-2.0
"""What `coloc simulate` was asked for, checked and made into experiments."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_coloc.core.gpu import GPU_TYPES
from slurm_coloc.core.interference import METHODS
from slurm_coloc.core.placing import Policy
from slurm_coloc.errors import UsageFault
from slurm_coloc.policies import policy as policy_named
from slurm_coloc.sim.assume import AVERAGE, MEMORY, SMACT, Assumed, Filled, fill, level
from slurm_coloc.sim.machine import ALIASES, Machine, parse_machine
from slurm_coloc.sim.past import Past, most_at_once
from slurm_coloc.sim.readers.helios import read_helios
from slurm_coloc.sim.readers.philly import read_philly
from slurm_coloc.sim.readers.sacct import read_sacct
from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment
from slurm_coloc.sim.trace import TraceJob

DEFAULT_GPUS = "4xa100-40gb"
EXCLUSIVE = "exclusive"
#: A GPU cut in two where --method mig is asked for without a layout: 4 and 3 of its 7 slices,
#: with half of its memory each (NVIDIA's MIG user guide, supported profiles).
CUT = {
    "a100-40gb": "4g.20gb+3g.20gb",
    "a100-80gb": "4g.40gb+3g.40gb",
    "a30-24gb": "2g.12gb+2g.12gb",
    "h100-80gb": "4g.40gb+3g.40gb",
    "h100-94gb": "4g.47gb+3g.47gb",
    "h200-141gb": "4g.71gb+3g.71gb",
    "b200-180gb": "4g.90gb+3g.90gb",
}
_PART = re.compile(r"((?:\d+x)?)(\d+)x([a-zA-Z][\w-]*)")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the jobs come from: one of four files. ``partitions``: sacct's, empty for all."""

    trace: Path | None = None
    sacct: Path | None = None
    philly: Path | None = None
    helios: Path | None = None
    partitions: frozenset[str] = frozenset()

    def named(self) -> str:
        """Which option was given; raises UsageFault unless it is exactly one."""
        given = [
            name
            for name in ("trace", "sacct", "philly", "helios")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            wrong = " and ".join(f"--{name}" for name in given) or "none"
            raise UsageFault(f"give one of --trace, --sacct, --philly, --helios (here: {wrong})")
        if self.partitions and self.sacct is None:
            raise UsageFault("--partition needs --sacct")
        return given[0]

    def past(self) -> Past:
        """The runs of an accounting file."""
        if self.sacct is not None:
            return read_sacct(self.sacct, partitions=self.partitions)
        if self.philly is not None:
            return read_philly(self.philly)
        assert self.helios is not None
        return read_helios(self.helios)


@dataclass(frozen=True, slots=True)
class World:
    """Jobs, GPUs, and in ``said`` what a reader must know of them. ``whole``: the GPUs before
    --method mig cut them, for the policy exclusive. ``past``: the runs that the jobs were made of,
    with ``assumed`` and ``gpu_mib``; None for a trace, which assumes nothing."""

    jobs: Sequence[TraceJob]
    machine: Machine
    whole: Machine
    said: Sequence[str]
    past: Past | None = None
    assumed: Assumed = AVERAGE
    gpu_mib: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """All that was asked for. ``compares``: several policies in one table."""

    world: World
    setting: Setting
    policies: Sequence[Policy]
    compares: bool
    estimator: str
    runs: int
    seed: int

    def experiment(self, policy: Policy) -> Experiment:
        """One policy's simulation."""
        return Experiment(
            self.world.jobs,
            self.world.whole if policy.name == EXCLUSIVE else self.world.machine,
            policy,
            self.setting,
            self.estimator,
            self.runs,
            self.seed,
        )


def policies(named: Sequence[str], compare: str) -> list[Policy]:
    """The policies that were asked for, each once, in that order; raises UsageFault."""
    names = [*named, *(name.strip() for name in compare.split(",") if name.strip())] or ["best"]
    return [policy_named(name) for name in dict.fromkeys(names)]


def chosen(option: str, value: str, *allowed: str) -> Any:
    """The value; raises UsageFault where it is none of those that are allowed."""
    if value not in allowed:
        raise UsageFault(f"{option} {value}: one of {', '.join(allowed)}")
    return value


def world(
    source: Source, gpus: str, method: str, assumed: Assumed, seed: int, margin: int
) -> World:
    """Read the file and lay out the GPUs. ``gpus``: "" = a DGX Station, or what the file shows."""
    if method not in METHODS:
        raise UsageFault(f"--method {method}: one of {', '.join(METHODS)}")
    said: list[str] = []
    if source.named() == "trace":
        assert source.trace is not None
        jobs = read_trace(source.trace, said)
        whole = parse_machine(gpus or DEFAULT_GPUS, margin_mib=margin)
        return World(jobs, _cut(whole, method, margin, said), whole, said)
    past = source.past()
    said += past.notes
    whole = parse_machine(gpus or _seen(past, said), margin_mib=margin)
    gpu_mib = _largest_mib(whole)
    filled: Filled = fill(past, assumed, seed, gpu_mib)
    said += filled.said
    return World(
        filled.jobs, _cut(whole, method, margin, said), whole, said, past, assumed, gpu_mib
    )


def assumption(smact: str, memory: str, joining: float) -> Assumed:
    """The options about what accounting does not record."""
    return Assumed(
        level(smact, SMACT, "--assume-smact"), level(memory, MEMORY, "--assume-memory"), joining
    )


def _largest_mib(machine: Machine) -> int:
    """What a program finds on the largest GPU (MiB), MIG or not."""
    per_gpu: dict[int, int] = {}
    for device in machine.devices:
        per_gpu[device.gpu] = per_gpu.get(device.gpu, 0) + device.true_mib
    return max(per_gpu.values())


def _cut(machine: Machine, method: str, margin_mib: int, said: list[str]) -> Machine:
    """With --method mig and no layout: half of the GPUs whole, for what needs a whole one, the rest
    cut in two."""
    if method != "mig" or ":" in machine.text:
        return machine
    out = []
    for part in machine.text.split(","):
        found = _PART.fullmatch(part.strip())
        layout = CUT.get(ALIASES.get(found[3].lower(), found[3].lower())) if found else None
        if found is None or layout is None:
            raise UsageFault(f"--gpus {part}: give a MIG layout, such as 2xa100:3g.20gb+4g.20gb")
        nodes, number, kind = found[1], int(found[2]), found[3]
        cut = (number + 1) // 2
        if number > cut:
            out.append(f"{nodes}{number - cut}x{kind}")
        out.append(f"{nodes}{cut}x{kind}:{layout}")
    text = ",".join(out)
    said.append(f"GPUs by --method mig without a layout: {text}; exclusive has them whole")
    return parse_machine(text, margin_mib=margin_mib)


def _seen(past: Past, said: list[str]) -> str:
    """As many GPUs as the file shows in use at once, of each type that it names."""
    kinds: dict[str, list[object]] = {}
    for job in past.jobs:
        kinds.setdefault(_type_of(job.kind), [])
    parts = []
    for kind in sorted(kinds):
        number = most_at_once(job for job in past.jobs if _type_of(job.kind) == kind)
        if number:
            parts.append(f"{number}x{kind or 'a100-40gb'}")
    if not parts:
        raise UsageFault("no run with GPUs in this file: give --gpus")
    text = ",".join(parts)
    said.append(f"GPUs: {text}, the most that were in use at once (--gpus says otherwise)")
    if "" in kinds:
        said.append("the file does not name every GPU type: those are taken for A100-40GB")
    return text


def _type_of(kind: str) -> str:
    """A type that the simulator knows, from Slurm's name for it (a100, nvidia_a100-sxm4-80gb)."""
    words = kind.lower().replace("_", "-")
    if not words or ALIASES.get(words, words) in GPU_TYPES:
        return ALIASES.get(words, words)
    found = [name for name in GPU_TYPES if all(part in words for part in name.split("-"))]
    found = found or [ALIASES[name] for name in ALIASES if name in words]
    if not found:
        raise UsageFault(f"GPU type {kind!r} of the file is not known here: give --gpus")
    return found[0]
