# SPDX-License-Identifier: Apache-2.0
"""The sweeps' curves: one picture a sweep, from the figures that run.py wrote.

python tests/sweeps/plots.py FOLDER   (needs the extra `plot`)
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

#: what is shown, and what better means
PANELS = (
    ("saving", "saved of what the bound allows (up is better)"),
    ("jct", "mean completion time, ratio to whole GPUs (down is better)"),
    ("slow95", "slowdown beside others, 95th percentile"),
    ("oom", "out-of-memory per trace"),
)
#: Okabe and Ito's palette, safe for colour-blind eyes
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")


def draw(file: Path) -> Path:
    """One sweep's picture beside its figures."""
    found = json.loads(file.read_text())
    ways = list(found)
    mixes = list(found[ways[0]])
    panels = [panel for panel in PANELS if any(_values(found, panel[0], mix) for mix in mixes)]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(max(7.0, 0.5 * len(ways)), 2.4 * len(panels)), sharex=True
    )
    for axis, (name, label) in zip(axes, panels, strict=True):
        for colour, mix in zip(COLOURS, mixes, strict=False):
            values = [found[way][mix][name] for way in ways]
            axis.plot(range(len(ways)), values, "o-", color=colour, label=mix, markersize=3)
        axis.set_title(label, fontsize=9, loc="left")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8, ncol=len(mixes), loc="lower left", bbox_to_anchor=(0, 1.18))
    axes[-1].set_xticks(range(len(ways)), ways, rotation=60, ha="right", fontsize=8)
    figure.tight_layout()
    out = file.with_suffix(".png")
    figure.savefig(out, dpi=62)
    plt.close(figure)
    return out


def _values(
    found: dict[str, dict[str, dict[str, float | None]]], name: str, mix: str
) -> list[float]:
    """What is known and not 0 of one figure."""
    return [value for by_mix in found.values() if (value := by_mix[mix][name])]


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.json")):
        print(draw(path))
