# SPDX-License-Identifier: Apache-2.0
"""Schemas of the answers with --json, from the records that they are made of.

The tests check what colocd answers against these models. Fields may be added to an answer; none is
taken away or changes its meaning within a release series.
"""

import json
from typing import Any, Literal

from slurm_coloc.cli.texts import schemas_of_tools
from slurm_coloc.cli.texts.schema_fields import Fields, fields_of, list_of, maybe, model, optional
from slurm_coloc.core.gpu.usage import Totals
from slurm_coloc.core.records.queries import OBSERVED, RunWithDecision, UserSum
from slurm_coloc.core.records.runs import Event, Run, StoredDecision

Open = dict[str, Any]
Private = {"private": optional(Literal[True])}

RUN = model(
    "RunOfList",
    "A run of a job: times are Unix seconds, memory MiB of one GPU. `gpus`: NVML's numbers of its"
    " GPUs; null where the node does not tell.",
    fields_of(RunWithDecision) | {"gpus": maybe(list[int])},
)
TIME_LEFT = model(
    "TimeLeft",
    "How long a run still takes. `by`: `log`, or `earlier runs` of the same model and options, of"
    " which there are `runs`. `low_s` to `high_s`: the range. `done`: 0 to 1. `epoch`: done, of"
    " `epochs`. null: not known.",
    {
        "by": (Literal["log", "earlier runs"], ...),
        "runs": (int, ...),
        **dict.fromkeys(("left_s", "low_s", "high_s", "done", "epoch", "epochs"), maybe(float)),
    },
)
PRESENT = model(
    "Job",
    "A run that waits or runs. `idle_since_s`: since when it has used no GPU. `overrun`: MiB held"
    " and promised, while it holds more than it was promised. `speed`: against running alone (1),"
    " predicted from the activities on its GPU. Of other users' jobs `victims`, `used`, `evidence`,"
    " `blame`, `time_left` and `speed` are null.",
    fields_of(RunWithDecision)
    | {
        "gpus": maybe(list[int]),
        "victims": maybe(int),
        "idle_since_s": maybe(float),
        "overrun": maybe(dict[str, int]),
        "time_left": maybe(TIME_LEFT),
        "speed": maybe(float),
    },
)
DECISION = model(
    "Decision",
    "What was decided of a submission. Of other users' jobs `detail` and what follows from their"
    " model is null.",
    fields_of(StoredDecision) | {"detail": maybe(str)},
)
EXPLAINED = model(
    "ExplainedRun",
    "A run, what came after it (`retry`), the neighbour that ended it (`culprit`), and how many"
    " runs it ended itself (`victims`).",
    fields_of(Run) | {"retry": maybe(Open), "culprit": maybe(Open), "victims": maybe(int)},
)
EVENT = model("Event", "A line of what happened to the job.", fields_of(Event))
GPU = model(
    "Gpu",
    "A GPU or MIG device as its agent sees it: activities are ratios, means of agent.window_s."
    " `jobs`: null under PrivateData; `jobs_here`: how many.",
    {
        "node": (str, ...),
        "at_s": (float, ...),
        "uuid": (str, ...),
        "index": (int, ...),
        "minor": maybe(int),
        "name": (str, ...),
        "total_mib": (int, ...),
        "free_mib": (int, ...),
        "foreign_mib": (int, ...),
        **{
            name: maybe(float)
            for name in ("smact", "smocc", "dram", "pcie_tx_mib_s", "pcie_rx_mib_s", "power_w")
        },
        "jobs": maybe(list[Open]),
        "jobs_here": (int, ...),
        "why": (str, ...),
    },
)
USE = model(
    "Use", "Over all GPUs of a run; `nodes`: the agents' records.",
    fields_of(Totals) | {"nodes": (list[Open], ...)},
)  # fmt: skip

ETA = model("Eta", "`coloc eta --json`", {"jobs": (list_of(PRESENT), ...)})
JOBS = model("Jobs", "`coloc jobs --json`", {"jobs": (list_of(PRESENT), ...), **Private})
OBSERVED_DECISION = model(
    "Observed", "A decision of observe mode.", fields_of(StoredDecision, OBSERVED)
)
HISTORY = model(
    "History",
    "`coloc history --json`: the newest runs first. `observed`: what observe mode decided.",
    {
        "runs": (list_of(RUN), ...),
        "observed": (
            list_of(
                model(
                    "Observed", "A decision of observe mode.", fields_of(StoredDecision, OBSERVED)
                )
            ),
            ...,
        ),
    },
)
GPUS = model(
    "Gpus",
    "`coloc gpus --json`. `without`: nodes that tell nothing of their GPUs, with the reason.",
    {"gpus": (list_of(GPU), ...), "without": (dict[str, str], ...), **Private},
)
EXPLAIN = model(
    "Explain",
    "`coloc explain JOB --json`. `live`: the job in Slurm now, null where Slurm does not know it"
    " or does not answer (`slurm_error`). `now`: what it asks for now. `next`: what comes next.",
    {
        "job_id": (int, ...),
        "decision": (DECISION, ...),
        "runs": (list_of(EXPLAINED), ...),
        "story": (list_of(EVENT), ...),
        "time_limits": (list[Open], ...),
        "slots": maybe(Open),
        "live": maybe(Open),
        "slurm_error": maybe(str),
        "now": (Open, ...),
        "binding": maybe(Open),
        "setup": (str, ...),
        "next": (str, ...),
    },
)
OTHER = model(
    "ExplainOther",
    "`coloc explain JOB --json` of a job that observe mode decided on, or that colocd has forgotten"
    " and slurmdbd knows (`source`).",
    {"source": (Literal["observe", "slurmdbd"], ...), "job_id": (int, ...)},
)
REPORT = model(
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
        "reserved_mib": maybe(int),
        "use": (USE, ...),
        "neighbours": (list[Open], ...),
        "slower": maybe(float),
        "slower_how": (Literal["", "alone", "measured", "predicted"], ...),
        "sooner_s": (float, ...),
        "time_limit": maybe(Open),
        "series": maybe(Open),
        "events": (list[Open], ...),
    },
)
SUMMARY = model(
    "Summary",
    "`coloc report --days N --json`: ended runs by user.",
    {
        "days": (int, ...),
        "users": (list_of(model("UserSum", "Ended runs of a user.", fields_of(UserSum))), ...),
    },
)
TOP = model(
    "Top",
    "`coloc top --json`: the GPUs, and who waits or runs.",
    {
        "gpus": (list_of(GPU), ...),
        "without": (dict[str, str], ...),
        "jobs": (list_of(PRESENT), ...),
    },
)
CHOSEN_FIELDS: Fields = {
    "name": (str, ...),
    "memory_mib": maybe(int),
    "upper_mib": maybe(int),
    "smact": maybe(float),
    "smact_low": maybe(float),
    "smact_high": maybe(float),
    "dram": maybe(float),
    "shards": maybe(int),
    "reason": (str, ...),
    "parts": optional(dict[str, int]),
}
ESTIMATE = model(
    "EstimateAnswer",
    "`coloc estimate FILE --json`. `estimates`: every estimator that was asked. `chosen`: the one"
    " that counts; `shards` null: a whole GPU. `parts`: MiB by what they are for. `fit`: with"
    " --fit. `sweep`: with several batch sizes. `error`, alone: it failed.",
    {
        "summary": optional(Open),
        "estimates": optional(list[Open]),
        "chosen": optional(model("ChosenEstimate", "What is reserved for.", CHOSEN_FIELDS)),
        "fit": optional(list[Open]),
        "sweep": optional(list[Open]),
        "error": optional(dict[str, str]),
    },
)
ADVISE = model(
    "Advise",
    "`coloc advise --json`. Hours are GPU hours: of all jobs without --coloc, of those that would"
    " share, and what these would have needed. `wait_s`: their median wait.",
    {
        "jobs": (
            list_of(
                model(
                    "AdvisedJob",
                    "A job with what was measured of it. `fit`: whether it would share."
                    " `together`: how many like it fit on its GPU by memory.",
                    {
                        "job_id": (int, ...),
                        "partition": maybe(str),
                        "kind": maybe(str),
                        "peak_mib": maybe(int),
                        "total_mib": maybe(int),
                        "smact": maybe(float),
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
        "wait_s": maybe(float),
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
    **schemas_of_tools.SCHEMAS,
}


def schema(name: str) -> str:
    """The JSON Schema (draft 2020-12) of an answer."""
    found = SCHEMAS[name].model_json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | found, indent=2, sort_keys=True) + "\n"
