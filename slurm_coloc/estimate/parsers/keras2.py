# SPDX-License-Identifier: Apache-2.0
"""Keras 2's summary(): columns at fixed places between rules of underscores.

A cell that does not fit goes on in the next line at the same place. Nested models that are shown
stand between bars.
"""

from collections.abc import Sequence

from slurm_coloc.estimate.keras_rows import Cells, bound_cells, keras_summary
from slurm_coloc.estimate.lexing import bound_rows, fail
from slurm_coloc.estimate.summary import Summary
from slurm_coloc.estimate.tables import is_rule, ruled_below


class Keras2:
    """The parser of Keras 2's table."""

    name = "keras2"
    mark = "Layer (type"

    def starts(self, lines: Sequence[str], index: int) -> bool:
        """The header between a rule of underscores and one of =."""
        line = lines[index].lstrip()
        if not line.startswith("Layer (type)") or "Output Shape" not in line:
            return False
        return ruled_below(lines, index, "=") and self._ruled(lines, index)

    def _ruled(self, lines: Sequence[str], index: int) -> bool:
        if index and lines[index - 1]:
            return is_rule(lines[index - 1], "_")
        # The rule above was cut off: Keras rows are "name (Class)".
        row = next((text for text in lines[index + 2 : index + 6] if text.strip()), "")
        return "(" in row and "-1," not in row and ":" not in row and "None" in row

    def parse(self, lines: Sequence[str]) -> Summary:
        """See Parser.parse."""
        header = lines[0]
        places = [header.find("Output Shape"), header.find("Param #")]
        if min(places) < 0:
            raise fail("unknown_sizes", "the Keras table has no shapes or no parameters")
        after = header.find("Connected to")
        rows: list[Cells] = []
        rules = 0
        for index, line in enumerate(lines[1:], 1):
            if not line.strip(" |¯"):
                continue
            if is_rule(line, "="):
                rules += 1
                if rules == 2:
                    return keras_summary(self.name, rows, lines[index + 1 :])
                continue
            if is_rule(line, "_") or not line.strip(" |_¯"):
                continue
            if rules == 1:
                self._add(rows, line, places[0], places[1], after if after > 0 else len(line))
                bound_rows(rows)
        raise fail("truncated", "the Keras table has no footer: its end is missing")

    def _add(self, rows: list[Cells], line: str, shape: int, count: int, end: int) -> None:
        name = line[:shape].strip()
        cells = Cells(name, line[shape:count].strip(" |"), line[count:end].strip(" |"))
        if cells.count and cells.count[0].isdigit() and cells.shape[:1] not in ("", ")"):
            rows.append(cells)
        elif rows:
            # Keras cuts a cell anywhere, "(None, 56, 56, 12" and "8)": nothing comes between.
            last = rows[-1]
            bound_cells(last.name, last.shape, last.count)
            rows[-1] = Cells(
                f"{last.name} {name}".strip(), last.shape + cells.shape, last.count + cells.count
            )
        else:
            raise fail("bad_row", "the first row of the table cannot be read")


PARSER = Keras2()
