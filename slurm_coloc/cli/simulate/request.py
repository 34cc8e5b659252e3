# SPDX-License-Identifier: Apache-2.0
"""What `coloc simulate` was asked for, checked and made into experiments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm_coloc.core.place.placing import Policy
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.assume import AVERAGE, MEMORY, SMACT, Assumed, Filled, fill, level
from slurm_coloc.sim.machine import Machine, parse_machine
from slurm_coloc.sim.past import Past, gpu_type, most_at_once
from slurm_coloc.sim.policies import policy as policy_named
from slurm_coloc.sim.presets import BEST, best_assumes, best_policy, best_setting
from slurm_coloc.sim.readers.helios import read_helios
from slurm_coloc.sim.readers.history import with_peaks
from slurm_coloc.sim.readers.philly import read_philly
from slurm_coloc.sim.readers.sacct import read_sacct
from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.search.clairvoyant import Clairvoyant
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment
from slurm_coloc.sim.trace import TraceJob

DEFAULT_GPUS = "4xa100-40gb"
EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the jobs come from: one of four files. ``partitions``: sacct's, empty for all.
    ``history``: peaks of memory to sacct's runs."""

    trace: Path | None = None
    sacct: Path | None = None
    philly: Path | None = None
    helios: Path | None = None
    partitions: frozenset[str] = frozenset()
    history: Path | None = None

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
        if (self.partitions or self.history) and self.sacct is None:
            raise UsageFault("--partition and --history need --sacct")
        return given[0]

    def past(self) -> Past:
        """The runs of an accounting file."""
        if self.sacct is not None:
            past = read_sacct(self.sacct, partitions=self.partitions)
            return past if self.history is None else with_peaks(past, self.history)
        if self.philly is not None:
            return read_philly(self.philly)
        assert self.helios is not None
        return read_helios(self.helios)


@dataclass(frozen=True, slots=True)
class World:
    """Jobs, GPUs, and in ``said`` what a reader must know of them. ``past``: the runs that the jobs
    were made of, with ``assumed`` and ``gpu_mib``; None for a trace, which assumes nothing."""

    jobs: Sequence[TraceJob]
    machine: Machine
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
        """One policy's simulation. To the policy exclusive a GPU without a MIG layout is a whole
        one, whatever the method."""
        setting = self.setting
        if policy.name == EXCLUSIVE and setting.method == "mig":
            setting = replace(setting, method="mps")
        if policy.name == BEST:
            setting = self._best()
        return Experiment(
            self.world.jobs,
            self.world.machine,
            policy,
            setting,
            self.estimator,
            self.runs,
            self.seed,
        )

    def said(self) -> Sequence[str]:
        """What is assumed, a line each: of the jobs, and of what best knows of them."""
        if all(policy.name != BEST for policy in self.policies):
            return self.world.said
        return [*self.world.said, *best_assumes(self._best())]

    def _best(self) -> Setting:
        return best_setting(self.setting, self.world.machine.gpus)


def policies(named: Sequence[str], compare: str, search: int, default: str) -> list[Policy]:
    """The policies that were asked for, each once, in that order; raises UsageFault. ``search``:
    schedules that clairvoyant tries."""
    names = [*named, *(name.strip() for name in compare.split(",") if name.strip())] or [default]
    searched, best = Clairvoyant(search), best_policy()
    return [
        searched if name == searched.name else best if name == BEST else policy_named(name)
        for name in dict.fromkeys(names)
    ]


def chosen(option: str, value: str, *allowed: str) -> Any:
    """The value; raises UsageFault where it is none of those that are allowed."""
    if value not in allowed:
        raise UsageFault(f"{option} {value}: one of {', '.join(allowed)}")
    return value


def world(source: Source, gpus: str, assumed: Assumed, seed: int, margin: int) -> World:
    """Read the file and lay out the GPUs. ``gpus``: "" = a DGX Station, or what the file shows."""
    said: list[str] = []
    if source.named() == "trace":
        assert source.trace is not None
        jobs = read_trace(source.trace, said)
        return World(jobs, parse_machine(gpus or DEFAULT_GPUS, margin_mib=margin), said)
    past = source.past()
    said += past.notes
    machine = parse_machine(gpus or _seen(past, said), margin_mib=margin)
    gpu_mib = _largest_mib(machine)
    filled: Filled = fill(past, assumed, seed, gpu_mib)
    said += filled.said
    return World(filled.jobs, machine, said, past, assumed, gpu_mib)


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


def _seen(past: Past, said: list[str]) -> str:
    """As many GPUs as the file shows in use at once, of each type that it names."""
    kinds = {job.kind: _type_of(job.kind) for job in past.jobs}
    parts = []
    for kind in sorted(set(kinds.values())):
        number = most_at_once(job for job in past.jobs if kinds[job.kind] == kind)
        if number:
            parts.append(f"{number}x{kind or 'a100-40gb'}")
    if not parts:
        raise UsageFault("no run with GPUs in this file: give --gpus")
    text = ",".join(parts)
    said.append(f"GPUs: {text}, the most that were in use at once (--gpus says otherwise)")
    if "" in kinds:
        said.append("the file does not name every GPU type: those are taken for A100-40GB")
    if len(parts) > 1:
        said.append("every job may run on every type of GPU, as fast as it did")
    return text


def _type_of(kind: str) -> str:
    """The simulator's name of a type; raises UsageFault for one that it does not know."""
    found = gpu_type(kind)
    if kind and not found:
        raise UsageFault(f"GPU type {kind!r} of the file is not known here: give --gpus")
    return found
