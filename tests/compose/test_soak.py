# SPDX-License-Identifier: Apache-2.0
"""Hundreds of random submissions: no GPU is ever whole for one job and shared by others.

Two witnesses that know nothing of each other: `scontrol show node -d`, asked all the time, and the
jobs themselves, each of which writes down when it held which GPU and how much of it.
"""

import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.cluster.jobs import mlp_summary
from tests.compose.cluster import Cluster, ClusterError, Device

SUBMISSIONS = int(os.environ.get("COLOC_SOAK_SUBMISSIONS", "500"))
SHARDS = {"g1": 39, "g2": 79}
SIZES = {"small": 60, "middle": 500, "large": 1100}  # million parameters under Adam

# The times are the script's own: after Slurm gave the GPU and before it takes it back, so that two
# stays that overlap here did overlap.
DIARY = """#!/bin/bash
book=$HOME/soak/$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
gpus=${SLURM_JOB_GPUS:-$CUDA_VISIBLE_DEVICES}
echo "begin $EPOCHREALTIME $SLURMD_NODENAME ${gpus:-none} ${SLURM_SHARDS_ON_NODE:-0}" >"$book"
leave() { echo "end $EPOCHREALTIME" >>"$book"; exit 0; }
trap leave TERM
sleep "$1" & wait $!
leave
"""
# One line a submission: seconds to run, seconds until scancel or "-", options of sbatch.
SUBMIT = """
while IFS='|' read -r run cancel args; do
  # shellcheck disable=SC2086
  id=$(sbatch --parsable -o /dev/null --mem=10 $args soak/job.sh "$run" </dev/null 2>soak/said) || {
    cat soak/said >&2; exit 1; }
  echo "$id"
  [ "$cancel" = - ] || (sleep "$cancel"; scancel -Q "$id") >/dev/null 2>&1 &
done
wait
"""


@dataclass(frozen=True)
class Wish:
    """One submission."""

    args: str
    tasks: int
    run_s: float
    cancel_s: float | None

    def line(self) -> str:
        cancel = "-" if self.cancel_s is None else f"{self.cancel_s:.2f}"
        return f"{self.run_s:.2f}|{cancel}|{self.args}"


@dataclass(frozen=True)
class Stay:
    """One job on one GPU, times in seconds since 1970; 0 shards: all of it."""

    job: str
    place: tuple[str, str]
    begin: float
    end: float
    shards: int

    def meets(self, other: "Stay") -> bool:
        return self is not other and self.begin < other.end and other.begin < self.end


def wish(dice: random.Random) -> Wish:
    """A submission at random: shares of three sizes, whole GPUs with and without us, arrays."""
    size = dice.choice(list(SIZES))
    share = f"--coloc=soak/{size}.txt --gpus=1"
    kinds = {
        share: (50, 1),
        f"{share} --array=1-3": (6, 3),
        f"--coloc=soak/{size}.txt --coloc-policy=exclusive --gpus=1": (10, 1),
        "--gres=gpu:1": (18, 1),
        "--gpus=2 --nodes=1": (4, 1),
        "--gres=gpu:1 --array=1-2": (4, 2),
        "-n1": (8, 1),
    }
    [args] = dice.choices(list(kinds), [weight for weight, _ in kinds.values()])
    cancel = dice.uniform(0.1, 12) if dice.random() < 0.12 else None
    return Wish(args, kinds[args][1], dice.uniform(0.1, 1.5), cancel)


def prepare(cluster: Cluster, user: str) -> None:
    home = f"/home/{user}"
    cluster.run(["sh", "-c", "rm -rf soak && mkdir soak"], user=user)
    cluster.put(f"{home}/soak/job.sh", DIARY, user=user)
    for name, millions in SIZES.items():
        cluster.put(f"{home}/soak/{name}.txt", mlp_summary(millions), user=user)


def submit(cluster: Cluster, user: str, wishes: Iterable[Wish]) -> list[int]:
    lines = "".join(one.line() + "\n" for one in wishes)
    done = cluster.run(["bash", "-c", SUBMIT], user=user, input=lines, timeout=550)
    return [int(word.split(";")[0]) for word in done.stdout.split()]


def check(node: str, devices: list[Device]) -> Counter[str]:
    """What scontrol shows of a node must be possible; how many GPUs it shows in which use."""
    seen: Counter[str] = Counter()
    for index, one in enumerate(devices):
        assert not (one.whole and one.shards_used), f"{node}: GPU {index} is whole and shared"
        assert one.shards_used <= one.shards == SHARDS[node], f"{node}: GPU {index}: {one}"
        seen["whole" if one.whole else "shared" if one.shards_used else "free"] += 1
    return seen


def watch(cluster: Cluster, submitters: list[Future[list[int]]]) -> Counter[str]:
    """Ask scontrol until all have submitted and nothing is left in the queue."""
    seen: Counter[str] = Counter()

    def over() -> bool:
        for node in cluster.nodes:
            seen.update(check(node, cluster.use(node)))
        seen["polls"] += 1
        if not all(one.done() for one in submitters):
            return False
        return not cluster.run(["squeue", "--all", "-h"], on="controller").stdout.strip()

    try:
        cluster.until(over, 600, "the queue runs empty")
    except ClusterError as err:
        left = "%i %t %r %b %N %V"
        shown = [["squeue", "--all", "-o", left], ["sinfo", "-N", "-o", "%N %t %E"]]
        told = [cluster.run(one, on="controller").stdout for one in shown]
        told += [cluster.run(["scontrol", "show", "node", "-d"], on="controller").stdout]
        raise ClusterError("\n".join([str(err), *told])) from err
    return seen


def stays(cluster: Cluster, user: str) -> list[Stay]:
    """What the user's jobs wrote down. One that was killed at once counts for no time at all."""
    text = cluster.run(["sh", "-c", "cd soak && grep -H . *.[0-9]*"], user=user).stdout
    books: dict[str, list[list[str]]] = defaultdict(list)
    for line in text.splitlines():
        name, _, said = line.partition(":")
        books[name].append(said.split())
    found = []
    for name, lines in books.items():
        word, begin, node, gpus, shards = lines[0]
        assert word == "begin", lines
        end = float(lines[1][1]) if len(lines) > 1 else float(begin)
        for gpu in gpus.split(",") if gpus != "none" else []:
            found.append(Stay(name, (node, gpu), float(begin), end, int(shards)))
    return found


def judge(all_stays: list[Stay]) -> Counter[str]:
    """No whole GPU met anybody, no GPU was promised twice; how often GPUs were shared."""
    by_place: dict[tuple[str, str], list[Stay]] = defaultdict(list)
    for one in all_stays:
        by_place[one.place].append(one)
    seen: Counter[str] = Counter()
    for place, here in by_place.items():
        for one in here:
            met = [other for other in here if one.meets(other)]
            seen["whole" if one.shards == 0 else "shared" if met else "alone"] += 1
            assert one.shards or not met, f"{one} was to have {place} alone and met {met}"
            beside = sum(other.shards for other in met if other.begin <= one.begin)
            assert one.shards + beside <= SHARDS[place[0]], f"{place} is overbooked: {one}, {met}"
    seen["GPUs"] = len(by_place)
    return seen


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.needs_slurm("24.11", "puts whole-GPU and shard jobs on one device, shows no use")
def test_a_share_and_a_whole_gpu_never_meet(cluster: Cluster) -> None:
    seed = int(os.environ.get("COLOC_SOAK_SEED") or random.SystemRandom().randrange(10**6))
    print(f"soak: COLOC_SOAK_SEED={seed}, {SUBMISSIONS} submissions, Slurm {cluster.version}")
    dice = random.Random(seed)
    wishes = [wish(dice) for _ in range(SUBMISSIONS)]
    half = len(wishes) // 2
    for user in cluster.users:
        prepare(cluster, user)
    with ThreadPoolExecutor(2) as pool:
        parts = zip(cluster.users, (wishes[:half], wishes[half:]), strict=True)
        submitters = [pool.submit(submit, cluster, user, part) for user, part in parts]
        shown = watch(cluster, submitters)
        ids = [job for one in submitters for job in one.result()]

    assert len(ids) == len(set(ids)) == SUBMISSIONS
    jobs = {job.id: job for job in cluster.jobs().values() if job.id >= min(ids)}
    ended = Counter(job.state for job in jobs.values())
    wrote = [one for user in cluster.users for one in stays(cluster, user)]
    told = judge(wrote)
    print(f"soak: jobs {dict(ended)}; scontrol {dict(shown)}; the jobs say {dict(told)}")
    assert set(ended) == {"COMPLETED", "CANCELLED"}, ended
    # Each task of an array has an id of its own, save those cancelled before they were told apart.
    tasks = sum(one.tasks for one in wishes)
    assert tasks - ended["CANCELLED"] * 2 <= len(jobs) <= tasks
    ran = {int(re.split(r"\D", one.job)[0]) for one in wrote}
    with_gpu = {job.id for job in jobs.values() if "gpu" in job.tres_per_node + "".join(job.gres)}
    assert {job for job in with_gpu if jobs[job].state == "COMPLETED"} <= ran
    # The test means something only where both kinds were seen, by both witnesses.
    assert shown["polls"] > 10 and shown["whole"] and shown["shared"]
    assert told["GPUs"] == 6 and told["whole"] > 20 and told["shared"] > 20


def test_the_check_sees_what_it_looks_for() -> None:
    place = ("g1", "0")
    share, rest = Stay("1", place, 0, 2, 20), Stay("2", place, 1, 3, 19)
    judge([share, rest, Stay("3", place, 3.5, 4, 0), Stay("4", ("g1", "1"), 0, 4, 0)])
    with pytest.raises(AssertionError, match="was to have"):
        judge([share, Stay("3", place, 1.5, 4, 0)])
    with pytest.raises(AssertionError, match="overbooked"):
        judge([share, Stay("2", place, 1, 3, 20)])
    with pytest.raises(AssertionError, match="whole and shared"):
        check("g1", [Device(8, 39, True)])
    with pytest.raises(ClusterError):
        Cluster("no-such-project").container("login")
