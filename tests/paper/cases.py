# SPDX-License-Identifier: Apache-2.0
"""What is played: a published row as a case, and the cases that are ours."""

import re
from dataclasses import dataclass, replace

from estimator.power.thesis import Way, carma_way, thesis_way
from slurm_coloc.sim.policies import BEST
from slurm_coloc.sim.setting import Pace
from slurm_coloc.sim.telemetry import Monitor
from tests.paper.facts import Published

#: as the tables name them -> our policies
ORDERS = {"RR": "round-robin", "MAGM": "magm", "LUG": "lug", "Exclusive": "exclusive"}
ORACLES = {"OFF": "first-fit", "OBF": "best-fit", "OWF": "magm", "OLUG": "lug"}
ESTIMATORS = ("horus", "faketensor", "gpumemnet")
METHODS = ("mps", "streams")
#: gate and margin of the thesis' oracle policies (its section on them; D3 of the facts)
ORACLE_SMACT, MARGIN_MIB = 0.80, 2000


@dataclass(frozen=True, slots=True)
class Case:
    """One way on one trace. ``way``: a published one; else it is ours, with that policy,
    estimator and method. ``runs``: so many at most; 0: all."""

    trace: str
    label: str
    way: Way | None = None
    policy: str = ""
    estimator: str = ""
    method: str = ""
    runs: int = 0


def exclusive(trace: str) -> Case:
    """Every job alone: what all is compared with."""
    return Case(trace, "exclusive", thesis_way("exclusive"))


def baseline(case: Case) -> Case:
    """What a case is compared with: exclusive with the pauses of the thesis' server where the case
    has them, else exclusive in strict order without them."""
    if case.way is not None and case.way.setting.pace.asleep:
        return exclusive(case.trace)
    return Case(case.trace, "exclusive at once", None, "exclusive", "oracle", "mps")


def of_row(row: Published) -> Case:
    """A row of Tables 6.3 to 6.6: MAGM+Horus, "SMACT<=80%, free>=2GB". Raises KeyError for a policy
    that is not known."""
    order, _, estimator = row.policy.partition("+")
    if order == "Exclusive":
        return exclusive(row.trace)
    way = thesis_way(
        ORDERS[order],
        estimator.lower() or "none",
        row.method.lower(),
        gate(row.conditions),
        free_mib(row.conditions),
    )
    return Case(row.trace, f"{row.policy} {row.method} {conditions(row)}".strip(), way)


def of_words(trace: str, policy: str, method: str, given: str) -> Case:
    """A case in the words of the tables."""
    return of_row(Published("", trace, policy, method, given, "", "", "", ""))


def conditions(row: Published) -> str:
    """A row's conditions without what all have."""
    return re.sub(r"[;,]? ?recovery( only)?$", "", row.conditions).strip() or "none"


def gate(text: str) -> float | None:
    """SM activity (ratio) that conditions allow."""
    found = re.search(r"SMACT<=(\d+)%", text)
    return int(found[1]) / 100 if found else None


def free_mib(text: str) -> int | None:
    """Free memory that conditions ask for; the thesis' code counts a GB as 1000 MiB."""
    found = re.search(r"free>=(\d+) ?GB", text)
    return int(found[1]) * 1000 if found else None


def oracle(trace: str, short: str, method: str) -> Case:
    """OFF, OBF, OWF or OLUG: true memory, a margin of 2 GB, SMACT <= 80 %."""
    way = thesis_way(
        ORACLES[short], "oracle", method, smact_at_most=ORACLE_SMACT, margin_mib=MARGIN_MIB
    )
    return Case(trace, f"{short} {method}", way)


def energy_row(row: Published) -> Case:
    """Table 6.6 does not repeat the conditions of its runs: those of Table 6.5."""
    given = {"MAGM": "SMACT<=80%, free>=2GB", "RR": "none"}.get(row.policy, "SMACT<=80%")
    return of_row(
        Published(
            row.id, row.trace, row.policy, row.method, given, row.metric, row.value, "MJ", row.note
        )
    )


def carma(trace: str) -> list[Case]:
    """CARMA as it was published later, with and without estimates."""
    ways = [("magm", "none"), ("lug", "none"), ("magm", "oracle")]
    ways += [("magm", name) for name in ESTIMATORS]
    return [
        Case(trace, f"CARMA later {order} {known}", carma_way(order, known))
        for order, known in ways
    ]


def without_estimate(trace: str) -> list[Case]:
    """No estimate at all: the thesis' conditions and recovery, by a scheduler that does not pause
    and waits until telemetry has shown the last launch."""
    cases = []
    for order in ("magm", "lug"):
        way = thesis_way(order, smact_at_most=ORACLE_SMACT, free_mib=5000)
        setting = replace(
            way.setting, pace=Pace(tick_s=15.0), monitor=Monitor(30.0, 1.0), settle=True
        )
        label = f"no estimate {order} SMACT<=80%, free>=5GB, settled"
        cases.append(Case(trace, label, replace(way, setting=setting)))
    return cases


def ours(trace: str, best_runs: int) -> list[Case]:
    """What an admin gets: Slurm's own first fit of shards (native), and `--policy best` with true
    memory, with an error and with each estimator. Without any, see `without_estimate`.

    Best plans ahead, which takes seconds a run: ``best_runs`` of the two that matter, two of what
    only shows where it ends.
    """
    exact = ("oracle", "error:0.03")
    cases = [Case(trace, f"first-fit {name} mps", None, "first-fit", name, "mps") for name in exact]
    known = [(name, method) for method in METHODS for name in exact]
    known += [(name, "mps") for name in ESTIMATORS]
    for name, method in known:
        runs = best_runs if (name in exact and method == "mps") else min(2, best_runs)
        label = f"best {name} {method} ({runs} runs)"
        cases.append(Case(trace, label, None, BEST, name, method, runs))
    return cases
