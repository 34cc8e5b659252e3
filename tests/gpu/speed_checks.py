# SPDX-License-Identifier: Apache-2.0
"""1, 2, 4 and 7 small trainings: one after another, by turns, under MPS.

Beside them stands what was published of such trainings (Robroek et al., EuroMLSys 2024, A100):
seven at once under MPS each take 2 to 2.5 times as long and do some 3 times the work; two take
roughly as long as one. The emulated GPU answers by its model, which says nothing of MPS against
turns that a test could hold against it.
"""

from typing import Any

from tests.gpu import work
from tests.gpu.place import Place
from tests.gpu.verdict import Found, judged, measured, untested

COUNTS = (1, 2, 4, 7)
ALONE_S = 5.0  # work of one training, alone
PUBLISHED = {
    2: "published: roughly as long as one",
    7: "published: 2 to 2.5 times, 3 x the work",
}


def speeds(place: Place) -> list[Found]:
    """The table, and two statements: MPS gains, and more than turns do."""
    amount = _amount(place)
    if amount is None:
        return [untested("speeds", "the small training does not run; see the checks above")]
    alone, alone_smact = work.together(place, 1, amount, None)
    alone_s = alone[0].wall_s
    if alone_s is None:
        return [judged("a training alone", False, alone[0].said[-200:])]
    found = [measured("alone", f"{alone_s:.2f} s{_percent(alone_smact)}", wall_s=alone_s)]
    gains: dict[tuple[str, int], float] = {}
    for count in COUNTS[1:]:
        found.append(_row(place, "by turns", count, amount, alone_s, gains))
        with work.mps(place) as (folder, _):
            found.append(_row(place, "MPS", count, amount, alone_s, gains, folder))
    most = COUNTS[-1]
    turns, mps = gains.get(("by turns", most), 0.0), gains.get(("MPS", most), 0.0)
    text = f"{most} trainings: {mps:.2f} x one after another under MPS, {turns:.2f} x by turns"
    beside = "MPS beside turns"
    found.append(judged(beside, mps >= turns, text) if place.real else measured(beside, text))
    found.append(
        judged(
            "MPS gains over one after another",
            mps > 1.2,
            f"{mps:.2f} x; {PUBLISHED[7]}",
            mps=mps,
            turns=turns,
        )
    )
    return found


def _amount(place: Place) -> float | None:
    """Steps (seconds on the emulated GPU) that take ALONE_S alone."""
    if not place.real:
        return ALONE_S / 2
    tried, _ = work.together(place, 1, 50, None)
    wall_s = tried[0].wall_s
    return max(50.0, 50 * ALONE_S / wall_s) if wall_s else None


def _row(
    place: Place,
    how: str,
    count: int,
    amount: float,
    alone_s: float,
    gains: dict[tuple[str, int], float],
    folder: Any = None,
) -> Found:
    ended, smact = work.together(place, count, amount, folder)
    walls = [each.wall_s for each in ended if each.wall_s is not None]
    name = f"{count} {how}"
    if len(walls) != count:
        bad = next(each for each in ended if each.wall_s is None)
        return judged(name, False, f"{count - len(walls)} failed: {bad.said.strip()[-160:]}")
    slower = sum(walls) / count / alone_s
    gains[how, count] = count * alone_s / max(walls)
    told = f"; {PUBLISHED[count]}" if how == "MPS" and count in PUBLISHED else ""
    return measured(
        name,
        f"each {slower:.2f} x as long, {gains[how, count]:.2f} x the work{_percent(smact)}{told}",
        slower=slower,
        gain=gains[how, count],
        smact=smact,
    )


def _percent(smact: float | None) -> str:
    return ", SM activity not measured" if smact is None else f", SM activity {smact:.0%}"
