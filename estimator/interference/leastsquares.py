# SPDX-License-Identifier: Apache-2.0
"""Levenberg-Marquardt for a handful of parameters, without numpy."""

from collections.abc import Callable, Sequence

Residuals = Callable[[Sequence[float]], list[float]]


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with partial pivoting. Raises ZeroDivisionError where it is singular."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        best = max(range(i, size), key=lambda row: abs(rows[row][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for row in range(i + 1, size):
            factor = rows[row][i] / rows[i][i]
            rows[row] = [a - factor * b for a, b in zip(rows[row], rows[i], strict=True)]
    out = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * out[j] for j in range(i + 1, size))
        out[i] = (rows[i][size] - known) / rows[i][i]
    return out


def _squares(values: Sequence[float]) -> float:
    return sum(value * value for value in values)


def minimise(residuals: Residuals, start: Sequence[float], steps: int = 60) -> list[float]:
    """Parameters of a local minimum of the sum of squares, from ``start``."""
    here, damping = list(start), 1e-2
    now = residuals(here)
    for _ in range(steps):
        slopes = [_slope(residuals, here, now, index) for index in range(len(here))]
        down = [-sum(a * b for a, b in zip(slope, now, strict=True)) for slope in slopes]
        normal = [[sum(a * b for a, b in zip(p, q, strict=True)) for q in slopes] for p in slopes]
        before = _squares(now)
        while damping < 1e8:
            found = _step(residuals, here, normal, down, damping)
            if found is not None and _squares(found[1]) < before:
                break
            damping *= 4
        else:
            return here
        here, now = found
        damping = max(damping / 5, 1e-9)
        if before - _squares(now) < 1e-9 * before:
            return here
    return here


def _slope(
    residuals: Residuals, here: Sequence[float], now: Sequence[float], index: int
) -> list[float]:
    width = 1e-5 * max(1.0, abs(here[index]))
    beside = [value + width * (place == index) for place, value in enumerate(here)]
    return [(after - before) / width for after, before in zip(residuals(beside), now, strict=True)]


def _step(
    residuals: Residuals,
    here: Sequence[float],
    normal: list[list[float]],
    down: list[float],
    damping: float,
) -> tuple[list[float], list[float]] | None:
    """A step and the residuals there; None where it leads to no number."""
    damped = [
        [value + damping * (line[i] + 1e-9) * (i == j) for j, value in enumerate(line)]
        for i, line in enumerate(normal)
    ]
    try:
        there = [a + b for a, b in zip(here, _solve(damped, down), strict=True)]
        return there, residuals(there)
    except (ArithmeticError, ValueError):
        return None
