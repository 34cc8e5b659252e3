# SPDX-License-Identifier: Apache-2.0
"""The thesis' scheduling results beside ours: one table, the orders, and what falls short.

make paper ARGS='--runs 30 --best-runs 30 --write'
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.paper import headlines, models, orders, report, sensitivity, statements  # noqa: E402
from tests.paper.cases import Case, carma, energy_row, of_row, ours, without_estimate  # noqa: E402
from tests.paper.facts import TRACES, Published, folder, published  # noqa: E402
from tests.paper.limits import limits  # noqa: E402
from tests.paper.play import Lab  # noqa: E402
from tests.paper.rows import Limits, Statement, crashes, own, reduction  # noqa: E402

#: tables of crashes; the two of the 90 trace are one order
CRASHES = {"Tables 6.3 and 6.4": ("T6.3-", "T6.4-"), "Table 6.5": ("T6.5-",)}


def crash_lines(
    rows: Sequence[Published], lab: Lab, title: str
) -> tuple[list[Statement], list[str]]:
    """Tables 6.3 to 6.5, and what is said of their order."""
    cases = {row.id: of_row(row) for row in rows}
    ranked = [
        orders.Ranked(row.id, row.number or 0.0, lab.values(cases[row.id], "oom")) for row in rows
    ]
    found = orders.pairs(ranked)
    lines = [crashes(row, cases[row.id], lab, orders.of_row(row.id, found)) for row in rows]
    return lines, orders.summary(f"{title}, OOM crashes", found)


def energy_lines(
    rows: Sequence[Published], lab: Lab, limit: Limits
) -> tuple[list[Statement], list[str]]:
    """Table 6.6: what a run saves against its own exclusive run."""
    alone = next(row.number for row in rows if row.policy == "Exclusive")
    assert alone is not None
    lines, ranked = [], []
    for row in rows:
        case = energy_row(row)
        saved = 100 * (1 - (row.number or 0.0) / alone)
        line = reduction(row, case, lab, limit, "energy_mj", saved)
        line.published = f"{saved:.2f} ({row.number:.2f} MJ)"
        line.ours += f" ({lab.spread(case, 'energy_mj').mean:.2f} MJ)"
        lines.append(line)
        ranked.append(orders.Ranked(row.id, saved, lab.reductions(case, "energy_mj")))
    found = orders.pairs(ranked)
    for line in lines:
        line.holds = f"{line.holds}; {orders.of_row(line.id, found)}"
    return lines, orders.summary("Table 6.6, energy saved", found)


def table(rows: Sequence[Published], lab: Lab, best_runs: int) -> tuple[list[Statement], list[str]]:
    """Every line, and what is said of the orders."""
    by_trace = {name: limits(lab, name) for name in TRACES}
    lines: list[Statement] = []
    said: list[str] = []
    for title, prefixes in CRASHES.items():
        mine = [row for row in rows if row.id.startswith(prefixes)]
        more, words = crash_lines(mine, lab, title)
        lines += more
        said += words
    mine = [row for row in rows if row.id.startswith("T6.6-")]
    more, words = energy_lines(mine, lab, by_trace["60"])
    lines += more
    said += words
    for row in rows:
        if row.id in headlines.KNOWN:
            lines += headlines.lines(row, lab, by_trace)
    for name in TRACES:
        cases: list[Case] = [*without_estimate(name), *carma(name), *ours(name, best_runs)]
        lines += [own(case, lab, by_trace[name]) for case in cases]
    return lines, said


def main() -> int:
    """Print it, or write it into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="jittered runs of each case")
    parser.add_argument(
        "--best-runs", type=int, default=30, help="of --policy best: some 10 s each"
    )
    parser.add_argument("--write", action="store_true", help="into tests/paper/RESULTS.md")
    args = parser.parse_args()
    facts = folder()
    if facts is None:
        print(
            "paper: no facts here: the published values and traces are no part of this project. "
            "COLOC_FACTS names the folder with expected.csv, jobs_60.csv, jobs_90.csv and "
            "activity.csv; nothing was compared."
        )
        return 0
    began = time.monotonic()
    lab = Lab(facts, args.runs)
    rows = published(facts)
    lines, said = table(rows, lab, args.best_runs)
    others = sensitivity.table(rows, lab)
    others += ["", *models.table(lab, {line.id: line.published for line in lines})]
    others += ["", "Statements of the workshop paper, which no model was fitted to:", ""]
    others += statements.markdown(statements.table(facts))
    text = report.text(lines, said, others, args.runs, time.monotonic() - began)
    print(text)
    if args.write:
        report.write(ROOT / "tests" / "paper" / "RESULTS.md", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
