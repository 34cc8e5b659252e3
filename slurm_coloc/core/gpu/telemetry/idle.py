# SPDX-License-Identifier: Apache-2.0
"""A GPU that a job holds and does not use."""

# An idle context keeps no SM busy; a training that always waits for its data shows some per cent.
# DCGM rounds to 0.001.
NOTHING = 0.01
GAP_S = 10.0  # samples come each second; what was not measured for longer is no idle time


class Idle:
    """Watches the SM activity of one run. ``since_s``: since when it is idle, once long enough.
    ``certain_s``: since when that was measured of the job itself or of a GPU on which nothing ran;
    None while it is the job's part of what several did together, by the driver's figures of each
    process, which may be wrong under MPS."""

    def __init__(self, after_s: float) -> None:
        """``after_s``: seconds without activity; 0: never."""
        self._after_s = after_s
        self._quiet_s: float | None = None
        self._last_s: float | None = None
        self.since_s: float | None = None
        self.certain_s: float | None = None

    def see(self, at_s: float, smact: float | None, *, certain: bool = True) -> bool:
        """Take a sample; true when the run has just become idle. A gap is no idle time."""
        if self._last_s is not None and at_s - self._last_s > GAP_S:
            self.certain_s = None
            self._quiet_s = None if self.since_s is None else self._quiet_s
        self._last_s = at_s
        is_quiet = smact is not None and smact < NOTHING
        if not (is_quiet and certain):
            self.certain_s = None
        elif self.certain_s is None:
            self.certain_s = at_s
        if smact is None:
            self._quiet_s = None if self.since_s is None else self._quiet_s
            return False
        if not is_quiet:
            self._quiet_s = self.since_s = None
            return False
        if self._quiet_s is None:
            self._quiet_s = at_s
        if not self._after_s or self.since_s is not None or at_s - self._quiet_s < self._after_s:
            return False
        self.since_s = self._quiet_s
        return True
