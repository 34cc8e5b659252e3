# SPDX-License-Identifier: Apache-2.0
"""``coloc simulate``: what a policy would do to a trace of jobs, or to last month's."""

import typer

from slurm_coloc.cli.simulate import options as opt
from slurm_coloc.cli.simulate.answer import answer
from slurm_coloc.cli.simulate.request import (
    Request,
    Source,
    assumption,
    chosen,
    policies,
    world,
)
from slurm_coloc.config import load_config
from slurm_coloc.core.place.interference import METHODS
from slurm_coloc.core.place.interference import model as interference
from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.sim.power import power
from slurm_coloc.sim.presets import BEST
from slurm_coloc.sim.setting import Priority, Recovery, Setting
from slurm_coloc.sim.telemetry import Monitor

#: How Slurm itself places shares (select/cons_tres without LL_SHARED_GRES): what an admin gets now.
PLACED_TODAY = "first-fit"
QUEUES = ("fifo", "backfill", "priority")


def command(
    trace: opt.Trace = None,
    sacct: opt.Sacct = None,
    philly: opt.Philly = None,
    helios: opt.Helios = None,
    partition: opt.Partition = None,
    gpus: opt.Gpus = "",
    policy: opt.Policy = None,
    compare: opt.Compare = "",
    search: opt.Search = 200_000,
    estimator: opt.Estimator = "",
    method: opt.Method = "mps",
    model: opt.Model = "reference",
    runs: opt.Runs = 1,
    seed: opt.Seed = 0,
    budget: opt.Budget = None,
    jobs_per_gpu: opt.JobsPerGpu = None,
    share_with: opt.ShareWith = "",
    max_slowdown: opt.MaxSlowdown = None,
    pool: opt.Pool = None,
    plan: opt.Plan = True,
    margin_mib: opt.MarginMib = None,
    free_mib: opt.FreeMib = None,
    smact_at_most: opt.SmactAtMost = None,
    smocc_at_least: opt.SmoccAtLeast = None,
    drama_at_least: opt.DramaAtLeast = None,
    idle_first: opt.IdleFirst = False,
    queue: opt.Queue = "backfill",
    depth: opt.Depth = 50,
    run_error: opt.RunError = None,
    logs: opt.Logs = None,
    window_s: opt.WindowS = 90.0,
    refresh_s: opt.Refreshed = 90.0,
    statistic: opt.Statistic = "mean",
    fence: opt.Fence = False,
    ramp_s: opt.RampS = 45.0,
    settle: opt.Settle = False,
    recover_mib: opt.RecoverMib = None,
    recover_shared: opt.RecoverShared = False,
    recover_first: opt.RecoverFirst = True,
    forgive: opt.Forgive = 0,
    learn_peaks: opt.LearnPeaks = False,
    node_cpus: opt.NodeCpus = 0,
    node_memory_mib: opt.NodeMemoryMib = 0,
    multi_user_mps: opt.MultiUserMps = True,
    stretch: opt.Stretch = True,
    max_limit_s: opt.MaxLimitS = None,
    power_curve: opt.PowerCurve = "thesis",
    assume_smact: opt.AssumeSmact = "mid",
    assume_memory: opt.AssumeMemory = "mid",
    joining: opt.Joining = 1.0,
    history: opt.History = None,
    plot: opt.Plot = None,
    markdown: opt.Markdown = None,
    as_json: opt.AsJson = False,
) -> None:
    """Play jobs under a policy and tell what it gains.

    With --trace the jobs are those of a CSV file. With --sacct they are those of your own
    accounting, and the answer is one page for an admin: what sharing GPUs would have done to them,
    and what was assumed. Nothing is asked of Slurm and nothing is changed.
    """
    source = Source(trace, sacct, philly, helios, frozenset(partition or ()), history)
    own = source.named() != "trace"
    shared = load_config().pool
    who = share_with or ("user" if own else "anyone")
    conditions = Conditions(
        by_plan=plan,
        margin_mib=margin_mib,
        free_mib=free_mib,
        smact_at_most=smact_at_most,
        smocc_at_least=smocc_at_least,
        drama_at_least=drama_at_least,
        budget=shared.compute_budget if budget is None and own else budget,
        jobs=jobs_per_gpu or shared.max_jobs_per_gpu,
        share_with=chosen("--share-with", who, "user", "account", "anyone"),
        max_slowdown=max_slowdown,
        idle_first=idle_first,
    )
    setting = Setting(
        conditions=conditions,
        interference=interference(model),
        method=chosen("--method", method, *METHODS),
        depth=1 if chosen("--queue", queue, *QUEUES) == "fifo" else depth,
        priority=Priority() if queue == "priority" else None,
        monitor=Monitor(
            window_s, refresh_s, statistic=chosen("--statistic", statistic, "mean", "risk")
        ),
        recovery=Recovery(
            more_mib=tuple(recover_mib or ()),
            joinable=recover_shared,
            first=recover_first,
            forgiven=forgive,
        ),
        power=power(power_curve),
        ramp_s=ramp_s,
        fence=fence,
        multi_user_mps=multi_user_mps,
        node_cpus=node_cpus,
        node_host_mib=node_memory_mib,
        stretch=stretch,
        max_limit_s=max_limit_s,
        run_error=run_error,
        logs=logs,
        learn_peaks=learn_peaks,
        pool=pool,
        settle=settle,
    )
    assumed = assumption(assume_smact, assume_memory, joining)
    request = Request(
        world=world(source, gpus, assumed, seed, shared.margin_mib),
        setting=setting,
        policies=policies(policy or (), compare, search, PLACED_TODAY if own else BEST),
        compares=bool(compare) or len(policy or ()) > 1,
        estimator=estimator or ("error:0.1" if own else "oracle"),
        runs=runs,
        seed=seed,
    )
    answer(request, as_json=as_json, plot=plot, markdown=markdown)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("simulate")(command)
