# SPDX-License-Identifier: Apache-2.0
"""Lookahead: plans ahead and starts what the best plan starts now.

What a greedy policy loses it loses at the end: GPUs run dry while a long job, or one of several
GPUs that never found them free together, still runs. So at each decision a search looks for the
plan of all waiting jobs that is done first by what is expected of them (sim/search/planning), and
what it starts now is started. The search is small and goes on from the plan of the last decision.
On clusters or queues too large for it, and where its C part was not built, the greedy policy
decides.
"""

from collections.abc import Sequence

from slurm_coloc.core.place.placing import GpuSlot, PlaceRequest, Policy, Start, View, admits
from slurm_coloc.policies.interference import POLICY as GREEDY
from slurm_coloc.sim.search.planning.combos import Combos
from slurm_coloc.sim.search.planning.search import Search, Spots
from slurm_coloc.sim.search.planning.snapshot import scene_of
from slurm_coloc.sim.search.schedules.native import built

#: seats beyond which greedy placement decides, waiting jobs that a plan holds, and the product of
#: the two: a rollout's time grows with it (some milliseconds at the bound)
SEATS, JOBS, MOST = 32, 128, 1024


class Lookahead:
    """``tries``: variations that are tried at each decision.

    It remembers its last plan, what that still starts at this moment, and what the model of
    interference answered. All of it may be lost at any time: the next decision plans anew.
    """

    name = "lookahead"

    def __init__(self, tries: int = 1600, greedy: Policy = GREEDY) -> None:
        self._tries, self._greedy = tries, greedy
        self._combos: Combos | None = None
        self._plan: Spots = {}
        self._starts: list[tuple[int, tuple[int, ...]]] = []
        self._moment: object = None
        self._built = built()

    def fresh(self) -> "Lookahead":
        """One that remembers nothing, for another run."""
        return Lookahead(self._tries, self._greedy)

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        if not view.queue:
            return None
        if not self._built:
            return self._greedy.next(view)
        waiting = min(len(view.queue), view.depth, JOBS)
        # Instances of one GPU may share its memory, which a plan of seats does not see.
        cut = any(seat.method == "mig" or seat.part for seat in view.seats)
        if cut or len(view.seats) > SEATS or len(view.seats) * waiting > MOST:
            return self._greedy.next(view)
        moment = _moment(view, waiting)
        if self._moment != moment:
            self._moment = moment
            self._search(view, waiting)
        return self._start(view, waiting)

    def _start(self, view: View, waiting: int) -> Start | None:
        """The next start of the plan; where the cluster refuses it the greedy policy decides."""
        while self._starts:
            job_id, places = self._starts.pop(0)
            ask = next((one for one in view.queue if one.id == job_id), None)
            if ask is None:
                continue
            seats = tuple(view.seats[place] for place in places)
            rules, model = view.conditions, view.interference
            if all(admits(ask, seat, rules, model) for seat in seats):
                self._moment = _moment(view, waiting, Start(ask, seats))
                return Start(ask, seats)
            self._moment = None
            self._starts = []
            return self._greedy.next(view)
        return None

    def _search(self, view: View, waiting: int) -> None:
        if self._combos is None or self._combos.model is not view.interference:
            self._combos = Combos(view.interference)
        asks = [ask for ask in view.queue[:waiting] if _fits(ask, view.seats)]
        self._starts = []
        if asks:
            scene = scene_of(view, asks, self._combos)
            ids = [ask.id for ask in asks]
            ids += dict.fromkeys(one.ask.id for seat in view.seats for one in seat.residents)
            seed = round(view.now_s * 1000.0) * 1009 + waiting
            search = Search(scene, ids, len(asks), seed)
            self._plan = search.best(self._plan, self._tries)
            self._starts = search.first()


def _moment(view: View, waiting: int, start: Start | None = None) -> object:
    """Who waits and who is where, after a start: time alone is no reason for another plan."""
    gone = -1 if start is None else start.ask.id
    taken = () if start is None else tuple(seat.index for seat in start.seats)
    asks = [ask for ask in view.queue[: waiting + (start is not None)] if ask.id != gone]
    there = tuple(
        tuple(one.ask.id for one in seat.residents) + ((gone,) if seat.index in taken else ())
        for seat in view.seats
    )
    return tuple((ask.id, ask.need_mib, ask.run_s) for ask in asks[:waiting]), there


def _fits(ask: PlaceRequest, seats: Sequence[GpuSlot]) -> bool:
    """Whether a job could be there at all: one that could not waits, and is in no plan."""
    need = ask.need_mib or 0
    open_to = [seat for seat in seats if (seat.pool if ask.share else seat.for_whole)]
    return sum(need <= seat.usable_mib or not ask.share for seat in open_to) >= ask.gpus


POLICY = Lookahead()
