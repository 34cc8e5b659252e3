# SPDX-License-Identifier: Apache-2.0
"""The simulator's word on the setting of a lab."""

from collections.abc import Sequence
from dataclasses import replace

from slurm_coloc.core.place.gate_wait import ahead_s
from slurm_coloc.core.place.gpu_slot import INF, PlaceRequest
from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.core.place.steering import Rules
from slurm_coloc.lab.spec import MACHINES
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.outcome import Outcome
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.polled import MORE_S, Knows, Times
from slurm_coloc.sim.power import Power
from slurm_coloc.sim.setting import Pace, Recovery, Setting
from slurm_coloc.sim.steered import Steered
from slurm_coloc.sim.telemetry import Monitor
from slurm_coloc.sim.trace import TraceJob
from tests.tracelab.scale import Scale
from tests.tracelab.summaries import expected
from tests.tracelab.ways import GATE, LIMIT_MIN, Way
from tests.tracelab.workload import SHARD_MIB, Submission

#: seconds of the trace in which a stand-in takes its memory, in the lab and here
RAMP_S = 1.0
#: what the emulated A100-40GB draws (slurm_coloc/lab/emulator/src/model.c, machines.c)
EMULATED = Power("emulated", 53.0, 30.0, 260.0, 0.0, 400.0)
#: [recovery] more_mib: the first step; then a whole GPU
MORE_MIB = 5120
#: times what a start costs, and times the pause between two looks, for `spread`
STARTS, LOOKS = (0.5, 0.75, 1.0, 1.25, 1.5), (1.0, 1.5, 2.0, 2.5, 3.0)
KINDS = {"a100": "a100-40gb", "h100": "h100-80gb", "h200": "h200-141gb"}


def gpus_text(machine: str) -> str:
    """A lab's machine in the simulator's words. Raises KeyError for one that it does not know."""
    cards = MACHINES[machine]
    return f"{cards.gpus}x{KINDS[cards.gpu_type]}"


def setting(way: Way, scale: Scale) -> Setting:
    """What is assumed besides the jobs."""
    monitor = Monitor(scale.of_trace(scale.window_s), max(1.0, scale.of_trace(scale.beat_s)))
    return Setting(
        conditions=way.conditions,
        interference=REFERENCE,  # the very constants of the emulated GPU
        monitor=monitor,
        pace=Pace(tick_s=max(1.0, scale.of_trace(scale.look_s))),
        recovery=Recovery(delay_s=scale.of_trace(scale.again_s), more_mib=(MORE_MIB,)),
        power=EMULATED,
        ramp_s=RAMP_S,
        launch_s=scale.start_of_trace_s,
        fence=True,
        stretch=False,
        expect_runs=way.plan != "off",
        logs=None if way.plan == "off" else 1.0,
    )


def predict(jobs: Sequence[Submission], way: Way, machine: str, scale: Scale) -> Outcome:
    """Play the jobs. Each has its GPU for ``scale.start_s`` before it works: what a start costs
    Slurm, which no compression makes shorter."""
    needs = {one.job.id: one.need_mib for one in jobs}
    unlimited = [replace(one.job, limit_s=None) for one in jobs]

    def request(job: TraceJob) -> PlaceRequest:
        need = needs[job.id]
        return PlaceRequest(
            job.id, job.gpus, need, job.activity, job.submit_s, user="one", share=need is not None
        )

    found = parse_machine(gpus_text(machine), SHARD_MIB)
    how = steered(jobs, way, machine, scale) if way.telemetry else policy(way.policy)
    return Simulation(unlimited, found, how, setting(way, scale), request).run()


def steered(jobs: Sequence[Submission], way: Way, machine: str, scale: Scale) -> Policy:
    """Slurm's order and colocd's looks, with the lab's times."""
    rules = Rules(
        policy=way.policy,
        smact_gate=GATE,
        max_pin_s=INF,
        shard_mib=SHARD_MIB,
        window_s=scale.of_trace(scale.window_s),
        share_with="anyone",  # ExclusiveUser keeps users apart there
    )
    times = Times(
        poll_s=scale.of_trace(scale.look_s),
        parked_s=scale.of_trace(int(ahead_s(scale.look_s)) + MORE_S),
        limit_s=scale.of_trace(LIMIT_MIN * 60.0),
        shows_s=scale.start_of_trace_s + RAMP_S,
    )
    per_gpu = MACHINES[machine].shards_per_gpu(SHARD_MIB)
    made_up = {(one.shards, one.job.gpus) for one in jobs if one.shards and not one.text}
    smact = {size: expected(size[0], per_gpu, size[1]) for size in made_up}
    knows = Knows(
        {one.job.id: smact.get((one.shards, one.job.gpus), one.smact) for one in jobs},
        {one.job.id: one.job.memory_mib for one in jobs},
        {} if way.plan == "off" else {one.job.id: one.job.name for one in jobs},
    )
    rules = replace(rules, reorder=way.plan == "order")
    return Steered(policy(way.policy), rules, times, plans=way.plan != "off", knows=knows)


def spread(jobs: Sequence[Submission], way: Way, machine: str, scale: Scale) -> tuple[Outcome, ...]:
    """The same with starts that cost less and more, and with colocd's looks further apart, as on a
    busy machine: how much of the outcome hangs on a second here or there."""
    return tuple(
        predict(
            jobs,
            way,
            machine,
            replace(scale, start_s=scale.start_s * start, look_s=scale.look_s * look),
        )
        for start in STARTS
        for look in (LOOKS if way.telemetry else (1.0,))
    )
