# SPDX-License-Identifier: Apache-2.0
"""MPS by our own code, and what holds memory: does the fence do what we say of it?"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from slurm_coloc.adapters import cgroup, nvml
from slurm_coloc.adapters.mps import processes
from slurm_coloc.core.gpu import fence
from slurm_coloc.core.gpu.sharing import Rules
from slurm_coloc.errors import GpuError
from tests.gpu import work
from tests.gpu.place import Place
from tests.gpu.verdict import Found, judged, measured, untested

LIMIT_MIB = 4096
#: a training that fits with CUDA's context, which counts, and one that does not
FITS_MIB, TOO_MUCH_MIB = 1500, 5000
NOWHERE = Path("/nowhere")


def daemon(place: Place) -> list[Found]:
    """Start, serve, stop; nothing may be left. And where the server runs."""
    began = time.monotonic()
    with work.mps(place) as (folder, process):
        started_s = time.monotonic() - began
        running = work.start(place, work.command(place, _amount(place)), work.client(place, folder))
        inside = _until_server(process)
        ended = work.finish(running)
        stopping = time.monotonic()
    stopped_s = time.monotonic() - stopping
    left = processes.of_daemon(folder / "pipe", process)
    gone = not left and not processes.alive(process) and not folder.exists()
    return [
        judged(
            "MPS starts and stops",
            ended.code == 0 and gone,
            f"listens after {started_s * 1e3:.0f} ms, gone after {stopped_s * 1e3:.0f} ms"
            + ("" if ended.code == 0 else f"; its client failed: {ended.said[-200:]}"),
            started_s=started_s,
            stopped_s=stopped_s,
        ),
        judged(
            "server in its control daemon's session",
            bool(inside),
            f"{len(inside)} server(s) found by session alone"
            if inside
            else "none found: a killed daemon's servers would be left",
        ),
    ]


def _until_server(process: processes.Process) -> list[processes.Process]:
    end_s = time.monotonic() + 20
    while time.monotonic() < end_s:
        found = [one for one in processes.of_daemon(NOWHERE, process) if one.pid != process.pid]
        if found:
            return found
        time.sleep(0.05)
    return []


def _amount(place: Place) -> float:
    return 50 if place.real else 1.0


def limits(place: Place) -> list[Found]:
    """The limit of MPS is met by its clients, and by none other."""
    with work.mps(place) as (folder, _):
        _ask(place, folder, f"set_default_device_pinned_mem_limit 0 {LIMIT_MIB}M")
        told = _ask(place, folder, "get_default_device_pinned_mem_limit 0").strip()
        default = _trains(place, folder, TOO_MUCH_MIB)
    own = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={LIMIT_MIB}M"}
    with work.mps(place) as (folder, _):
        above = _trains(place, folder, TOO_MUCH_MIB, **own)
        below = _trains(place, folder, FITS_MIB, **own)
        free = _trains(place, folder, TOO_MUCH_MIB)
    return [
        judged(
            "the daemon's default limit reads back",
            f"{LIMIT_MIB // 1024}G" in told or str(LIMIT_MIB) in told,
            f"set {LIMIT_MIB} MiB, read {told!r}; a client's own cannot be read back by anybody",
        ),
        judged("the default limit holds", _oom(default), _ended(default)),
        judged("above a client's own limit", _oom(above), _ended(above)),
        judged("below it", below.code == 0, _ended(below)),
        judged("without one", free.code == 0, _ended(free)),
    ]


def server_limit(place: Place) -> list[Found]:
    """Our own limit of the server, for a client that unsets its own; and what the daemon lacks."""
    from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob

    run_dir = place.scratch / "limit"
    run_dir.mkdir(mode=0o755)
    gpu = Gpu(run_dir, place.gpu.uuid, place.control, place.environment())
    jobs = [MpsJob(job, 0, place.uid, place.uid) for job in (1, 2)]
    for job in jobs:
        (run_dir / f"{job.job_id}.json").write_text("{}")
    try:
        _, pipe = gpu.join(jobs[0], Rules(), LIMIT_MIB)
        if pipe is None:
            return [untested("the server's limit", "MPS cannot be set up")]
        first = gpu.bound_mib(jobs[0])
        over = _trains(place, pipe.parent, TOO_MUCH_MIB)
        gpu.join(jobs[1], Rules(), 2 * LIMIT_MIB)  # there is a server now
        second = gpu.bound_mib(jobs[1])
        fits = _trains(place, pipe.parent, TOO_MUCH_MIB)
        lacks = "; ".join(gpu.lacks)
    finally:
        for job in jobs:
            gpu.leave(job)
    return [
        judged("the server's limit reads back", first == LIMIT_MIB, f"{first} MiB"),
        judged("it holds a client that has none of its own", _oom(over), _ended(over)),
        judged("that of a running server, too", second == 2 * LIMIT_MIB, f"{second} MiB"),
        judged("a larger share beside it", fits.code == 0, _ended(fits)),
        judged("a daemon that its user cannot trace", "trace" not in lacks, lacks or "complete"),
    ]


def _ask(place: Place, folder: Path, text: str) -> str:
    done = subprocess.run(
        [place.control],
        input=f"{text}\n",
        capture_output=True,
        text=True,
        timeout=10,
        env=work.client(place, folder),
        user=place.uid,
        group=place.uid,
        extra_groups=[],
        check=False,
    )
    return done.stdout


def _trains(place: Place, folder: Path | None, memory_mib: int, **env: str) -> work.Ended:
    words = work.command(place, _amount(place), memory_mib)
    return work.finish(work.start(place, words, work.client(place, folder, **env)))


def _oom(ended: work.Ended) -> bool:
    return ended.code != 0 and "out of memory" in ended.said.lower()


def _ended(ended: work.Ended) -> str:
    last = ended.said.strip().splitlines()
    return f"exit {ended.code}: {last[-1][:110] if last and ended.code else 'it trained'}"


def two_users(place: Place) -> list[Found]:
    """Our rule gives MPS to the first user alone; what would happen else is only measured."""
    other = place.uid - 1
    rules = Rules(users="one")
    run_dir = place.scratch / "run"
    run_dir.mkdir(mode=0o755)
    from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob

    gpu = Gpu(run_dir, place.gpu.uuid, place.control, place.environment())
    jobs = [MpsJob(1, 0, place.uid, place.uid), MpsJob(2, 0, other, other)]
    for job in jobs:
        (run_dir / f"{job.job_id}.json").write_text("{}")
    first, second = (gpu.join(job, rules)[0] for job in jobs)
    for job in jobs:
        gpu.leave(job)
    ruled = judged(
        "the second user takes turns",
        (str(first.method), str(second.method)) == ("mps", "streams"),
        f"{first.method}, {second.method} ({second.reason})",
    )
    with work.mps(place, "a") as (one, _), work.mps(place, "b", uid=other) as (two, _):
        words = work.command(place, _amount(place))
        running = [
            work.start(place, words, work.client(place, one)),
            work.start(place, words, work.client(place, two), uid=other),
        ]
        ended = [work.finish(each, 60) for each in running]
    both = " and ".join("trained" if each.code == 0 else _ended(each) for each in ended)
    return [ruled, measured("two users' daemons on one GPU", f"at the same time: {both}")]


def kernel(place: Place) -> list[Found]:
    """The limit of a cgroup, set and read back as `coloc fence` does; met by two processes."""
    name = "the kernel's limit of a cgroup"
    if not fence.has_limits(place.driver):
        return [untested(name, f"the driver is {place.driver}: from r{fence.FIRST_DRIVER} on")]
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(_cgroup())
            with nvml.Nvml() as lib:
                lib.limit_group(place.gpu.uuid, str(folder), LIMIT_MIB)
                read = lib.group_limit_mib(place.gpu.uuid, str(folder))
        except (GpuError, OSError) as err:
            return [untested(name, str(getattr(err, "message", "") or err))]
        words = ["/bin/sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]
        env = work.client(place, None)
        endless = 1_000_000 if place.real else 600  # it is killed
        fits = work.start(place, [*words, *work.command(place, endless, FITS_MIB)], env, uid=0)
        time.sleep(20.0 if place.real else 3.0)  # torch alone takes seconds to be imported
        late = work.finish(
            work.start(place, [*words, *work.command(place, _amount(place), 3000)], env, uid=0)
        )
        fits.kill()
        fits.communicate()
    return [
        judged(name, read is not None and read >= LIMIT_MIB, f"set {LIMIT_MIB}, read {read} MiB"),
        judged(
            "all processes of the cgroup together",
            _oom(late),
            f"{FITS_MIB} MiB held, 3000 more: {_ended(late)}",
        ),
    ]


@contextlib.contextmanager
def _cgroup() -> Iterator[Path]:
    """A cgroup (v2) of our own. Raises OSError where none can be made."""
    root = cgroup.ROOT if cgroup.unified() else cgroup.ROOT / "unified"
    folder = root / f"coloc-gpu-{os.getpid()}"
    folder.mkdir()
    try:
        with contextlib.suppress(GpuError, OSError):
            cgroup.pass_dmem_on(folder)
        yield folder
    finally:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:  # what was killed is still leaving it
                time.sleep(0.1)
