# SPDX-License-Identifier: Apache-2.0
"""Schemas of the answers with --json, from the records that they are made of.

The tests check what colocd answers against these models. Fields may be added to an answer; none is
taken away or changes its meaning within a release series.
"""

import dataclasses
import json
import types
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic import BaseModel, ConfigDict, Field, create_model

from slurm_coloc.admin.rules.finding import Finding
from slurm_coloc.core.gpu.usage import Totals
from slurm_coloc.core.records.queries import OBSERVED, RunWithDecision, UserSum
from slurm_coloc.core.records.runs import Event, Run, StoredDecision

Flag = Annotated[int, Field(ge=0, le=1)]
Fields = dict[str, Any]


class Answer(BaseModel):
    """An object to which a later release may add fields."""

    model_config = ConfigDict(extra="allow")


def _kind(hint: Any) -> Any:
    """The type of a field as JSON has it: a flag is 0 or 1, a tuple an array; documents of nodes
    stay open."""
    if hint is bool:
        return Flag
    if is_typeddict(hint):
        return dict[str, Any]
    inner = tuple(_kind(one) for one in get_args(hint) if one is not Ellipsis)
    if get_origin(hint) in (types.UnionType, Union):
        return Union[inner]  # noqa: UP007  of a tuple
    if get_origin(hint) in (tuple, list):
        return list[inner[0]]  # type: ignore[valid-type]
    return hint


def _of(record: type, names: tuple[str, ...] | None = None) -> Fields:
    """The fields of a record, or those of them in ``names``; each is always there."""
    hints = get_type_hints(record)
    wanted = names or tuple(one.name for one in dataclasses.fields(record))
    return {name: (_kind(hints[name]), ...) for name in wanted}


def _model(title: str, text: str, fields: Fields) -> type[Answer]:
    return create_model(title, __base__=Answer, __doc__=text, **fields)


def _maybe(kind: Any) -> Any:
    """A field that may be null, and is always there."""
    return (kind | None, ...)


def _list(kind: Any) -> Any:
    return list[kind]


def _optional(kind: Any) -> Any:
    """A field that need not be there."""
    return (kind | None, None)


Open = dict[str, Any]
Private = {"private": _optional(Literal[True])}

RUN = _model(
    "RunOfList",
    "A run of a job: times are Unix seconds, memory MiB of one GPU. `gpus`: NVML's numbers of its"
    " GPUs; null where the node does not tell.",
    _of(RunWithDecision) | {"gpus": _maybe(list[int])},
)
TIME_LEFT = _model(
    "TimeLeft",
    "How long a run still takes. `by`: `log`, or `earlier runs` of the same model and options, of"
    " which there are `runs`. `low_s` to `high_s`: the range. `done`: 0 to 1. `epoch`: done, of"
    " `epochs`. null: not known.",
    {
        "by": (Literal["log", "earlier runs"], ...),
        "runs": (int, ...),
        **dict.fromkeys(("left_s", "low_s", "high_s", "done", "epoch", "epochs"), _maybe(float)),
    },
)
PRESENT = _model(
    "Job",
    "A run that waits or runs. `idle_since_s`: since when it has used no GPU. `overrun`: MiB held"
    " and promised, while it holds more than it was promised. Of other users' jobs `victims`,"
    " `used`, `evidence`, `blame` and `time_left` are null.",
    _of(RunWithDecision)
    | {
        "gpus": _maybe(list[int]),
        "victims": _maybe(int),
        "idle_since_s": _maybe(float),
        "overrun": _maybe(dict[str, int]),
        "time_left": _maybe(TIME_LEFT),
    },
)
DECISION = _model(
    "Decision",
    "What was decided of a submission. Of other users' jobs `detail` and what follows from their"
    " model is null.",
    _of(StoredDecision) | {"detail": _maybe(str)},
)
EXPLAINED = _model(
    "ExplainedRun",
    "A run, what came after it (`retry`), the neighbour that ended it (`culprit`), and how many"
    " runs it ended itself (`victims`).",
    _of(Run) | {"retry": _maybe(Open), "culprit": _maybe(Open), "victims": _maybe(int)},
)
EVENT = _model("Event", "A line of what happened to the job.", _of(Event))
GPU = _model(
    "Gpu",
    "A GPU or MIG device as its agent sees it: activities are ratios, means of agent.window_s."
    " `jobs`: null under PrivateData; `jobs_here`: how many.",
    {
        "node": (str, ...),
        "at_s": (float, ...),
        "uuid": (str, ...),
        "index": (int, ...),
        "minor": _maybe(int),
        "name": (str, ...),
        "total_mib": (int, ...),
        "free_mib": (int, ...),
        "foreign_mib": (int, ...),
        **{
            name: _maybe(float)
            for name in ("smact", "smocc", "dram", "pcie_tx_mib_s", "pcie_rx_mib_s", "power_w")
        },
        "jobs": _maybe(list[Open]),
        "jobs_here": (int, ...),
        "why": (str, ...),
    },
)
USE = _model(
    "Use", "Over all GPUs of a run; `nodes`: the agents' records.",
    _of(Totals) | {"nodes": (list[Open], ...)},
)  # fmt: skip

ETA = _model("Eta", "`coloc eta --json`", {"jobs": (_list(PRESENT), ...)})
JOBS = _model("Jobs", "`coloc jobs --json`", {"jobs": (_list(PRESENT), ...), **Private})
HISTORY = _model(
    "History",
    "`coloc history --json`: the newest runs first. `observed`: what observe mode decided.",
    {
        "runs": (_list(RUN), ...),
        "observed": (
            _list(_model("Observed", "A decision of observe mode.", _of(StoredDecision, OBSERVED))),
            ...,
        ),
    },
)
GPUS = _model(
    "Gpus",
    "`coloc gpus --json`. `without`: nodes that tell nothing of their GPUs, with the reason.",
    {"gpus": (_list(GPU), ...), "without": (dict[str, str], ...), **Private},
)
EXPLAIN = _model(
    "Explain",
    "`coloc explain JOB --json`. `live`: the job in Slurm now, null where Slurm does not know it"
    " or does not answer (`slurm_error`). `now`: what it asks for now. `next`: what comes next.",
    {
        "job_id": (int, ...),
        "decision": (DECISION, ...),
        "runs": (_list(EXPLAINED), ...),
        "story": (_list(EVENT), ...),
        "time_limits": (list[Open], ...),
        "live": _maybe(Open),
        "slurm_error": _maybe(str),
        "now": (Open, ...),
        "binding": _maybe(Open),
        "setup": (str, ...),
        "next": (str, ...),
    },
)
OTHER = _model(
    "ExplainOther",
    "`coloc explain JOB --json` of a job that observe mode decided on, or that colocd has forgotten"
    " and slurmdbd knows (`source`).",
    {"source": (Literal["observe", "slurmdbd"], ...), "job_id": (int, ...)},
)
REPORT = _model(
    "Report",
    "`coloc report JOB --json`: the newest run of the job that began. `slower`: how many times"
    " slower than alone, `slower_how`: measured, predicted, alone, or empty where that is not"
    " known.",
    {
        "job_id": (int, ...),
        "decision": (DECISION, ...),
        "run": (Open, ...),
        "runs": (int, ...),
        "tries": (list[Open], ...),
        "reserved_mib": _maybe(int),
        "use": (USE, ...),
        "neighbours": (list[Open], ...),
        "slower": _maybe(float),
        "slower_how": (Literal["", "alone", "measured", "predicted"], ...),
        "sooner_s": (float, ...),
        "time_limit": _maybe(Open),
        "series": _maybe(Open),
        "events": (list[Open], ...),
    },
)
SUMMARY = _model(
    "Summary",
    "`coloc report --days N --json`: ended runs by user.",
    {
        "days": (int, ...),
        "users": (_list(_model("UserSum", "Ended runs of a user.", _of(UserSum))), ...),
    },
)
DOCTOR = _model(
    "Doctor",
    "`coloc doctor --json`. `ok`: no check failed.",
    {
        "ok": (bool, ...),
        "checks": (_list(_model("Finding", "One check.", _of(Finding))), ...),
    },
)
TOP = _model(
    "Top",
    "`coloc top --json`: the GPUs, and who waits or runs.",
    {
        "gpus": (_list(GPU), ...),
        "without": (dict[str, str], ...),
        "jobs": (_list(PRESENT), ...),
    },
)
CHOSEN_FIELDS: Fields = {
    "name": (str, ...),
    "memory_mib": _maybe(int),
    "upper_mib": _maybe(int),
    "smact": _maybe(float),
    "smact_low": _maybe(float),
    "smact_high": _maybe(float),
    "dram": _maybe(float),
    "shards": _maybe(int),
    "reason": (str, ...),
    "parts": _optional(dict[str, int]),
}
ESTIMATE = _model(
    "EstimateAnswer",
    "`coloc estimate FILE --json`. `estimates`: every estimator that was asked. `chosen`: the one"
    " that counts; `shards` null: a whole GPU. `parts`: MiB by what they are for. `fit`: with"
    " --fit. `sweep`: with several batch sizes. `error`, alone: it failed.",
    {
        "summary": _optional(Open),
        "estimates": _optional(list[Open]),
        "chosen": _optional(_model("ChosenEstimate", "What is reserved for.", CHOSEN_FIELDS)),
        "fit": _optional(list[Open]),
        "sweep": _optional(list[Open]),
        "error": _optional(dict[str, str]),
    },
)
ADVISE = _model(
    "Advise",
    "`coloc advise --json`. Hours are GPU hours: of all jobs without --coloc, of those that would"
    " share, and what these would have needed. `wait_s`: their median wait.",
    {
        "jobs": (
            _list(
                _model(
                    "AdvisedJob",
                    "A job with what was measured of it. `fit`: whether it would share."
                    " `together`: how many like it fit on its GPU by memory.",
                    {
                        "job_id": (int, ...),
                        "partition": _maybe(str),
                        "kind": _maybe(str),
                        "peak_mib": _maybe(int),
                        "total_mib": _maybe(int),
                        "smact": _maybe(float),
                        "hours": (float, ...),
                        "fit": (str, ...),
                        "together": (int, ...),
                    },
                )
            ),
            ...,
        ),
        "hours": (float, ...),
        "share_hours": (float, ...),
        "needed_hours": (float, ...),
        "wait_s": _maybe(float),
    },
)

#: by the name of the file
SCHEMAS = {
    "advise": ADVISE,
    "estimate": ESTIMATE,
    "top": TOP,
    "jobs": JOBS,
    "eta": ETA,
    "history": HISTORY,
    "gpus": GPUS,
    "explain": EXPLAIN,
    "explain-other": OTHER,
    "report": REPORT,
    "report-summary": SUMMARY,
    "doctor": DOCTOR,
}


def schema(name: str) -> str:
    """The JSON Schema (draft 2020-12) of an answer."""
    found = SCHEMAS[name].model_json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | found, indent=2, sort_keys=True) + "\n"
