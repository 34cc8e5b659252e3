# SPDX-License-Identifier: Apache-2.0
"""The published savings of time under other models of interference."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from slurm_coloc.core.interference import REFERENCE, Interference, Reference, model
from slurm_coloc.sim.thesis import run_way
from tests.paper.cases import Case, exclusive, of_words, oracle
from tests.paper.play import Lab
from tests.paper.sensitivity import RUNS

#: the ends of the range of k and C that the reference model was given with, and the fitted one
MODELS: Mapping[str, Interference] = {
    "reference": REFERENCE,
    "reference, k 0.9 and C 1.07": Reference(k=0.9, capacity=1.07),
    "reference, k 1.45 and C 0.98": Reference(k=1.45, capacity=0.98),
    "fitted": model("fitted"),
}
#: id of the published value -> what is played
ROWS: Mapping[str, Case] = {
    "H1": oracle("90", "OWF", "mps"),
    "H2": of_words("90", "LUG", "MPS", "SMACT<=80%, free>=5GB"),
    "H3a": of_words("90", "MAGM+GPUMemNet", "MPS", "free>=estimate"),
    "H4 (OWF)": oracle("90", "OWF", "streams"),
    "X4": of_words("60", "MAGM", "MPS", "SMACT<=80%, free>=2GB"),
}


def saved(case: Case, interference: Interference, lab: Lab) -> float:
    """Per cent less total time than exclusive (mean)."""
    assert case.way is not None
    way = replace(case.way, setting=replace(case.way.setting, interference=interference))
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
    for name, interference in MODELS.items():
        cells = [f"{saved(case, interference, lab):.1f}" for case in ROWS.values()]
        lines.append((name, *cells))
    return ["| " + " | ".join(cells) + " |" for cells in lines]
