# SPDX-License-Identifier: Apache-2.0
"""make test-gpu: the checks of the fence, of MPS and of NVML on the GPU that is here.

Without one the same program runs on the emulated GPU and says so in its first lines. Nothing of the
card is set: no compute mode, no accounting mode, no MIG. Exit 1 where a check is false. Names of
checks as arguments: only those.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.adapters import nvml  # noqa: E402
from slurm_coloc.errors import GpuError  # noqa: E402
from tests.gpu import agent_checks, client_checks, fence_checks, node_checks, speed_checks  # noqa: E402
from tests.gpu import place as places  # noqa: E402
from tests.gpu.place import OUT, Place  # noqa: E402
from tests.gpu.verdict import Found, Verdict, judged, untested  # noqa: E402

Check = Callable[[Place], list[Found]]
#: and whether it needs a GPU that nobody else uses
CHECKS: tuple[tuple[str, Check, bool], ...] = (
    ("MPS", fence_checks.daemon, False),
    ("MPS limits", fence_checks.limits, False),
    ("MPS server limit", fence_checks.server_limit, False),
    ("two users", fence_checks.two_users, False),
    ("ended clients", client_checks.ended, False),
    ("cgroup limits", fence_checks.kernel, False),
    ("NVML under MPS", node_checks.under_mps, False),
    ("agent", agent_checks.agent, False),
    ("looks", node_checks.looks, False),
    ("hooks", node_checks.hooks, False),
    ("speeds", speed_checks.speeds, True),
)


def main() -> int:
    """Run them; 1 where one is false."""
    wanted = sys.argv[1:] or [name for name, _, _ in CHECKS]
    if unknown := set(wanted) - {name for name, _, _ in CHECKS}:
        print(f"test-gpu: no check {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("test-gpu: needs root: daemons and trainings run as another user", file=sys.stderr)
        return 2
    try:
        place = places.find()
    except GpuError as err:
        print(f"test-gpu: {err.message}", file=sys.stderr)
        return 5
    print(place.title)
    trains = place.python or ("libcuda alone (no torch here)" if place.real else "emu-train")
    print(f"test-gpu: trainings by {trains}, as uid {place.uid}\n", flush=True)
    try:
        found = [
            one for check in CHECKS if check[0] in wanted for one in _shown(_run(place, *check))
        ]
    finally:
        shutil.rmtree(place.scratch, ignore_errors=True)
    if not sys.argv[1:]:
        _keep(place, found)
    false = [one for one in found if one.verdict is Verdict.FALSE]
    left = [one for one in found if one.verdict is Verdict.UNTESTED]
    print(f"\ntest-gpu: {len(found)} lines, {len(false)} false, {len(left)} not tested here")
    if not sys.argv[1:]:
        print(f"test-gpu: written to {OUT / 'result.json'}")
    return 1 if false else 0


def _run(place: Place, name: str, check: Check, alone: bool) -> list[Found]:
    if place.gpu.processes and alone:
        return [untested(name, "other processes are on every GPU")]
    if name != "looks" and name != "cgroup limits" and not os.access(place.control, os.X_OK):
        return [untested(name, f"{place.control} is not here")]
    try:
        return check(place)
    except GpuError as err:
        return [judged(name, False, err.message)]
    except OSError as err:
        return [untested(name, f"{err}")]


def _shown(found: list[Found]) -> list[Found]:
    for one in found:
        print(f"{one.verdict:9} {one.name:38} {one.text}", flush=True)
    return found


def _keep(place: Place, found: list[Found]) -> None:
    with nvml.Nvml() as lib:
        (gpu,) = lib.by_uuid([place.gpu.uuid])
    told = {
        "schema": 1,
        "at_s": round(time.time(), 3),
        "real": place.real,
        "gpu": {"name": gpu.name, "total_mib": gpu.total_mib, "uuid": gpu.uuid},
        "driver": place.driver,
        "checks": [
            {"name": one.name, "verdict": one.verdict, "text": one.text, "figures": one.figures}
            for one in found
        ],
    }
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "result.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
