# SPDX-License-Identifier: Apache-2.0
"""The published savings of time under other models of interference, and with late crashes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean

from estimator.power.thesis import run_way
from slurm_coloc.core.place.interference import REFERENCE, Interference, Reference, model
from slurm_coloc.sim.setting import Setting
from tests.paper.cases import Case, exclusive, of_words, oracle
from tests.paper.play import Lab
from tests.paper.sensitivity import RUNS

Change = Callable[[Setting], Setting]


def _model(interference: Interference) -> Change:
    return lambda setting: replace(setting, interference=interference)


#: the ends of the range of k and C that the reference model was given with, and the fitted one;
#: and crashes that come late, as of a job that runs out in its first validation
CHANGES: Mapping[str, Change] = {
    "reference": _model(REFERENCE),
    "reference, k 0.9 and C 1.07": _model(Reference(k=0.9, capacity=1.07)),
    "reference, k 1.45 and C 0.98": _model(Reference(k=1.45, capacity=0.98)),
    "fitted": _model(model("fitted")),
    "reference, memory 300 s after the launch": lambda setting: replace(setting, ramp_s=300.0),
}
#: id of the published value -> what is played
ROWS: Mapping[str, Case] = {
    "H1": oracle("90", "OWF", "mps"),
    "H2": of_words("90", "LUG", "MPS", "SMACT<=80%, free>=5GB"),
    "H3a": of_words("90", "MAGM+GPUMemNet", "MPS", "free>=estimate"),
    "H4 (OWF)": oracle("90", "OWF", "streams"),
    "H8 (RR)": of_words("90", "RR", "MPS", "none"),
    "H8 (MAGM)": of_words("90", "MAGM", "MPS", "none"),
    "H8 (MAGM 80 %)": of_words("90", "MAGM", "MPS", "SMACT<=80%, free>=5GB"),
    "X4": of_words("60", "MAGM", "MPS", "SMACT<=80%, free>=2GB"),
}


def saved(case: Case, change: Change, lab: Lab) -> float:
    """Per cent less total time than exclusive (mean)."""
    assert case.way is not None
    way = replace(case.way, setting=change(case.way.setting))
    alone = lab.values(exclusive(case.trace), "makespan_s")[:RUNS]
    runs = lab.variations(case.trace)[:RUNS]
    return fmean(
        100 * (1 - run_way(way, jobs, lab.machine).makespan_s / most)
        for jobs, most in zip(runs, alone, strict=True)
    )


def table(lab: Lab, published: Mapping[str, str]) -> list[str]:
    """Markdown: a line a model, a column a published value (by its id)."""
    values = [published.get(name.split(" ")[0], "-") for name in ROWS]
    lines = [("time, % less", *ROWS), ("---", *("---" for _ in ROWS)), ("published", *values)]
    for name, change in CHANGES.items():
        cells = [f"{saved(case, change, lab):.1f}" for case in ROWS.values()]
        lines.append((name, *cells))
    return ["| " + " | ".join(cells) + " |" for cells in lines]
