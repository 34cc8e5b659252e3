# SPDX-License-Identifier: Apache-2.0
"""Lookahead: plans ahead and starts what the best plan starts now.

What a greedy policy loses it loses at the end: GPUs run dry while a long job, or one of several
GPUs that never found them free together, still runs. So at each decision orders of the waiting jobs
are tried (core/planning), each played to its end by what is expected of the jobs, and the one that
is done first is followed until the next decision. The search is small and starts from the plan of
the last decision. On clusters or queues too large for it the greedy policy decides.
"""

from slurm_coloc.core.placing import Policy, Start, View, admits
from slurm_coloc.core.planning.combos import Combos
from slurm_coloc.core.planning.scene import scene_of
from slurm_coloc.core.planning.search import Plan, Search
from slurm_coloc.policies.interference import POLICY as GREEDY

#: seats beyond which greedy placement decides, waiting jobs that a plan holds, and the product of
#: the two: a rollout's time grows with it (some milliseconds at the bound)
SEATS, JOBS, MOST = 32, 128, 1024


class Lookahead:
    """``tries``: variations that are tried at each decision.

    It remembers its last plan, what that still starts at this moment, and what the model of
    interference answered. All of it may be lost at any time: the next decision plans anew.
    """

    name = "lookahead"

    def __init__(self, tries: int = 12, greedy: Policy = GREEDY) -> None:
        self._tries, self._greedy = tries, greedy
        self._combos: Combos | None = None
        self._plan: Plan | None = None
        self._starts: list[tuple[int, tuple[int, ...]]] = []
        self._at: tuple[float, int] | None = None

    def fresh(self) -> "Lookahead":
        """One that remembers nothing, for another run."""
        return Lookahead(self._tries, self._greedy)

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        if not view.queue:
            return None
        waiting = min(len(view.queue), view.depth, JOBS)
        cut = any(seat.method == "mig" for seat in view.seats)
        if cut or len(view.seats) > SEATS or len(view.seats) * waiting > MOST:
            return self._greedy.next(view)
        if self._at != (view.now_s, len(view.queue)):
            self._search(view, waiting)
        return self._start(view)

    def _start(self, view: View) -> Start | None:
        """The next start of the plan; where the cluster refuses it the greedy policy decides."""
        while self._starts:
            job_id, places = self._starts.pop(0)
            ask = next((one for one in view.queue if one.id == job_id), None)
            if ask is None:
                continue
            seats = tuple(view.seats[place] for place in places)
            rules, model = view.conditions, view.interference
            if all(admits(ask, seat, rules, model) for seat in seats):
                self._at = (view.now_s, len(view.queue) - 1)
                return Start(ask, seats)
            self._at = None
            self._starts = []
            return self._greedy.next(view)
        return None

    def _search(self, view: View, waiting: int) -> None:
        if self._combos is None or self._combos.model is not view.interference:
            self._combos = Combos(view.interference)
        asks = list(view.queue[:waiting])
        scene = scene_of(view, asks, self._combos)
        search = Search(
            scene, [ask.id for ask in asks], round(view.now_s * 1000.0) * 1009 + waiting
        )
        self._plan = search.best(self._plan, self._tries, view.now_s)
        self._starts = [(asks[job].id, seats) for job, seats in search.played.first]
        self._at = (view.now_s, len(view.queue))


POLICY = Lookahead()
