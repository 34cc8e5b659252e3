# SPDX-License-Identifier: Apache-2.0
"""The MIG layout that past runs would have wanted."""

import pytest

from slurm_coloc.admin.rules.mig_plan import PastRun, commands, fits, node_gres, plan
from slurm_coloc.core.gpu.mig import CARDS

A100 = CARDS["a100-40gb"]


def runs(count: int, peak_mib: int, smact: float | None, run_s: float = 3600) -> list[PastRun]:
    return [PastRun(0.0, run_s, peak_mib, smact) for _ in range(count)]


def test_how_many_fit_each_profile() -> None:
    found = {one.profile: one for one in fits(A100, [*runs(3, 4000, 0.1), *runs(1, 15000, 0.9)])}
    assert found["1g.5gb"].runs == 3
    assert found["1g.5gb"].share == pytest.approx(0.75)
    assert found["3g.20gb"].runs == 4


def test_many_small_idle_jobs_want_seven_devices() -> None:
    best = plan(A100, runs(14, 4000, 0.1), 1, 1, 40960)[0]
    assert best.layout == ("1g.5gb",) * 7
    # two after each other on each device, as fast as alone: 0.1 is less than 14 of 108 SMs
    assert best.makespan_s == pytest.approx(7200)
    assert best.unserved == 0


def test_busy_jobs_are_slowed_by_a_device_and_stay_on_the_whole_gpu() -> None:
    found = plan(A100, runs(2, 4000, 1.0), 1, 1, 40960)
    assert found[0].layout == ()
    seven = next(one for one in found if one.layout == ("1g.5gb",) * 7)
    assert seven.mean_run_s == pytest.approx(3600 * 108 / 14)


def test_unknown_activity_counts_as_busy() -> None:
    known = plan(A100, runs(4, 4000, 1.0), 1, 1, 40960)
    unknown = plan(A100, runs(4, 4000, None), 1, 1, 40960)
    assert known == unknown


def test_a_run_that_fits_nowhere_is_worse_than_any_wait() -> None:
    mixed = [*runs(7, 4000, 0.1), *runs(1, 30000, 0.9)]
    best = plan(A100, mixed, 1, 1, 40960)[0]
    assert best.unserved == 0
    # with a second GPU left whole, all seven slices serve the small ones
    best = plan(A100, mixed, 2, 1, 40960)[0]
    assert (best.layout, best.unserved) == (("1g.5gb",) * 7, 0)


def test_what_the_admin_types() -> None:
    layout = ("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb")
    assert commands(A100, layout, [1]) == [
        "nvidia-smi -i 1 -mig 1",
        "nvidia-smi mig -i 1 -cgi 9,14,19,19 -C",
    ]
    text = node_gres("a100", 1, layout, 1, 39)
    assert text == "gpu:a100:1,gpu:3g.20gb:1,gpu:2g.10gb:1,gpu:1g.5gb:2,shard:39"
