# SPDX-License-Identifier: Apache-2.0
"""What the history costs when it is long: each question of colocd to its database, by runs in it.

.venv/bin/python -m tests.bench.store_bench [RUNS ...]   (100,000 and 1,000,000 runs; 10,000,000
take 8 GiB and ten minutes to write)

A year of 200 users: the first has 1 run in 10, half of them of one model; the last user has 20 runs
in all, which are the oldest. Three runs of 100 ran out of memory, and one of 20 decisions was made
in observe mode. The newest 2,000 runs go on; reports are kept for seven days.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slurm_coloc.adapters.store import Store
from slurm_coloc.adapters.store.schema import MIGRATIONS
from slurm_coloc.core.records.runs import Run

YEAR_S = 365 * 86400.0
NOW_S = time.time()
BUSY, RARE, RARE_RUNS = 1000, 1999, 20
OPEN = 2000
CALLS = 7
PACE = 20_000  # rows of one transaction

ROWS = """WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :last),
  one AS (SELECT i, printf('%012x', i) AS id, :begin + i * :step AS at_s,
    CASE WHEN i < :rare THEN 1999 WHEN i % 10 = 0 THEN 1000 ELSE 1001 + i % 197 END AS uid,
    CASE WHEN i % 20 = 0 THEN 'sweep' ELSE printf('model-%d', i % 7919 % 4000) END AS model,
    i / 7 % 100 < 3 AS oom, i >= :open AS goes_on, i % 20 = 7 AS observe FROM n)
"""
FILL = (
    ROWS + """INSERT INTO decisions (id, cluster, made_s, uid, account, partition, mode, action,
      reason, detail, shards, shard_mib, shards_per_gpu, estimator, memory_mib, upper_mib, smact,
      fingerprint, options, features, request, exclusive_tres, may_requeue, job_id, bound)
    SELECT id, 'c', at_s, uid, 'a', 'gpu', iif(observe, 'observe', 'on'), 'collocate', 'fits', '',
      6, 1024, 39, 'text', 5000, 6000, 0.4, model, '32/0/adam/fp32', '{"schema":1,"layers":50}',
      '{"uid":1000,"name":"train","min_cpus":1,"tres_per_node":"gres/gpu:1","kind":"batch"}',
      'gres/gpu:1', 1, i + 1, 1 FROM one""",
    ROWS + """INSERT INTO runs (decision, job_id, restart, uid, submit_s, state, node, gpu_uuids,
      tres, start_s, end_s, outcome, exit_code, peak_mib, share_mib, verdict, open, used, blame)
    SELECT id, i + 1, 0, uid, at_s, iif(goes_on, 'RUNNING', 'COMPLETED'), printf('g%d', i % 1000),
      json_array(printf('GPU-%d', i % 8000)), 'gres/shard:6', at_s + 60,
      iif(goes_on, NULL, at_s + 7260), iif(goes_on, NULL, iif(oom, 'oom-gpu', 'completed')), 0,
      iif(goes_on, NULL, 5000), 6144, iif(oom, 'requeue', 'not-ours'), goes_on,
      iif(goes_on, NULL, '[{"node":"g1","gpus":[{"peak_mib":5000}],"neighbours":[]}]'),
      iif(oom, 'self', NULL) FROM one WHERE NOT observe""",
    ROWS + """INSERT INTO events (at_s, decision, job_id, kind, text)
    SELECT at_s, id, i + 1, 'decided', 'shares a GPU' FROM one""",
    ROWS + """INSERT INTO work (decision, job_id, restart, uid, tres, state, created_s, updated_s)
    SELECT id, i + 1, 0, uid, 'gres/gpu:1', 'done', at_s + 7260, at_s + 7260 FROM one WHERE oom""",
    ROWS + """INSERT INTO reports (cluster, job_id, restart, node, at_s, body, decision)
    SELECT 'c', i + 1, 0, 'g1', at_s, json_object('used', json_object('node', 'g1'),
      'text', printf('%.1500c', 'x')), id FROM one WHERE at_s > :week""",
)  # fmt: skip


def fill(store: Store, runs: int) -> None:
    """A history of so many runs."""
    for first in range(0, runs, PACE):
        values = {
            "first": first,
            "last": min(runs, first + PACE),
            "begin": NOW_S - YEAR_S,
            "step": YEAR_S / runs,
            "rare": RARE_RUNS,
            "open": runs - OPEN,
            "week": NOW_S - 7 * 86400.0,
        }
        with store.transaction():
            for statement in FILL:
                store._db.execute(statement, values)
    [fill_ran_out] = [one for one in MIGRATIONS[12] if one.startswith("INSERT INTO ran_out")]
    store._db.execute(fill_ran_out)


def of_the_busiest(runs: int) -> str:
    """A decision, some of whose runs have ended, of the model that was trained most."""
    return f"{runs - OPEN - 20 - (runs - OPEN) % 20:012x}"


def questions(store: Store, runs: int) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Who waits for the answer, the question, and how it is put."""
    busy = of_the_busiest(runs)
    decision = store.decisions.of(busy)
    [run] = store.runs.of_job(decision.job_id) if decision and decision.job_id else []
    ended_s = run.end_s or NOW_S
    ask = store.queries
    new = Run("f" * 12, 2**31, 0, uid=BUSY, state="PENDING")

    yield (
        "slurmctld",
        "largest share that ran out",
        lambda: store.runs.oom_share_mib("sweep", "32/0/adam/fp32", BUSY),
    )
    yield "slurmctld", "measured peaks of a model", lambda: store.peaks.of_model(BUSY, "sweep", "x")
    yield "colocd", "a new run", lambda: store.runs.of(*new.key)
    yield "colocd", "runs that go on", store.runs.open
    yield "colocd", "users who are followed", store.runs.followed_users
    yield (
        "colocd",
        "who ran beside a run",
        lambda: store.runs.beside(run, run.start_s or 0.0, ended_s),
    )
    week_s = ended_s - 7 * 86400.0
    yield "colocd", "who ran beside a week's run", lambda: store.runs.beside(run, week_s, ended_s)
    yield (
        "colocd",
        "recoveries against the caps",
        lambda: store.recoveries.tally(run.job_id, run.decision, run.uid, NOW_S),
    )
    yield "colocd", "run times of a model", lambda: ask.lasted_s(busy)
    yield "colocd", "runs on shares", lambda: store.stretches.present(NOW_S)
    yield "colocd", "slots not known yet", store.slots.unknown
    yield "colocd", "old reports", lambda: store.reports.forget(NOW_S - 7 * 86400.0)
    yield (
        "colocd",
        "faults beside a run",
        lambda: store.reports.faulted_beside(run, ["GPU-1"], NOW_S - 60, NOW_S),
    )
    yield "colocd", "decisions without a job", lambda: store.decisions.abandon(NOW_S - 600)
    yield "colocd", "history to forget", lambda: store.forget_history(NOW_S - 400 * 86400.0)
    yield (
        "metrics",
        "tallies, open runs",
        lambda: (
            ask.tallies(),
            ask.open_runs(),
            ask.open_work(),
        ),
    )
    for who, uid in (("busiest", BUSY), ("rarest", RARE)):
        yield (
            "people",
            f"jobs of the {who} user",
            lambda uid=uid: ask.recent_runs(uid, 100, only_open=True),
        )
        yield "people", f"history of the {who} user", lambda uid=uid: ask.recent_runs(uid, 100)
        yield (
            "people",
            f"of 30 days, the {who}",
            lambda uid=uid: ask.recent_runs(uid, 100, since_s=NOW_S - 30 * 86400.0),
        )
        yield "people", f"observed of the {who} user", lambda uid=uid: ask.observed(uid, 100)
        yield (
            "people",
            f"sums of 30 days, the {who}",
            lambda uid=uid: ask.used_by_user(uid, NOW_S - 30 * 86400.0),
        )
    yield "people", "coloc status", ask.counts
    yield (
        "people",
        "all runs of 30 days (page)",
        lambda: ask.past_runs(None, NOW_S - 30 * 86400.0, 20_000),
    )
    yield (
        "people",
        "sums of 30 days, everybody",
        lambda: ask.used_by_user(None, NOW_S - 30 * 86400.0),
    )
    yield "people", "explain: a job", lambda: store.runs.of_job(run.job_id)
    yield "people", "explain: a job of observe mode", lambda: store.decisions.observed(8)
    yield "people", "explain: no such job", lambda: store.decisions.observed(2**31)
    yield (
        "people",
        "report: run times alone",
        lambda: store.runs.alone_s(run, "sweep", "32/0/adam/fp32"),
    )


def main(sizes: list[int]) -> None:
    """A table for each size, in milliseconds."""
    rows: dict[tuple[str, str], list[float]] = {}
    for runs in sizes:
        with tempfile.TemporaryDirectory(dir=os.environ.get("COLOC_BENCH_DIR")) as folder:
            begin = time.perf_counter()
            store = Store.open(Path(folder))
            fill(store, runs)
            took_s = time.perf_counter() - begin
            mib = (Path(folder) / "coloc.db").stat().st_size / 2**20
            print(f"  {runs:,} runs: {mib:,.0f} MiB, written in {took_s:.0f} s", flush=True)
            for who, name, ask in questions(store, runs):
                times = []
                for _ in range(CALLS):
                    begin = time.perf_counter()
                    ask()
                    times.append((time.perf_counter() - begin) * 1000)
                    if sum(times) > 10_000:
                        break
                rows.setdefault((who, name), []).append(statistics.median(times))
            store.close()
    head = "".join(f"{size:>14,}" for size in sizes)
    print(f"  {'who waits':<10} {'question':<32} {head} runs (ms, median of {CALLS})")
    for (who, name), found in rows.items():
        print(f"  {who:<10} {name:<32} " + "".join(f"{one:>14.2f}" for one in found))


if __name__ == "__main__":
    main([int(one.replace(",", "")) for one in sys.argv[1:]] or [100_000, 1_000_000])
