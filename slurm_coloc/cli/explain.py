# SPDX-License-Identifier: Apache-2.0
"""coloc explain: one job's size, place, wait, story and future."""

import time
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import typer
from rich.text import Text

from slurm_coloc.cli import render
from slurm_coloc.cli.options import AsJson, JobIds, jobs_wanted, one_for_json
from slurm_coloc.cli.tries import tries
from slurm_coloc.config import load_config
from slurm_coloc.core.decide.decision import BY_SITE, BY_USER
from slurm_coloc.core.gpu.telemetry.window import SPAN_S
from slurm_coloc.core.time.slot import words
from slurm_coloc.flow.client.request import call

OPTIONS = ("batch_size", "seq_len", "input", "optimizer", "precision")


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command()
    def explain(
        job_id: JobIds = None,
        code: str | None = typer.Option(
            None, "--code", metavar="WORD", help="What a word of an answer or a log means."
        ),
        as_json: AsJson = False,
    ) -> None:
        """Why a job has its size, which GPU it got, why it waits, why it was put back.

        Ends with 1 where there is no --coloc job of that number that you may see.
        """
        if code is not None:
            if job_id is not None or as_json:
                raise typer.BadParameter("--code has no --json and no JOBID")
            _explain_code(code)
            return
        if job_id is None:
            raise typer.BadParameter("name a job, or a word with --code", param_hint="JOBID")
        wanted = one_for_json(jobs_wanted(job_id), as_json)
        for number, each in enumerate(wanted):
            answer = call(load_config(), "explain", each)
            del answer["v"], answer["ok"]
            if as_json:
                render.print_json(answer)
                return
            if number:
                print()
            _show(answer)


def _explain_code(code: str) -> None:
    from slurm_coloc.cli.texts.codes import every_code, meanings

    found = [*meanings(code)]
    if not found:
        near = get_close_matches(code, every_code(), n=3)
        hint = f"; near it are {', '.join(near)}" if near else ""
        raise typer.BadParameter(f"{code[:40]!r} is no word of ours{hint}", param_hint="--code")
    render.show(render.facts(found))


def _show(answer: dict[str, Any]) -> None:
    if answer.get("source") == "observe":
        render.show(render.facts(_observed(answer)))
        return
    if answer.get("source") == "slurmdbd":
        render.show(render.facts(_accounted(answer)))
        return
    told = render.facts(_lines(answer))
    story = [(render.moment(one["at_s"]), one["text"]) for one in answer["story"]]
    render.show(told, Text("\nStory", style="bold"), render.facts(story))


def _lines(answer: dict[str, Any]) -> Iterator[tuple[str, object]]:
    decision, run, live = answer["decision"], answer["runs"][-1], answer["live"]
    state = live["state"] if live else run["state"]
    partition = decision["partition"] or (live or {}).get("partition")
    where = f"partition {partition or 'not known'}"
    if decision["account"]:
        where += f", account {decision['account']}"
    yield "Job", f"{render.job(run)} of {render.user_name(run['uid'])}, {where}: {state}"
    yield "Why this size", _size(decision, answer.get("now") or {})
    if "family" in decision["features"]:
        yield "Model", _model(decision["features"])
    learning = decision.get("learning")
    notes = _notes(decision["features"].get("notes") or "", learning)
    if notes and notes not in decision["why"]:
        yield "Estimate", notes
    if learning and learning["why"]:
        yield "Earlier runs", _learned(learning, decision["features"].get("without_mib"))
    yield "Which GPU", _place(run, live)
    if answer.get("setup"):
        yield "On the node", answer["setup"]
    if live and live["state"] == "PENDING":
        yield "Why pending", f"{live['reason'] or 'no reason yet'}: {live['reason_text']}"
        for line in live.get("limits", ()):
            yield "Limit", line
    if answer["binding"]:
        known = answer["binding"]["per_gpu_known"] or answer["binding"].get("apart")
        note = "" if known else " (this Slurm does not tell per GPU)"
        yield "What binds it", answer["binding"]["text"] + note
    if answer["slurm_error"]:
        yield "Slurm", f"does not answer: {answer['slurm_error']}"
    yield from _slowdown(answer, run)
    if slots := answer.get("slots"):
        yield "Time slots", _slots(slots)
    yield from tries(decision, answer["runs"])
    yield "What next", answer["next"]


def _notes(notes: str, learning: dict[str, Any] | None) -> str:
    """What the estimator noted, but for what the lines of the model and of earlier runs say."""
    if learning and learning["why"]:
        notes = notes.removeprefix(learning["why"]).removeprefix("; ")
    return "; ".join(
        note for note in notes.split("; ") if not note.endswith(" taken from the summary")
    )


def _slowdown(answer: dict[str, Any], run: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """What sharing costs a run now, and what that did to its time limit."""
    own = [one for one in answer.get("time_limits", ()) if one["restart"] == run["restart"]]
    bound = answer["decision"].get("max_slowdown")
    if bound is not None or (own and own[0]["lost_s"] >= 1):
        slower = "not known"
        began_s, now_s = run["start_s"] or 0.0, time.time()
        # Until then a job counts as busy whose activity nobody knows.
        settled = (run["end_s"] or now_s) - began_s >= SPAN_S
        if own and run["outcome"]:
            slower = "" if settled else "at most "
            slower += f"{words(own[0]['lost_s'])} lost beside others"
        elif own and settled:
            slower = f"about {1 / own[0]['speed']:.2f}x now, beside {own[0]['others']}"
            slower += ", by the model of interference"
        yield "Slowdown", slower + ("" if bound is None else f"; {bound:g}x at most wanted")
    if own and own[0]["set_s"] is not None:
        given, became, lost = (words(own[0][name]) for name in ("base_s", "set_s", "lost_s"))
        yield "Time limit", f"{given} given, {became} now: {lost} lost by sharing"


def _slots(slots: dict[str, Any]) -> str:
    """Which slot a job is in, when it is to save and leave, and what it has left."""
    text = f"each {words(slots['length_s'])}; {slots['ended']} ended"
    if slots["left_s"] is not None:
        text += f", {render.span(slots['left_s'])} left with the present one"
    if slots["state"] == "dropped":
        return f"{text}; no more: it did not leave at a slot's end and runs to its time limit"
    if slots["signalled_s"] is not None:
        return f"{text}; SIG{slots['signal']} was sent at {render.moment(slots['signalled_s'])}"
    if slots["signal_at_s"] is not None:
        return f"{text}; SIG{slots['signal']} at {render.moment(slots['signal_at_s'])}"
    if slots["behind_s"] is not None:
        behind = render.moment(slots["behind_s"])
        return f"{text}; waits behind others of its priority since {behind}"
    return text


def _observed(answer: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """A job of observe mode: what was decided, and that nothing follows from it."""
    decision = answer["decision"]
    where = f"partition {decision['partition'] or 'not known'}"
    yield "Job", f"{answer['job_id']} of {render.user_name(decision['uid'])}, {where}"
    yield "Observe mode", "submitted unchanged; colocd only records what it would have decided"
    yield "Would be", _decided(decision)
    if "family" in decision["features"]:
        yield "Model", _model(decision["features"])


def _accounted(answer: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """A job that only slurmdbd still knows: the decision's mark and the runs."""
    decision, runs = answer["decision"], answer["runs"]
    last = runs[-1]
    where = f"partition {last['partition']}, account {last['account']}"
    yield "Job", f"{answer['job_id']} of {render.user_name(last['uid'])}, {where}: {last['state']}"
    share = f", {decision['shards']} shards" if decision["shards"] else ""
    yield (
        "Why this size",
        f"{KINDS.get(decision['action'], decision['action'])}{share}: " + (decision["why"]),
    )
    yield "Known from", f"Slurm's accounting alone (decision {decision['id']})"
    for run in runs:
        yield (
            f"Run {run['restart']}",
            f"{run['state']} on {run['node'] or 'no node'}: {run['tres']}",
        )


KINDS = {"collocate": "shares a GPU", "exclusive": "a whole GPU", "asis": "as submitted"}


def _size(decision: dict[str, Any], now: dict[str, Any]) -> str:
    """Why it was decided so; first what it asks for now, where that is something else."""
    if not now.get("changed"):
        return _decided(decision)
    what = f"a whole GPU now ({now['tres']})"
    if now["shared"]:
        of = f" of {decision['shards_per_gpu']}" if decision["shards_per_gpu"] else ""
        what = f"{now['shards']}{of} shards of {decision['shard_mib']} MiB now"
    return f"{what}: its request was changed since; at submission: {_decided(decision)}"


def _decided(decision: dict[str, Any]) -> str:
    text = f"{KINDS.get(decision['action'], decision['action'])}: {decision['why']}"
    if decision["action"] == "collocate":
        of = f" of {decision['shards_per_gpu']}" if decision["shards_per_gpu"] else ""
        text += f"; {decision['shards']}{of} shards of {decision['shard_mib']} MiB reserved"
    if decision["estimator"] == BY_USER:
        text += f"; {decision['upper_mib']} MiB, as --coloc-memory says"
    elif decision["estimator"] == BY_SITE:
        text += f"; {decision['upper_mib']} MiB, the site's share for jobs without an estimate"
    elif decision["memory_mib"] is not None:
        text += (
            f"; estimate {decision['memory_mib']} MiB, at most {decision['upper_mib']} MiB"
            f" (estimator {decision['estimator']})"
        )
    return text


def _learned(learning: dict[str, Any], without_mib: int | None) -> str:
    """``without_mib``: the estimate as it would have been told; an older decision has none."""
    if not learning["memory_mib"]:
        return f"{learning['why']}; there is no other estimate"
    return (
        f"{learning['why']}; without them {without_mib or learning['memory_mib']} MiB,"
        f" at most {learning['upper_mib']}"
    )


def _model(features: dict[str, Any]) -> str:
    given = features.get("given", ())
    parts = [f"{features.get('family', '?')}, {features.get('parameters', 0):,} parameters"]
    for name in OPTIONS:
        if value := features.get(name):
            # Without the user's word the batch size can only be the one in the summary.
            other = "from the summary" if name == "batch_size" else "assumed"
            source = "given" if name in given else other
            parts.append(f"{name.replace('_', ' ')} {value} ({source})")
    return ", ".join(parts)


def _place(run: dict[str, Any], live: dict[str, Any] | None) -> str:
    if live and live["placement"]:
        return f"{live['placement']} ({live['tres']})"
    if live and live["state"] == "PENDING":
        return "none yet"
    if run["gpu_uuids"]:
        return f"{run['node']}: {', '.join(run['gpu_uuids'])}"
    return run["node"] or "none yet"
