# SPDX-License-Identifier: Apache-2.0
"""The parts of the agent that only compute: window, series, idleness, and what dcgmi prints."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.adapters.dcgm.counters import read_discovery, read_line
from slurm_coloc.core.gpu.telemetry.idle import Idle
from slurm_coloc.core.gpu.telemetry.reading import Held, Profile, Reading
from slurm_coloc.core.gpu.telemetry.series import POINTS, Series
from slurm_coloc.core.gpu.telemetry.window import Window


def test_the_window_forgets() -> None:
    window = Window(90)
    assert window.mean is None
    for at_s in range(200):
        window.add(at_s, 0.0 if at_s < 110 else 1.0)
    assert window.mean == 1.0
    window.add(500, None)
    assert window.mean is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 5000), st.integers(0, 80000), st.one_of(st.none(), st.floats(0, 1))),
        min_size=1,
        max_size=200,
    )
)
def test_a_series_is_bounded_and_keeps_its_peak(samples: list[tuple[float, int, float]]) -> None:
    series = Series(100.0)
    for at_s, mib, smact in sorted(samples, key=lambda one: one[0]):
        series.add(100 + at_s, mib, smact)
    plain = series.plain()
    told = [one for one in plain["memory_mib"] if one is not None]
    assert len(plain["memory_mib"]) == len(plain["smact"]) <= POINTS
    assert max(told) == max(mib for _, mib, _ in samples)
    assert Series.of(plain).plain() == plain
    assert all(one is None or 0 <= one <= 1 for one in plain["smact"])


def test_idle_once_and_again_after_work() -> None:
    idle = Idle(10)
    seen = [idle.see(at_s, 0.0) for at_s in range(15)]
    assert seen.count(True) == 1 and seen[10] and idle.since_s == 0
    assert not idle.see(15, 0.3) and idle.since_s is None
    assert [idle.see(20 + at_s, 0.001) for at_s in range(12)].count(True) == 1


def test_what_was_certain_of_an_idle_run() -> None:
    idle = Idle(10)
    for at_s in range(20):
        idle.see(at_s, 0.0, certain=at_s >= 5)
    assert (idle.since_s, idle.certain_s) == (0, 5)
    idle.see(20, 0.0, certain=False)
    assert (idle.since_s, idle.certain_s) == (0, None)
    idle.see(21, 0.0)
    assert idle.certain_s == 21
    idle.see(22, None)  # a profiler has the counters
    assert (idle.since_s, idle.certain_s) == (0, None)
    idle.see(23, 0.5)
    assert (idle.since_s, idle.certain_s) == (None, None)


@pytest.mark.parametrize(
    ("owners", "smact", "expected"),
    [
        ([7], 0.5, True),  # alone
        ([], 0.5, True),
        ([7, 8], 0.5, False),  # whose is it?
        ([7, 8], 0.0, True),  # nobody's
        ([8, 9], 0.5, True),  # it has no process
        ([8, None], 0.5, False),  # or is it that one?
    ],
)
def test_when_a_jobs_activity_is_certain(
    owners: list[int | None], smact: float, expected: bool
) -> None:
    held = tuple(Held(pid, 1.0, 900, job) for pid, job in enumerate(owners))
    reading = Reading("GPU-1", "A100", 40000, 39000, held, Profile(smact=smact))
    assert reading.is_certain(7) is expected


def test_nothing_told_is_no_idleness() -> None:
    idle = Idle(10)
    assert not any(idle.see(at_s, None) for at_s in range(100))
    assert not any(idle.see(100 + at_s, 0.0 if at_s % 5 else None) for at_s in range(40))
    assert not any(Idle(0).see(at_s, 0.0) for at_s in range(5000)), "0: never"


def test_lines_of_dcgmi() -> None:
    assert read_line("#Entity   SMACT        SMOCC        DRAMA        PCITX        PCIRX") is None
    assert read_line("ID") is None
    assert read_line("GPU 3     N/A          N/A          N/A          N/A          N/A") == (
        3,
        None,
    )
    line = "GPU 0     0.251        0.120        0.400        1048576      2097152"
    assert read_line(line) == (0, Profile(0.251, 0.12, 0.4, 1.0, 2.0))
    # what DCGM has no value for is N/A, or one of its blanks
    assert read_line("GPU 0 0.5 N/A 9223372036854775794 nan -1") == (0, Profile(0.5))
    assert read_line("GPU 0 1.002 0 0 0 0") == (0, Profile(1.0, 0.0, 0.0, 0.0, 0.0))


def test_discovery_of_dcgmi() -> None:
    text = """2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:07:00.0                                         |
|        | Device UUID: GPU-11111111-2222-3333-4444-555555555555                |
+--------+----------------------------------------------------------------------+
| 4      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | Device UUID: GPU-99999999-2222-3333-4444-555555555555                |
+--------+----------------------------------------------------------------------+
"""
    assert read_discovery(text) == {
        0: "GPU-11111111-2222-3333-4444-555555555555",
        4: "GPU-99999999-2222-3333-4444-555555555555",
    }
    assert read_discovery("Error: unable to connect") == {}


def test_what_was_not_measured_is_no_idle_time() -> None:
    """The driver hung for two hours between two quiet samples."""
    idle = Idle(1800)
    assert not idle.see(0, 0.0) and not idle.see(7200, 0.0)
    assert idle.since_s is None and idle.certain_s == 7200
    for at_s in range(7201, 9001):
        idle.see(at_s, 0.0)
    assert (idle.since_s, idle.certain_s) == (7200, 7200)
    idle.see(20000, 0.0)
    assert (idle.since_s, idle.certain_s) == (7200, 20000), "told of before; counts anew"
