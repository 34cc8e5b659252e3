# SPDX-License-Identifier: Apache-2.0
"""What a look at a large Slurm costs: time and memory of colocd's, processor time of slurmctld, and
slurmctld's own cycles with and without the looks.

A private slurmctld with NODES nodes of 8 GPUs that nobody starts (State=CLOUD; their jobs stay in
CONFIGURING), four jobs on each, and JOBS jobs that wait for room. Native placement looks at the
nodes and partitions (`shape`), steered placement also at what is taken and at the queue (`round`).
As root, on Debian's Slurm; each row's submissions take minutes:

    .venv/bin/python -m tests.bench.large_slurm_bench 100x1000 1000x10000
"""

import asyncio
import os
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from slurm_coloc.adapters.slurm.commands import SlurmCommands
from slurm_coloc.core.slurm.gres import device_types
from slurm_coloc.flow.place.memory import REST
from slurm_coloc.lab import conf
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.bench.agent_bench import cpu_s

ROWS = ("100x1000", "300x3000", "1000x10000")
GPUS, SHARDS = 8, 312
LOOKS, EVERY_S = 8, 5.0
#: seconds for which slurmctld's cycles are watched, with looks and without
WATCHED_S = 120.0
#: seconds in which the first jobs have started
START_S = 300.0
KINDS = device_types("a100", GPUS)
SUBMITS = """
for n in $(seq {count}); do
  sbatch -Q --chdir=/ -o /dev/null {words} --wrap=true &
  [ $((n % 8)) -ne 0 ] || wait
done
wait
"""
Look = Callable[[SlurmCommands], Awaitable[object]]


def spec(nodes: int) -> LabSpec:
    """A lab whose slurm.conf has so many more nodes, in a partition of their own."""
    gres = ",".join(f"gpu:{kind}:1" for kind in KINDS)
    extra = [
        "ResumeProgram=/bin/true\nSuspendProgram=/bin/true\nResumeTimeout=64000\nSuspendTime=-1",
        "SchedulerParameters=bf_interval=30,bf_max_job_test=10000,bf_continue",
        "MaxJobCount=60000\nTreeWidth=1000\nPrivateData=cloud",
        f"NodeName=big[1-{nodes}] CPUs=64 RealMemory=512000 State=CLOUD Feature=a100"
        f" Gres={gres},shard:{SHARDS}",
        f"PartitionName=big Nodes=big[1-{nodes}] MaxTime=2-00:00:00 DefaultTime=01:00:00"
        " DefMemPerCPU=100 State=UP",
    ]
    return LabSpec(
        name="large", users=1, coloc=False, emulator=False, slurm_conf_extra="\n".join(extra)
    )


def gres_conf(nodes: int) -> str:
    """Of those nodes."""
    lines = [
        f"NodeName=big[1-{nodes}] Name=gpu Type={kind} File=/dev/nvidia{minor}"
        for minor, kind in enumerate(KINDS)
    ]
    return "\n".join([*lines, f"NodeName=big[1-{nodes}] Name=shard Count={SHARDS}"]) + "\n"


def submit(lab: Lab, count: int, words: str) -> None:
    """So many jobs of the lab's user in the large partition."""
    script = SUBMITS.format(count=count, words=f"-p big -t 600 {words}")
    lab.run(["bash", "-c", script], user=lab.users[0], timeout=3600)


def cycles(lab: Lab) -> list[float]:
    """Means of slurmctld's main and backfill cycles since the last reset (ms); NaN: none ran."""
    parts = lab.run(["sdiag"]).stdout.split("Backfilling stats")
    found = (re.search(r"Mean cycle:\s+(\d+)", part) for part in parts)
    return [float(one[1]) / 1000 if one else float("nan") for one in found]


async def watched(lab: Lab, look: Look | None, client: SlurmCommands) -> tuple[float, float, float]:
    """slurmctld's cycles over WATCHED_S, with looks as often as colocd has them or without."""
    pid = lab.daemons["slurmctld"].pid
    lab.run(["sdiag", "--reset"])
    began, spent = time.monotonic(), cpu_s(pid)
    while time.monotonic() - began < WATCHED_S:
        looked = time.monotonic()
        if look is not None:
            await look(client)
        await asyncio.sleep(max(EVERY_S, REST * (time.monotonic() - looked)))
    main, backfill = cycles(lab)
    return main, backfill, (cpu_s(pid) - spent) / (time.monotonic() - began)


async def shape(client: SlurmCommands) -> object:
    """What native placement asks."""
    return await client.shape()


async def a_round(client: SlurmCommands) -> object:
    """What steered placement asks."""
    return await asyncio.gather(client.usage(), client.queue())


async def costs(look: Look, client: SlurmCommands, pid: int) -> str:
    """Of a look: wall-clock in the median; in the mean our processor time, with the commands', and
    slurmctld's (seconds)."""
    await look(client)
    walls, own, theirs = [], _own_s(), cpu_s(pid)
    for _ in range(LOOKS):
        began = time.perf_counter()
        await look(client)
        walls.append(time.perf_counter() - began)
    own, theirs = (_own_s() - own) / LOOKS, (cpu_s(pid) - theirs) / LOOKS
    return f"{statistics.median(walls):8.2f} {own:8.2f} {theirs:10.3f}"


def _own_s() -> float:
    return sum(
        use.ru_utime + use.ru_stime for use in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN))
    )


async def row(lab: Lab, nodes: int, jobs: int) -> None:
    """One size, which stands already."""
    client, pid = SlurmCommands(120.0), lab.daemons["slurmctld"].pid
    began = time.monotonic()
    while True:  # slurmctld's main cycle starts them
        uses, queue = await asyncio.gather(client.usage(), client.queue())
        if sum(not job.waits for job in queue) >= 4 * nodes or time.monotonic() - began > START_S:
            break
        await asyncio.sleep(5.0)
    waits = sum(job.waits for job in queue)
    for name, look in (("shape", shape), ("round", a_round)):
        told = await costs(look, client, pid)
        print(
            f"{len(uses) - 1:6,} {waits:7,} {len(queue) - waits:8,}  {name:<6} {told}", flush=True
        )
    print(f"  memory of this process at most {getrusage(RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    for name, one in (("none", None), ("rounds", a_round), ("none again", None)):
        main, backfill, busy = await watched(lab, one, client)
        print(
            f"  slurmctld, looks: {name:<10} main cycle {main:7.2f} ms,"
            f" backfill {backfill:8.1f} ms, busy {busy:5.1%}",
            flush=True,
        )


def main(rows: list[str]) -> int:
    """Print the table."""
    print(f"load {os.getloadavg()[0]:.1f}, {LOOKS} looks a row; seconds")
    print(" nodes  waiting  running  look       wall  our CPU  slurmctld")
    plain = conf.gres_conf
    for text in rows or ROWS:
        nodes, jobs = map(int, text.split("x"))
        conf.gres_conf = lambda made, nodes=nodes: plain(made) + gres_conf(nodes)  # type: ignore
        lab = Lab.up(spec(nodes))
        try:
            os.environ.update(lab.env)
            for count in (4 * nodes, jobs):  # four jobs fill a node's CPUs
                submit(lab, count - count // 4, "--gres=shard:20 -c 16")
                submit(lab, count // 4, "--gres=gpu:2 -c 16")
            asyncio.run(row(lab, nodes, jobs))
        finally:
            conf.gres_conf = plain
            lab.down()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
