# SPDX-License-Identifier: Apache-2.0
"""Measured rows to judge by (not part of the project), and their families."""

import csv
import os
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: where the rows lie: COLOC_SHARED, else beside the checkout
SHARED = Path(os.environ.get("COLOC_SHARED", ROOT.parent / "shared"))
TIMM = Path("data/timm_a100_dev.csv")

# Models that one file of timm builds are one family whatever they are called.
SAME = {
    "efficientnet": "efficientnet tf tinynet mnasnet semnasnet spnasnet fbnetc hardcorenas"
    " mobilenet mobilenetv",
    "resnet": "resnext seresnext gcresnext skresnext ecaresnet ecaresnetlight ecaresnetd seresnetaa"
    " resnet res legacy eca",
    "byob": "gernet botnet halonet sehalonet lamhalobotnet lambda sebotnet haloregnetz regnetz gc"
    " mobilevitv",
    "metaformer": "caformer convformer poolformerv poolformer",
    "vit": "vit flexivit beitv beit samvit deit tiny",
    "nfnet": "nfnet dm",
    "darknet": "darknet darknetaa cspdarknet cs",
    "maxxvit": "coatnet maxvit maxxvit coatnext",
    "swin": "swin swinv",
    "mixer": "mixer gmlp resmlp",
    "vovnet": "vovnet ese",
    "hgnet": "hgnet hgnetv",
}  # fmt: skip
_OF = {name: family for family, names in SAME.items() for name in names.split()}


def family(model: str) -> str:
    """The family of a timm model, from the letters that its name begins with."""
    found = re.match(r"[a-z]+\d*[a-z]*", model)
    head = re.sub(r"\d+[a-z]*$", "", found[0]) if found else model
    return _OF.get(head, head)


def timm_rows(path: Path) -> dict[str, list[tuple[int, int]]]:
    """(batch, MiB) by model, of timm_a100_dev.csv: runs that neither hit the card's limit nor
    crashed. Models whose increments from batch to batch do not about double are left out: faulty
    measurements."""
    rows: dict[str, list[tuple[int, int]]] = defaultdict(list)
    with path.open() as lines:
        for row in csv.DictReader(lines):
            if row["capped"] == "0" and row["monotone"] == "1":
                rows[row["model"]].append((int(row["batch_size"]), int(row["max_memory_mib"])))
    return {model: sorted(found) for model, found in rows.items() if _sound(sorted(found))}


def published_rows(path: Path) -> dict[str, list[tuple[int, float]]]:
    """(batch, MiB) by model that fake tensors gave, of timm_a100_dev.csv: all rows, for those that
    a card cut short were computed as well."""
    rows: dict[str, list[tuple[int, float]]] = defaultdict(list)
    with path.open() as lines:
        for row in csv.DictReader(lines):
            if row["faketensor_mib"]:
                rows[row["model"]].append((int(row["batch_size"]), float(row["faketensor_mib"])))
    return dict(rows)


def _sound(rows: list[tuple[int, int]]) -> bool:
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(rows)]
    if any(more <= 0 for _, more in steps):
        return False
    pairs = pairwise(steps)
    return all(1.4 <= 2 * (y[1] / y[0]) / (x[1] / x[0]) <= 2.9 for x, y in pairs)
