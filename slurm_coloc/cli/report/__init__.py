# SPDX-License-Identifier: Apache-2.0
"""coloc report: what a job used of its GPU and what it requested; like seff, for a share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from slurm_coloc.cli import render
from slurm_coloc.cli.listing import show_listing
from slurm_coloc.cli.options import AsJson, JobIds, Since, jobs_wanted, one_for_json
from slurm_coloc.cli.report.compare import COLUMNS as COMPARED
from slurm_coloc.cli.report.compare import compare_page, models
from slurm_coloc.cli.report.job import job_page
from slurm_coloc.cli.report.picture import picture
from slurm_coloc.cli.report.write import many, write_page
from slurm_coloc.cli.tries import ended, overran, tries
from slurm_coloc.config import load_config
from slurm_coloc.core.decide.decision import BY_SITE, BY_USER
from slurm_coloc.core.recover.outcome import WHOSE, Blame
from slurm_coloc.core.time.slot import words
from slurm_coloc.flow.client.request import call

COLUMNS = (
    *("USER", "RUNS>", "SHARED>", "OK>", "OOM>", "PUT BACK>", "HOURS>"),
    *("PEAK>", "ESTIMATE>", "RESERVED>", "UNUSED>"),
)
#: of DCGM's statistics: figure, factor, format, what stands behind it
DCGM = (
    ("energy_j", 0.001, ".1f", " kJ"),
    ("power_w", 1.0, ".0f", " W in the mean"),
    ("max_mib", 1 / 1024, ".1f", " GiB at most"),
    ("utilization", 1.0, ".0%", " utilization"),
    ("slow_power", 1.0, ".0%", " of the time slowed by power"),
    ("slow_thermal", 1.0, ".0%", " by heat"),
)
DCGM_FAULTS = (
    ("ecc_single", "ECC errors of one bit"),
    ("ecc_double", "ECC errors of two bits"),
    ("pcie_replays", "PCIe replays"),
    ("xids", "Xids"),
)
UNKNOWN_CAUSE = "cause unknown: taken for its own need"
NO_GPU = "not known: its node did not tell the job's GPU (no NVML, or no Prolog)"
#: of a run that has not ended; its node tells at the end what it used
NOT_YET = "not known yet: it is told at the run's end"
FENCES = {
    "mig": "a MIG instance holds it",
    "streams": "none: nothing held it to its share",
    "alone": "none: it had the GPU alone",
}


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def report(
        job_id: JobIds = None,
        days: int = typer.Option(30, "--days", min=1, max=3660, help="Without JOBID: so far back."),
        cluster: bool = typer.Option(
            False, "--cluster", help="A page on all runs: what sharing saved and cost."
        ),
        since: Since = None,
        html: bool = typer.Option(False, "--html", help="A job's report as a page."),
        compare: bool = typer.Option(
            False, "--compare", help="Several jobs side by side; with --html as a page."
        ),
        output: Path | None = typer.Option(
            None, "--output", "-o", metavar="FILE", help="Where a page goes; default: stdout."
        ),
        as_json: AsJson = False,
    ) -> None:
        """What a job used: memory, SM activity and energy, its neighbours, and what sharing cost
        and gained. Without JOBID: your runs of the last days in sum, everybody's for root.

        --cluster and --html write one HTML file that needs nothing else. --compare is for runs of
        one model: what did another batch size, another GPU or a neighbour change?

        Ends with 1 where there is no such --coloc job of yours, or it has not begun.
        """
        if since and not cluster:
            raise typer.BadParameter("--since goes with --cluster; without it there is --days")
        if (compare and cluster) or (as_json and (cluster or html or compare)):
            raise typer.BadParameter("a page and --compare have no --json, --compare no --cluster")
        if output and not (html or cluster):
            raise typer.BadParameter("--output is of a page: --html or --cluster")
        if compare:
            found = _compared(job_id)
            if html:
                write_page(compare_page(found), output)
                return
            show_listing(COMPARED, found, "")
            if note := models(found):
                print(note)
            return
        if cluster or html:
            if cluster == (job_id is not None):
                raise typer.BadParameter("--html is of one JOBID, --cluster of none")
            write_page(many(since, days) if cluster else _page_of(job_id or ""), output)
            return
        wanted: list[dict[str, Any]] = [{"days": days}] if job_id is None else jobs_wanted(job_id)
        for number, each in enumerate(one_for_json(wanted, as_json)):
            answer = call(load_config(), "usage", each)
            del answer["v"], answer["ok"]
            if number:
                print()
            if as_json:
                render.print_json(answer)
            elif job_id is None and not answer["users"]:
                print(f"no --coloc job has ended in the last {days} days")
            elif job_id is None:
                render.show(sums(answer["users"]))
            else:
                render.show(render.facts(_lines(answer)), *picture(answer, render.console().width))


def _compared(job_id: str | None) -> list[dict[str, Any]]:
    """The reports of several jobs. Raises BadParameter for fewer than two."""
    wanted = jobs_wanted(job_id) if job_id else []
    if len(wanted) < 2:
        raise typer.BadParameter("--compare is of several jobs: 7,8 or 9_[1-3]", param_hint="JOBID")
    config = load_config()
    return [call(config, "usage", each) for each in wanted]


def _page_of(job_id: str) -> str:
    """The page of one job."""
    wanted = jobs_wanted(job_id)
    if len(wanted) > 1:
        raise typer.BadParameter("--html is of one JOBID; of several with --compare")
    answer = call(load_config(), "usage", wanted[0])
    return job_page(answer, _lines(answer))


def sums(users: list[render.Row]) -> Table:
    """What the runs of each user came to."""
    return render.table("", COLUMNS, map(_row, users))


def _row(user: render.Row) -> tuple[object, ...]:
    def mean(name: str) -> str:
        return render.gib(user[name] // user["measured"]) if user["measured"] else render.NONE

    unused = user["reserved_mib"] - user["peak_mib"]
    return (
        render.user_name(user["uid"]),
        *(user[name] for name in ("runs", "shared", "completed", "oom", "put_back")),
        f"{user['hours']:.1f}",
        *(mean(name) for name in ("peak_mib", "estimate_mib", "reserved_mib")),
        render.gib(unused // user["measured"]) if user["measured"] else render.NONE,
    )


def _lines(answer: dict[str, Any]) -> Iterator[tuple[str, object]]:
    run, decision, use = answer["run"], answer["decision"], answer["use"]
    state = ended(run) if run["outcome"] else run["state"].lower()
    end_s = run["end_s"]
    lasted = render.lasted((end_s or 0) - run["start_s"]) if end_s else render.ago(run["start_s"])
    yield "Job", f"{render.job(run)} of {render.user_name(run['uid'])}: {state} after {lasted}"
    yield "GPU", render.gpu(run)
    yield "Memory", _memory(answer)
    yield "Fence", NOT_YET if end_s is None and not answer["events"] else _fence(answer)
    yield "SM activity", NOT_YET if end_s is None else _activity(use)
    if use["energy_j"] is not None:
        yield "Energy", f"{use['energy_j'] / 1000:.1f} kJ, its share of the GPU's"
    yield from _dcgm(use["nodes"])
    yield "Neighbours", _neighbours(answer["neighbours"]) if run["gpu_uuids"] else NO_GPU
    yield "Speed", NOT_YET if end_s is None and answer["neighbours"] else _speed(answer)
    if limit := answer.get("time_limit"):
        given, became, lost = (words(limit[name]) for name in ("base_s", "set_s", "lost_s"))
        yield "Time limit", f"{given} given, {became} in the end: {lost} lost by sharing"
    if answer["sooner_s"] >= 60:
        yield "Start", f"{render.span(answer['sooner_s'])} sooner than on this GPU alone"
    if run["blame"]:
        unknown = run["blame"] == Blame.UNKNOWN
        yield "Blame", UNKNOWN_CAUSE if unknown else WHOSE.get(run["blame"], run["blame"])
    if victims := overran(run):
        yield "Overrun", f"{victims} by it"
    if len(answer["tries"]) > 1:
        yield from tries(decision, answer["tries"])
    for event in answer["events"]:
        yield "Event", f"{render.moment(event['at_s'])} {event['kind']}: {event['text']}"
    if decision.get("learning") and decision["learning"]["why"]:
        yield "Earlier runs", decision["learning"]["why"]


def _memory(answer: dict[str, Any]) -> str:
    decision, peak = answer["decision"], answer["run"]["peak_mib"]
    unmeasured = NOT_YET if answer["run"]["end_s"] is None else "peak not measured"
    parts = [f"peak {render.gib(peak)} GiB" if peak is not None else unmeasured]
    if decision["estimator"] == BY_USER:
        parts.append(f"--coloc-memory {render.gib(decision['upper_mib'])} GiB")
    elif decision["estimator"] == BY_SITE:
        parts.append(f"no estimate: the site's share {render.gib(decision['upper_mib'])} GiB")
    elif decision["memory_mib"] is not None:
        bound = render.gib(decision["upper_mib"])
        parts.append(f"estimate {render.gib(decision['memory_mib'])} GiB, at most {bound}")
    reserved = answer["reserved_mib"]
    used = f", {peak / reserved:.0%} of it used" if reserved and peak is not None else ""
    parts.append(f"reserved {render.gib(reserved)} GiB{used}" if reserved else "a whole GPU")
    return "; ".join(parts)


def _fence(answer: dict[str, Any]) -> str:
    """What held the run's memory, as far as that was verified: by reading the limit back, and by
    what its processes held."""
    run, limit_mib = answer["run"], answer["reserved_mib"]
    found = next((one["fence"] for one in answer["use"]["nodes"] if one.get("fence")), None)
    by = {"cgroup": "the kernel", "mps": "MPS"}.get(found["level"] if found else run["method"])
    if by is None or not limit_mib:
        return FENCES.get(run["method"] or "", "not known")
    limit = f"{render.gib(limit_mib)} GiB"
    over = _overruns(answer["events"])
    most_mib = max([run["peak_mib"] or 0, *over])
    bound_mib = found["limit_mib"] if found else None
    if most_mib and not over and bound_mib is not None and bound_mib <= limit_mib:
        return f"{by} holds it to {limit}"
    held = f"it held {render.gib(most_mib)} GiB" if most_mib else "what it held was not measured"
    return (
        f"{by} was asked to hold it to {limit}; {held}{'' if over or not most_mib else ' at most'}"
    )


def _overruns(events: list[dict[str, Any]]) -> list[int]:
    """What the run held (MiB) when it held more than it was promised."""
    return [one.get("held_mib") or 0 for one in events if one["kind"] == "overrun"]


def _activity(use: dict[str, Any]) -> str:
    if use["smact"] is None:
        return f"not measured: {use['why'] or 'no agent saw this run'}"
    note = {"split": " (its part of a shared GPU's, by what each process used)"}
    return f"{use['smact']:.0%} in the mean{note.get(use['smact_how'], '')}"


def _dcgm(records: list[dict[str, Any]]) -> Iterator[tuple[str, object]]:
    """DCGM's own statistics, a line a GPU, where the site has them kept."""
    for gpu in (one for record in records for one in (record.get("dcgm") or {}).get("gpus", ())):
        parts = [
            f"{gpu[name] * factor:{form}}{unit}"
            for name, factor, form, unit in DCGM
            if gpu.get(name) is not None
        ]
        faults = [f"{gpu[name]} {text}" for name, text in DCGM_FAULTS if gpu.get(name)]
        yield f"DCGM, {gpu['uuid'][:12]}", ", ".join(parts + (faults or ["no errors"]))


def _neighbours(found: list[dict[str, Any]]) -> str:
    if not found:
        return "none"
    # A job that was put back and came again is one neighbour.
    owners = {render.job(one): one["uid"] for one in found if one["job_id"]}
    names = [f"{job} ({render.user_name(uid)})" for job, uid in owners.items()]
    if hidden := sum(not one["job_id"] for one in found):
        names.append(f"{hidden} of other users")
    return f"{len(owners) + hidden}: {', '.join(names)}"


def _speed(answer: dict[str, Any]) -> str:
    factor = answer["slower"]
    if answer["slower_how"] == "alone":
        return "it had no neighbour"
    if factor is None and not answer["run"]["gpu_uuids"]:
        return NO_GPU
    if factor is None:
        return "not known: the activity of it or of a neighbour was not measured"
    how = {
        "measured": "by your earlier runs of it alone",
        "predicted": "by the model of interference",
    }[answer["slower_how"]]
    return f"{factor:.2f}x the time that it takes alone, {how}"
