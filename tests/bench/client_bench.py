# SPDX-License-Identifier: Apache-2.0
"""What a look at Slurm costs colocd: processor time by its commands and by pyslurm, on a private
Slurm with many held jobs of one user.

A look is `jobs_of`, as colocd does it once an interval for the owners of the runs that it follows;
`job` is one job. The time is that of this process, of the commands, and of pyslurm's worker; that
of slurmctld, which answers both, is told beside it. As root, where this Slurm's pyslurm is:

    PYTHONPATH=FOLDER .venv/bin/python -m tests.bench.client_bench 1000
"""

import asyncio
import os
import pwd
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from slurm_coloc.adapters.slurm.bindings import SlurmBindings
from slurm_coloc.adapters.slurm.commands import SlurmCommands
from slurm_coloc.errors import SlurmError
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.bench.agent_bench import cpu_s

LOOKS = 15
Look = Callable[[SlurmCommands], Awaitable[object]]


def _own_s(client: SlurmCommands) -> float:
    """Of this process, its ended commands, and the worker that lives."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    worker = client._child._process if isinstance(client, SlurmBindings) else None
    living = cpu_s(worker.pid) if worker else 0.0
    return time.process_time() + ended.ru_utime + ended.ru_stime + living


async def _row(client: SlurmCommands, slurmctld: int, look: Look) -> tuple[float, float, float]:
    """Milliseconds a look in the median: wall-clock; and in the mean: ours, slurmctld's."""
    await look(client)
    spent, own, theirs = [], _own_s(client), cpu_s(slurmctld)
    for _ in range(LOOKS):
        begin = time.perf_counter()
        await look(client)
        spent.append((time.perf_counter() - begin) * 1e3)
    own, theirs = _own_s(client) - own, cpu_s(slurmctld) - theirs
    return statistics.median(spent), own / LOOKS * 1e3, theirs / LOOKS * 1e3


async def _table(lab: Lab, job: int, jobs: int) -> None:
    owner, other = (pwd.getpwnam(user).pw_uid for user in lab.users[:2])
    looks: dict[str, Look] = {
        f"jobs of a user with {jobs}": lambda client: client.jobs_of([owner]),
        f"of one with none beside {jobs}": lambda client: client.jobs_of([other]),
        "one job": lambda client: client.job(job),
    }
    slurmctld = lab.daemons["slurmctld"].pid
    commands, pyslurm = SlurmCommands(60.0), SlurmBindings(60.0, forced=True)
    print(f"{'a look':<32} {'client':<9} {'wall ms':>8} {'CPU ms':>8} {'slurmctld':>10}")
    for name, look in looks.items():
        for kind, client in (("commands", commands), ("pyslurm", pyslurm)):
            try:
                wall, own, theirs = await _row(client, slurmctld, look)
            except SlurmError as err:
                print(f"{name:<32} {kind:<9} {err.message}")
                continue
            print(f"{name:<32} {kind:<9} {wall:8.1f} {own:8.1f} {theirs:10.1f}")
    await pyslurm._child.close()


def main() -> int:
    """Print the table."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    lab = Lab.up(LabSpec(name="clientbench", users=2, coloc=False, emulator=False))
    try:
        print(
            f"Slurm {lab.version.split()[-1]}, load {os.getloadavg()[0]:.1f}, {LOOKS} looks a row"
        )
        os.environ.update(lab.env)
        script = (
            f"for n in $(seq {jobs}); do sbatch --parsable --hold --wrap=true; done | tail -n 1"
        )
        done = lab.run(["bash", "-c", script], user=lab.users[0], timeout=600)
        asyncio.run(_table(lab, int(done.stdout), jobs))
    finally:
        lab.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
