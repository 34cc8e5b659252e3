# SPDX-License-Identifier: Apache-2.0
"""Steered placement for the simulator: Slurm's part, and colocd's polls of the queue.

Between two polls of colocd Slurm starts jobs by itself, first fit, in its order: in strict order
the first one that finds no room holds back all behind it, and by backfill it keeps its reservation.
A job that colocd keeps at the gate is passed. At a poll core/place/steering, the very code of
colocd, pins jobs, lets them wait, or leaves them to Slurm; a plan of the whole queue is
slurm_coloc/planning's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import Conditions, Policy, Start, View
from slurm_coloc.core.place.queue_discipline import ByOrder
from slurm_coloc.core.place.steering import Act, Answer, Rules, steer
from slurm_coloc.errors import UsageFault
from slurm_coloc.planning.live import Planner
from slurm_coloc.planning.schedules.native import NOT_BUILT, built
from slurm_coloc.sim.polled import Knows, Polled, State, Times
from slurm_coloc.sim.setting import Setting

STEERED, PLANNED = "steered", "planned"
#: Slurm knows no bound but a GPU's shards, of which the smallest share has one
SLURMS = Conditions(jobs=10**6, bearable=False)
FIRST_FIT = ByOrder("first-fit", lambda request, slot, view: (slot.index,))
#: part of the trainings whose logs tell how far they are, as with best
LOGS = 0.75


@dataclass(slots=True)
class _SlurmView(View):
    """What Slurm sees. ``barred``: whether its request keeps a job from a GPU."""

    barred: Callable[[PlaceRequest, GpuSlot], bool] = lambda request, slot: False

    def open_to(self, request: PlaceRequest) -> Sequence[GpuSlot]:
        """The GPUs that the job asks for."""
        return [slot for slot in self.slots if not self.barred(request, slot)]


@dataclass
class Steered:
    """One run; it remembers what Slurm and colocd would. ``plans``: colocd plans the whole queue.
    ``knows``: None where colocd knows the activity and memory of each request."""

    policy: Policy
    rules: Rules
    times: Times
    plans: bool = False
    knows: Knows | None = None
    name: str = field(init=False)
    _states: dict[int, State] = field(default_factory=dict)
    _polled_s: float = float("-inf")
    _turn: int = 0

    def __post_init__(self) -> None:
        self.name = PLANNED if self.plans else STEERED
        self._planner = Planner(self.policy) if self.plans else None
        self._polled = Polled(self.rules, self.times, self.knows, self.plans)

    def fresh(self) -> "Steered":
        """One that remembers nothing of another run."""
        return Steered(self.policy, self.rules, self.times, self.plans, self.knows)

    def next(self, view: View) -> Start | None:
        """As the protocol says. Raises UsageFault for MIG."""
        if not self._polled.numbered:
            if any(slot.part or slot.half_mib for slot in view.slots):
                raise UsageFault(f"--policy {self.name}: colocd pins jobs to GPUs, not to MIG")
            self._polled.number(view)
        new = [request for request in view.queue if request.id not in self._states]
        due = view.now_s - self._polled_s >= self.times.poll_s - 1e-6
        # An idle cluster is polled at once: nothing else would happen there.
        if due or all(slot.idle for slot in view.slots):
            self._polled_s = view.now_s
            self._poll(view, {request.id for request in view.queue})
        elif self._planner is not None:
            for request in new:  # a share waits for the next poll: a plan is made there alone
                waits = self._polled.ours(request)
                self._states[request.id] = State(until_s=INF if waits else 0.0)
        elif new:
            self._poll(view, {request.id for request in new})
        return self._start(view)

    # ---- Slurm ---------------------------------------------------------------------------------

    def _start(self, view: View) -> Start | None:
        """What Slurm starts next by itself: by what is reserved, whatever telemetry says."""
        slurms = _SlurmView(
            view.now_s,
            [one for one in view.queue if self._states[one.id].until_s <= view.now_s],
            view.slots,
            SLURMS,
            view.interference,
            depth=view.depth,
            pooled=view.pooled,
            barred=self._is_barred,
        )
        start = FIRST_FIT.next(slurms)
        if start is not None:
            del self._states[start.request.id]
            self._polled.began_s[start.request.id] = view.now_s
        return start

    def _is_barred(self, request: PlaceRequest, slot: GpuSlot) -> bool:
        """A pinned job asks for its GPU; without a pin one that must not meet others asks for an
        idle one."""
        pin = self._states[request.id].pin
        if pin is not None:
            return pin != self._polled.pin(slot)
        apart = self.rules.share_with != "anyone" and self._polled.ours(request)
        return apart and not slot.idle

    # ---- colocd --------------------------------------------------------------------------------

    def _poll(self, view: View, changed: set[int]) -> None:
        """A poll, of which the answers for ``changed`` are carried out."""
        snapshot = self._polled.snapshot(view, self._states, self._turn)
        if self._planner is not None:
            if self.knows is not None:
                self._polled.measure(view)
            snapshot, _ = self._planner.planned(snapshot)
        answers, self._turn = steer(snapshot, self.policy)
        told = {one.job_id: one for one in answers}
        for request in view.queue:
            state = self._states.setdefault(request.id, State())
            if request.id in changed and request.id in told:
                self._apply(told[request.id], state, view.now_s)

    def _apply(self, answer: Answer, state: State, now_s: float) -> None:
        if answer.act is Act.WAIT:
            state.pin = None
            state.until_s = now_s + self.times.parked_s
        else:
            state.until_s = now_s
            state.pin = answer.pin
        if answer.act in (Act.NATIVE, Act.UNPIN):
            state.since_s = None
        elif state.since_s is None:
            state.since_s = now_s


def steered_setting(setting: Setting, policy: Steered) -> Setting:
    """The setting that was asked for, with what colocd sees and how often it looks."""
    gate = policy.rules.smact_gate
    conditions = replace(setting.conditions, margin_mib=0, smact_at_most=gate if gate < 1 else None)
    logs = LOGS if policy.plans and setting.logs is None else setting.logs
    pace = replace(setting.pace, tick_s=policy.times.poll_s)
    # A share that only its pin keeps from other users' GPUs has one (core/decide/decide).
    most = 1 if policy.rules.share_with != "anyone" else setting.most_gpus
    return replace(setting, conditions=conditions, pace=pace, logs=logs, most_gpus=most)


def steered_assumes(setting: Setting, policy: Steered) -> list[str]:
    """What that takes for granted besides the trace, in lines for people."""
    rules, poll_s = policy.rules, policy.times.poll_s
    gate = f", gate at {rules.smact_gate:.0%} SM activity" if rules.smact_gate < 1 else ""
    said = [
        f"{policy.name}: colocd pins by {rules.policy}, a poll each {poll_s:g} s{gate}; it knows"
        " each job's SM activity alone"
    ]
    if policy.plans and not built():
        said.append(f"{policy.name} places as {STEERED} does here: its search {NOT_BUILT}")
    elif policy.plans:
        logs = (
            f"its log, for {setting.logs:.0%} of the trainings, and from " if setting.logs else ""
        )
        said[0] += f", and how long it takes from {logs}ended ones like it (--logs)"
    if setting.most_gpus is not None:
        said.append(f"{policy.name}: jobs of several GPUs get whole ones, for colocd pins none")
    return said
