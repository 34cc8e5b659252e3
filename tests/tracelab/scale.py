# SPDX-License-Identifier: Apache-2.0
"""Compression: which clock runs how fast, and what of the lab does not run faster with the jobs."""

from dataclasses import dataclass

#: seconds of the thesis' telemetry, and agent.window_s
WINDOW_S = 90.0


@dataclass(frozen=True, slots=True)
class Scale:
    """``compress``: seconds of the trace in one second of the lab. ``start_s``: seconds of the lab
    that a GPU is taken, or stands idle, for one run besides its training: measured before the trace
    (probe.py). ``window_s``, ``beat_s``: of telemetry, in the lab's seconds. ``again_s``: from an
    out-of-memory to the next start, at least."""

    compress: float
    start_s: float = 0.0
    window_s: int = 90
    beat_s: int = 1
    look_s: float = 1.0
    again_s: float = 4.0

    @classmethod
    def at(cls, compress: float) -> "Scale":
        """Telemetry looks back 90 s of the trace, as it does in life; a sample takes a second, so
        it is not less than three."""
        return cls(compress, window_s=max(3, round(WINDOW_S / compress)))

    def of_lab(self, trace_s: float) -> float:
        """Seconds of the lab."""
        return trace_s / self.compress

    def of_trace(self, lab_s: float) -> float:
        """Seconds of the trace."""
        return lab_s * self.compress

    @property
    def start_of_trace_s(self) -> float:
        """What a start costs in seconds of the trace."""
        return self.of_trace(self.start_s)
