# SPDX-License-Identifier: Apache-2.0
"""Lookahead: plans ahead and starts what the best plan starts now.

What a greedy policy loses it loses at the end: GPUs run dry while a long job, or one of several
GPUs that never found them free together, still runs. So at each decision a search looks for the
plan of all waiting jobs that is done first by what is expected of them (planning), and
what it starts now is started. The search is small and goes on from the plan of the last decision.
On clusters or queues too large for it, and where its C part was not built, the greedy policy
decides.
"""

from slurm_coloc.core.place.placing import Policy, Start, View, admits
from slurm_coloc.planning.combos import Combos
from slurm_coloc.planning.schedules.native import built
from slurm_coloc.planning.search import Search, Spots
from slurm_coloc.planning.snapshot import could_hold, snapshot_of
from slurm_coloc.policies.interference import POLICY as GREEDY

#: slots beyond which greedy placement decides, waiting jobs that a plan holds, and the product of
#: the two: a rollout's time grows with it (some milliseconds at the bound)
SLOTS, JOBS, MOST = 32, 128, 1024


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
        # Instances of one GPU may share its memory, which a plan of slots does not see.
        cut = any(slot.method == "mig" or slot.part for slot in view.slots)
        if cut or len(view.slots) > SLOTS or len(view.slots) * waiting > MOST:
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
            request = next((one for one in view.queue if one.id == job_id), None)
            if request is None:
                continue
            slots = tuple(view.slots[place] for place in places)
            rules, model = view.conditions, view.interference
            if all(admits(request, slot, rules, model) for slot in slots):
                self._moment = _moment(view, waiting, Start(request, slots))
                return Start(request, slots)
            self._moment = None
            self._starts = []
            return self._greedy.next(view)
        return None

    def _search(self, view: View, waiting: int) -> None:
        if self._combos is None or self._combos.model is not view.interference:
            self._combos = Combos(view.interference)
        requests = [request for request in view.queue[:waiting] if could_hold(view.slots, request)]
        self._starts = []
        if requests:
            snapshot = snapshot_of(view, requests, self._combos)
            ids = [request.id for request in requests]
            ids += dict.fromkeys(one.request.id for slot in view.slots for one in slot.residents)
            seed = round(view.now_s * 1000.0) * 1009 + waiting
            search = Search(snapshot, ids, len(requests), seed)
            self._plan = search.best(self._plan, self._tries)
            self._starts = search.first()


def _moment(view: View, waiting: int, start: Start | None = None) -> object:
    """Which jobs wait and which run where, after a start: a plan holds until this changes."""
    gone = -1 if start is None else start.request.id
    taken = () if start is None else tuple(slot.index for slot in start.slots)
    requests = [
        request for request in view.queue[: waiting + (start is not None)] if request.id != gone
    ]
    there = tuple(
        tuple(one.request.id for one in slot.residents) + ((gone,) if slot.index in taken else ())
        for slot in view.slots
    )
    return tuple(
        (request.id, request.need_mib, request.run_s) for request in requests[:waiting]
    ), there


POLICY = Lookahead()
