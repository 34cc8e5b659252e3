# SPDX-License-Identifier: Apache-2.0
"""What `coloc simulate` was asked for, checked and made into experiments."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_coloc.cli.simulate.placement import placed_by, steered_by
from slurm_coloc.cli.simulate.scenario import Scenario
from slurm_coloc.config import Config, load_config
from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.core.place.interference import model as interference
from slurm_coloc.core.place.placing import Conditions, Policy
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.client.request import call
from slurm_coloc.policies import policy as among
from slurm_coloc.sim.assume import AVERAGE, MEMORY, SMACT, Assumed, fill, level
from slurm_coloc.sim.machine import Machine, parse_machine
from slurm_coloc.sim.past import Past, PastJob, gpu_type, most_at_once
from slurm_coloc.sim.policies import BEST, best_assumes, best_policy, best_setting, registry
from slurm_coloc.sim.power import power
from slurm_coloc.sim.readers.helios import read_helios
from slurm_coloc.sim.readers.history import with_peaks
from slurm_coloc.sim.readers.observed import past_of
from slurm_coloc.sim.readers.philly import read_philly
from slurm_coloc.sim.readers.sacct import read_sacct
from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.search.clairvoyant import Clairvoyant
from slurm_coloc.sim.setting import Priority, Recovery, Setting
from slurm_coloc.sim.simulate import Experiment
from slurm_coloc.sim.steered import (
    PLANNED,
    STEERED,
    Steered,
    steered_assumes,
    steered_setting,
)
from slurm_coloc.sim.telemetry import Monitor
from slurm_coloc.sim.trace import TraceJob

SOURCES = ("trace", "sacct", "observed", "philly", "helios")
DEFAULT_TYPE, DEFAULT_GPUS = "a100-40gb", "4xa100-40gb"
EXCLUSIVE = "exclusive"


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
        if isinstance(policy, Steered):
            setting = steered_setting(setting, policy)
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
        """What is assumed, a line each: of the jobs, and of what a policy knows of them."""
        said = list(self.world.said)
        for policy in self.policies:
            if policy.name == BEST:
                said += best_assumes(self._best())
            elif isinstance(policy, Steered):
                said += steered_assumes(steered_setting(self.setting, policy), policy)
        return said

    def _best(self) -> Setting:
        return best_setting(self.setting, self.world.machine.gpus)


def request_of(scenario: Scenario) -> Request:
    """Read the jobs and lay out the GPUs; raises UsageFault."""
    own = _source(scenario) != "trace"
    config = load_config()
    compares = bool(scenario.compare) or len(scenario.policy) > 1
    setting = _setting(scenario, config, own)
    return Request(
        world=_world(scenario, config.pool.margin_mib, _needs_for_sharing(config) if own else ()),
        setting=setting,
        policies=_policies(scenario, placed_by(config) if own else BEST, config, setting),
        compares=compares,
        estimator=scenario.estimator or ("error:0.1" if own else "oracle"),
        runs=scenario.runs,
        seed=scenario.seed,
    )


def _source(scenario: Scenario) -> str:
    """The key that names the file of jobs; raises UsageFault unless it is exactly one."""
    given = [name for name in SOURCES if getattr(scenario, name) not in (None, False)]
    if len(given) != 1:
        wrong = " and ".join(f"--{name}" for name in given) or "none"
        raise UsageFault(
            f"give one of --trace, --sacct, --observed, --philly, --helios (here: {wrong})"
        )
    if (scenario.partition or scenario.history) and scenario.sacct is None:
        raise UsageFault("--partition and --history need --sacct")
    return given[0]


def _setting(scenario: Scenario, config: Config, own: bool) -> Setting:
    """All that is assumed. ``own``: the jobs are those of an accounting file, and the site's own
    keys say who shares, with whom, and how large a share is."""
    keys, order, nodes = scenario.conditions, scenario.queue, scenario.nodes
    pool, sharing = config.pool, config.sharing
    conditions = keys.model_dump() | {
        "jobs": keys.jobs or pool.max_jobs_per_gpu,
        "share_with": keys.share_with or (sharing.with_ if own else "anyone"),
        "idle_first": keys.idle_first or (own and _steered_idle_first(config)),
    }
    return Setting(
        conditions=Conditions(**conditions),
        interference=interference(scenario.interference),
        method=scenario.method,
        depth=1 if order.order == "fifo" else order.depth,
        priority=Priority() if order.order == "priority" else None,
        monitor=Monitor(**scenario.monitor.model_dump()),
        recovery=Recovery(**scenario.recovery.model_dump()),
        power=power(scenario.power),
        node_cpus=nodes.cpus,
        node_host_mib=nodes.memory_mib,
        multi_user_mps=nodes.multi_user_mps,
        stretch=nodes.stretch,
        max_limit_s=nodes.max_limit_s,
        run_error=order.run_error,
        logs=order.logs,
        pool=scenario.pool,
        size_budget=pool.compute_budget if own and pool.size_by_smact else None,
        **scenario.memory.model_dump(),
    )


def _steered_idle_first(config: Config) -> bool:
    """Whether steering would use idle GPUs first whatever waits; natively the policy does it."""
    return config.placement.mode == "steered" and config.placement.idle_first is True


def _policies(scenario: Scenario, default: str, config: Config, setting: Setting) -> list[Policy]:
    """The policies that were asked for, each once, in that order; raises UsageFault."""
    searched, best = Clairvoyant(scenario.search), best_policy()
    known = registry() | {searched.name: searched, **dict.fromkeys((BEST, STEERED, PLANNED), best)}

    def of(name: str) -> Policy:
        # The site's own placement.policy is looked up only where it is asked for.
        if name in (STEERED, PLANNED):
            return steered_by(config, setting, plans=name == PLANNED)
        return among(name, known)

    return [of(name) for name in dict.fromkeys([*scenario.policy, *scenario.compare] or [default])]


def _needs_for_sharing(config: Config) -> Sequence[str]:
    """What the site must have for its sharing.with, natively."""
    if config.placement.mode == "steered" or config.sharing.with_ == "anyone":
        return ()
    return (
        f'sharing.with = "{config.sharing.with_}" needs steered placement, or ExclusiveUser, under'
        " which whole nodes are one user's and jobs wait longer than here",
    )


def _world(scenario: Scenario, margin_mib: int, also: Sequence[str] = ()) -> World:
    """The jobs and the GPUs. ``margin_mib``: that is left of each GPU; ``also``: what else a reader
    must know."""
    said: list[str] = []
    if scenario.trace is not None:
        jobs = read_trace(scenario.trace, said)
        machine = parse_machine(scenario.gpus or DEFAULT_GPUS, margin_mib=margin_mib)
        return World(jobs, machine, said)
    keys = scenario.assume
    assumed = Assumed(
        level(keys.smact, SMACT, "--assume-smact"),
        level(keys.memory, MEMORY, "--assume-memory"),
        keys.joining,
    )
    past = _past(scenario)
    said += past.notes
    machine = parse_machine(scenario.gpus or _gpus_of(past, said), margin_mib=margin_mib)
    gpu_mib = _largest_mib(machine)
    filled = fill(past, assumed, scenario.seed, gpu_mib)
    said += [*filled.said, *also]
    return World(filled.jobs, machine, said, past, assumed, gpu_mib)


def _past(scenario: Scenario) -> Past:
    """The runs of an accounting file."""
    if scenario.philly is not None:
        return read_philly(scenario.philly)
    if scenario.helios is not None:
        return read_helios(scenario.helios)
    if scenario.observed:
        return past_of(call(load_config(), "observed", {"days": scenario.days})["jobs"])
    assert scenario.sacct is not None
    past = read_sacct(scenario.sacct, partitions=frozenset(scenario.partition))
    return past if scenario.history is None else with_peaks(past, scenario.history)


def _largest_mib(machine: Machine) -> int:
    """What a program finds on the largest GPU (MiB), MIG or not."""
    per_gpu: dict[int, int] = {}
    for device in machine.devices:
        per_gpu[device.gpu] = per_gpu.get(device.gpu, 0) + device.true_mib
    return max(per_gpu.values())


def _gpus_of(past: Past, said: list[str]) -> str:
    """As many GPUs as the file shows in use at once, of each type that it names. A share names
    none: it is taken for a part of the type that most runs had."""
    kinds = {job.kind: _type_of(job.kind) for job in past.jobs}
    named = Counter(kinds[job.kind] for job in past.jobs if job.share_mib is None)
    usual = named.most_common(1)[0][0] if named else ""
    by_kind: dict[str, list[PastJob]] = {}
    for job in past.jobs:
        kind = kinds[job.kind] or (usual if job.share_mib is not None else "")
        by_kind.setdefault(kind, []).append(job)
    parts = []
    for kind, jobs in sorted(by_kind.items()):
        number = most_at_once(jobs, GPU_TYPES[kind or DEFAULT_TYPE].total_mib)
        if number:
            parts.append(f"{number}x{kind or DEFAULT_TYPE}")
    if not parts:
        raise UsageFault("no run with GPUs in this file: give --gpus")
    text = ",".join(parts)
    said.append(f"GPUs: {text}, the most that were in use at once (--gpus says otherwise)")
    if usual and any(not kinds[job.kind] for job in past.jobs if job.share_mib is not None):
        said.append(f"shares name no GPU type: they are taken for parts of {usual}")
    if "" in by_kind:
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
