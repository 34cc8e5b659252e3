# SPDX-License-Identifier: Apache-2.0
"""One line of the table, and how a published value and ours become one."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.paper.cases import Case
from tests.paper.facts import Published
from tests.paper.play import Lab, Spread

HEADS = (
    "id",
    "trace",
    "policy",
    "conditions",
    "metric",
    "published",
    "ours",
    "holds?",
    "bound",
    "clairvoyant",
)


@dataclass(slots=True)
class Statement:
    """``holds``: yes, no or a remark; "-" where nothing is claimed."""

    id: str
    trace: str
    policy: str
    conditions: str
    metric: str
    published: str
    ours: str
    holds: str = "-"
    bound: str = "-"
    clairvoyant: str = "-"

    def cells(self) -> tuple[str, ...]:
        """In the order of HEADS."""
        return tuple(str(getattr(self, name.rstrip("?"))) for name in HEADS)


@dataclass(frozen=True, slots=True)
class Limits:
    """What is possible on a trace, in per cent less than exclusive."""

    time: str
    clairvoyant: str
    energy: str
    clairvoyant_energy: str


def within(published: float, ours: Spread) -> str:
    """Whether a published run is one that ours would not be surprised by: two standard deviations
    of a single run."""
    far = abs(published - ours.mean)
    return "yes" if far <= 2 * ours.sd else f"no: {published - ours.mean:+.1f}"


def crashes(row: Published, case: Case, lab: Lab, order: str) -> Statement:
    """A count of out-of-memory crashes. Its order among the rows of the table is what is judged."""
    ours = lab.spread(case, "oom")
    return Statement(
        row.id,
        row.trace,
        f"{row.policy} {row.method}",
        row.conditions,
        "OOM crashes",
        row.value,
        ours.text(),
        order,
        "0",
        "0",
    )


def reduction(
    row: Published, case: Case, lab: Lab, limits: Limits, name: str, published: float
) -> Statement:
    """Per cent less total time or energy than exclusive."""
    ours = Spread.of(lab.reductions(case, name))
    time = name == "makespan_s"
    return Statement(
        row.id,
        row.trace,
        f"{row.policy} {row.method}".strip(),
        row.conditions or "-",
        "total time, % less" if time else "energy, % less",
        f"{published:.2f}",
        ours.text(2),
        within(published, ours),
        limits.time if time else limits.energy,
        limits.clairvoyant if time else limits.clairvoyant_energy,
    )


def own(case: Case, lab: Lab, limits: Limits) -> Statement:
    """A case of ours: time, crashes and energy, with nothing published beside them."""
    share = Spread.of(lab.reductions(case, "makespan_s"))
    energy = Spread.of(lab.reductions(case, "energy_mj"))
    oom, slow = lab.spread(case, "oom"), lab.spread(case, "p95_slowdown")
    text = f"time {share.text(1)} %, {lab.share(case).mean:.2f} of the bound's, OOM {oom.text(1)}, "
    text += f"energy {energy.text(1)} %, p95 slowdown {slow.mean:.2f}"
    return Statement(
        "ours",
        case.trace,
        case.label,
        "-",
        "% less than exclusive",
        "-",
        text,
        "-",
        f"{limits.time}; energy {limits.energy}",
        f"{limits.clairvoyant}; energy {limits.clairvoyant_energy}",
    )


def markdown(lines: Sequence[Statement]) -> list[str]:
    """A table."""
    rows = [HEADS, tuple("---" for _ in HEADS), *(line.cells() for line in lines)]
    return ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
