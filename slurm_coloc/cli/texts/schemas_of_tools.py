# SPDX-License-Identifier: Apache-2.0
"""Schemas of what the commands print with --json that do not ask colocd: an admin's, the
simulator's, the lab's, and those that measure or record."""

from typing import Any, Literal

from slurm_coloc.admin.init.plan import FileStep
from slurm_coloc.admin.leave.plan import State
from slurm_coloc.admin.limits import Price
from slurm_coloc.admin.rules.finding import Finding
from slurm_coloc.admin.rules.mig_plan import Fit, Score
from slurm_coloc.cli.texts.schema_fields import fields_of, list_of, maybe, model, optional
from slurm_coloc.sim.outcome import BY_SIZE
from slurm_coloc.sim.page.figures import Side

Open = dict[str, Any]

CHECK = model("Finding", "One check.", fields_of(Finding))
DOCTOR = model(
    "Doctor",
    "`coloc doctor --json`. `ok`: no check failed.",
    {"ok": (bool, ...), "checks": (list_of(CHECK), ...)},
)
FILE_STEP = model(
    "FileStep",
    "A file: its text now (`old`) and afterwards (`new`), what it is for, and whether there is"
    " something to do (`due`). `problem`: why only a person can do it.",
    {
        "path": (str, ...),
        **fields_of(FileStep, ("old", "new", "why", "problem")),
        "edits": (list[Any], ...),
        "due": (bool, ...),
    },
)
INIT = model(
    "Init",
    "`coloc init --json`. `written`: the files that were; `program`: files of slurm-coloc that were"
    " put there or are missing; `refused`: what stands against it; `left`: what is not done, and"
    " why; `commands`: an admin's, for afterwards.",
    {
        "roles": (list[str], ...),
        "files": (list_of(FILE_STEP), ...),
        "written": (list[str], ...),
        "program": (list[str], ...),
        "refused": (list_of(CHECK), ...),
        "left": (list[str], ...),
        "commands": (list[str], ...),
    },
)
LEAVE_STEP = model(
    "LeaveStep",
    "A step on the way back to plain Slurm: what was `found` of it, what is `todo`, and the lines"
    " of files or the commands that belong to it.",
    {
        "name": (str, ...),
        "state": (State, ...),
        "found": (str, ...),
        "todo": (str, ...),
        "lines": (list[str], ...),
    },
)
LEAVE = model(
    "Leave",
    "`coloc leave --json`. `done`: all steps are.",
    {"done": (bool, ...), "steps": (list_of(LEAVE_STEP), ...)},
)
LIMITS = model(
    "Limits",
    "`coloc limits --json`: commands that let limits in GPUs hold for shares, and those that take"
    " them back (`undo`). `each`: what a GPU counts. `kept`: limits that stay.",
    {
        "way": (str, ...),
        "each": (int, ...),
        "why": (str, ...),
        "rule": (str, ...),
        "commands": (list[str], ...),
        "undo": (list[str], ...),
        "kept": (Any, ...),
        "notes": (list[str], ...),
        "weights": (
            list_of(model("Price", "A partition's TRESBillingWeights.", fields_of(Price))),
            ...,
        ),
    },
)
LAYOUT = model(
    "MigScore",
    "How a layout serves the runs: `layout` of each cut GPU, [] for none; `unserved` fit nowhere;"
    " seconds are means over the others.",
    fields_of(Score) | {"mean_s": (float, ...)},
)
MIG_PLAN = model(
    "MigPlan",
    "`coloc mig plan --json`. `cut`: GPUs of `gpus` that may be cut. `fits`: the runs that fit each"
    " profile. `commands`, `gres`: for the best layout.",
    {
        "gpu": (str, ...),
        "gpus": (int, ...),
        "cut": (int, ...),
        "runs": (dict[str, int], ...),
        "commands": (list[str], ...),
        "gres": (str, ...),
        "fits": (list_of(model("MigFit", "Of a profile.", fields_of(Fit))), ...),
        "best": (LAYOUT, ...),
        "uncut": (LAYOUT, ...),
        "others": (list_of(LAYOUT), ...),
    },
)
MIG_GRES = model(
    "MigGres",
    "`coloc mig gres --json`: this node's GPUs in MIG mode with their devices, and the lines of"
    " gres.conf.",
    {"gpus": (list[Open], ...), "gres_conf": (list[str], ...)},
)
SIMULATE = model(
    "Simulate",
    "`coloc simulate --json`: means over `runs`, with `spread` (standard deviations) where there"
    " are several. `bound_s`: no schedule is shorter. `policies`: with a comparison, each one's"
    " figures, with the part of the exclusive makespan that it saves (`saving_ratio`) and of what"
    " the bound would save. `page`: of a site's own past.",
    {
        **dict.fromkeys(
            (
                "makespan_s", "mean_wait_s", "p95_wait_s", "mean_exec_s", "mean_jct_s",
                "mean_slowdown", "p95_slowdown", "oom", "timeouts", "timeouts_by_sharing",
                "energy_mj", "bound_s",
            ),
            (float, ...),
        ),
        "p95_wait_plain_s": optional(float),
        **dict.fromkeys(BY_SIZE, optional(float)),
        "runs": (int, ...),
        "spread": optional(dict[str, float]),
        "policy": (str, ...),
        "gpus": (str, ...),
        "jobs": (int, ...),
        "estimator": (str, ...),
        "method": (str, ...),
        "interference": (str, ...),
        "seed": (int, ...),
        "conditions": (Open, ...),
        "assumed": (list[str], ...),
        "policies": optional(dict[str, Open]),
        "page": optional(
            model(
                "SimulatedPage",
                "The site's own past, with whole GPUs and shared.",
                {
                    "jobs": (int, ...),
                    "users": (int, ...),
                    "gpus": (int, ...),
                    "gpus_needed": maybe(int),
                    "gpu_hours_saved": (float, ...),
                    "recorded_wait_s": maybe(float),
                    "whole": (model("Side", "One way of running it.", fields_of(Side)), ...),
                    "shared": (model("Side", "One way of running it.", fields_of(Side)), ...),
                    "cases": (list[Open], ...),
                },
            )
        ),
    },
)  # fmt: skip
REPLAY = model(
    "Replay",
    "`coloc replay --json`: what was answered then (`recorded`) and is now. `same`: both are.",
    {
        "same": (bool, ...),
        "at_s": (float, ...),
        "policy": (str, ...),
        "recorded": (list[Open], ...),
        "answers": (list[Open], ...),
    },
)
LAB_UP = model(
    "LabUp",
    "`coloc lab up --json`. `env`: what a shell needs to use it. `dry_run`: nothing was made.",
    {
        "name": (str, ...),
        "dir": (str, ...),
        "slurm_conf": (str, ...),
        "slurm_version": (str, ...),
        "nodes": (list[str], ...),
        "gpus_per_node": (int, ...),
        "shards_per_gpu": (int, ...),
        "users": (list[str], ...),
        "env": (dict[str, str], ...),
        "notes": (list[str], ...),
        "dry_run": optional(Literal[True]),
    },
)
LAB_STATUS = model(
    "LabStatus",
    "`coloc lab status --json`. `alive`: all daemons are. What does not answer is null.",
    {
        "name": (str, ...),
        "dir": (str, ...),
        "slurm_version": (str, ...),
        "alive": (bool, ...),
        "daemons": (dict[str, Open], ...),
        "nodes": maybe(list[dict[str, str]]),
        "gpus": (dict[str, Any], ...),
        "jobs": maybe(list[dict[str, str]]),
    },
)
LAB_DOWN = model(
    "LabDown",
    "`coloc lab down --json`. `was_up`: there was one.",
    {"name": (str, ...), "was_up": (bool, ...)},
)
CONFIG_CHECK = model(
    "ConfigCheck",
    "`coloc config check --json`. `built_in`: there is no file, and the defaults hold.",
    {
        "file": (str, ...),
        "valid": (bool, ...),
        "built_in": (bool, ...),
        "errors": (list[str], ...),
    },
)
SUMMARIZE = model(
    "Summarize",
    "`coloc summarize --json`: the summary's `text` and what was understood of it. `recording`: of"
    " a recorded step.",
    {
        "text": (str, ...),
        "notes": (list[str], ...),
        "recording": maybe(Open),
        "summary": (Open, ...),
    },
)
CALIBRATE = model(
    "Calibrate",
    "`coloc calibrate --json`: the file's content beside where it was written; with --dry-run what"
    " would be done.",
    {
        "gpu": (str, ...),
        "uuid": (str, ...),
        "file": (str, ...),
        "dry_run": optional(Literal[True]),
        "context_mib": optional(int),
    },
)

#: by the command's words, as the files are named
SCHEMAS = {
    "doctor": DOCTOR,
    "init": INIT,
    "leave": LEAVE,
    "limits": LIMITS,
    "mig-plan": MIG_PLAN,
    "mig-gres": MIG_GRES,
    "config-check": CONFIG_CHECK,
    "calibrate": CALIBRATE,
    "summarize": SUMMARIZE,
    "simulate": SIMULATE,
    "replay": REPLAY,
    "lab-up": LAB_UP,
    "lab-status": LAB_STATUS,
    "lab-down": LAB_DOWN,
}
