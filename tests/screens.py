# SPDX-License-Identifier: Apache-2.0
"""The screens in the docs, drawn by the code that draws them for users: ``make screens``.

``python -m tests.screens docs/pictures``: tables and `coloc top` at 80 columns and wide as SVG, of
a cluster that is made up here; the pages of `coloc report --cluster` and `--compare` as PNG, wide
and as on a phone, where Chromium is installed.
"""

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.text import Text

from slurm_coloc.adapters.slurm.commands.parse import parse_config
from slurm_coloc.admin.rules import accounting, releases, slurm_conf
from slurm_coloc.admin.rules.finding import Finding
from slurm_coloc.cli import advise, doctor, eta, gpus, history, jobs, render
from slurm_coloc.cli import report as report_command
from slurm_coloc.cli.app import build
from slurm_coloc.cli.listing import Column, listing
from slurm_coloc.cli.report import compare
from slurm_coloc.cli.report.cluster import cluster_page
from slurm_coloc.cli.report.compare import compare_page
from slurm_coloc.cli.top.picture import Known, View, picture
from slurm_coloc.core.records.observed import ObservedJob
from slurm_coloc.core.report.advice import advise as judged
from slurm_coloc.core.report.cluster import report
from tests.cluster.test_pages import many
from tests.unit.report.test_pages import of_sweep

CONTRACT = Path(__file__).parent / "contract" / "slurm"
NOW_S = 1_795_800_000.0
MIB = 1024
USERS = {2001: "ada", 2002: "ben", 2003: "eve"}
NAMES = ("resnet50", "vit-small", "gpt2-ft", "unet", "bert-base")
#: of one node: on each GPU the jobs, each with its memory held and reserved (GiB)
NODES: dict[str, list[list[tuple[float, int]]]] = {
    "g1": [[(4.9, 6), (8.8, 12), (9.1, 12)], [(5.0, 6), (17.2, 20)], [(11.8, 14)], []],
    "g2": [[(21.5, 26), (4.9, 6), (4.8, 6), (8.7, 12)], [(38.0, 45)]],
}
CARDS = {"g1": ("NVIDIA A100-SXM4-40GB", 40536, 39), "g2": ("NVIDIA H100 80GB HBM3", 81559, 79)}


def cluster() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The GPUs and the runs, as colocd answers them."""
    cards, runs, job_id = [], [], 4711
    for node, devices in NODES.items():
        name, total_mib, shards = CARDS[node]
        for index, there in enumerate(devices):
            uuid = f"GPU-{node}{index}f3c1-0000"
            held = []
            for gib, reserved in there:
                job_id += 1
                held.append({"job_id": job_id, "mib": int(gib * MIB)})
                estimate = int(gib * MIB * 1.04)
                runs.append({
                    "job_id": job_id, "array_job_id": None, "array_task": None, "restart": 0,
                    "uid": 2001 + job_id % 3, "name": NAMES[job_id % 5], "state": "RUNNING",
                    "partition": "a100" if node == "g1" else "h100", "node": node, "gpus": [index],
                    "gpu_uuids": [uuid], "tres": f"gres/shard:{reserved}", "shards": reserved,
                    "shards_per_gpu": shards, "shard_mib": MIB, "action": "collocate",
                    "memory_mib": estimate, "upper_mib": reserved * MIB - 200,
                    "peak_mib": int(gib * MIB), "outcome": None, "reason": "fits", "victims": 0,
                    "retry_way": None, "retry_cause": None, "retry_culprit": None,
                    "start_s": NOW_S - 300 * (job_id % 17 + 1), "submit_s": NOW_S - 9000,
                    "end_s": None, "idle_since_s": None,
                })  # fmt: skip
            used_mib = sum(one["mib"] for one in held)
            smact = min(0.97, 0.23 * len(held) + 0.04 * index) if held else 0.0
            cards.append({
                "node": node, "index": index, "uuid": uuid, "name": name, "total_mib": total_mib,
                "free_mib": total_mib - used_mib - 420, "smact": smact, "dram": smact * 0.55,
                "power_w": 62 + 260 * smact, "foreign_mib": 0, "at_s": NOW_S - 4, "jobs": held,
                "jobs_here": len(held),
            })  # fmt: skip
    for number, run in enumerate(runs):
        run["time_left"] = {"left_s": 1500.0 * (number % 7 + 1)}
        run["speed"] = 1.0 - 0.06 * (number % 4)
    runs[2] |= {"overrun": {"held_mib": int(14.4 * MIB), "promised_mib": 12 * MIB}}
    runs[4] |= {"restart": 1, "retry_way": "more", "retry_cause": "self"}
    runs[5] |= {"idle_since_s": NOW_S - 2400, "name": "notebook"}
    waits = {
        "time_left": None,
        "state": "PENDING",
        "node": None,
        "gpus": [],
        "gpu_uuids": [],
        "start_s": None,
    }
    runs.append(runs[0] | waits | {"job_id": job_id + 1, "peak_mib": None, "name": "sweep"})
    whole = {"action": "exclusive", "reason": "no-summary", "tres": "gres/gpu:1", "shards": 0}
    runs.append(runs[-1] | whole | {"job_id": job_id + 2, "name": "llama", "memory_mib": None,
                                    "upper_mib": None})  # fmt: skip
    return cards, runs


def running(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that run, with what their logs and earlier runs say of the time that is left."""
    found = []
    for number, run in enumerate(run for run in runs if run["start_s"]):
        left_s = 1500.0 * (number % 7 + 1)
        told: dict[str, Any] = {
            "left_s": left_s, "low_s": 0.9 * left_s, "high_s": 1.2 * left_s, "done": None,
            "epoch": None, "epochs": None, "by": "runs", "runs": number % 4 + 1,
        }  # fmt: skip
        if number % 3 == 0:
            told |= {"by": "log", "done": 0.31, "epoch": 9.3, "epochs": 30.0}
        found.append(run | {"time_left": told if number % 5 else None})
    return found


def whole() -> list[dict[str, Any]]:
    """Jobs on whole GPUs, as `coloc advise` judges them."""
    held = ((4801, 9.1, 0.22), (4790, 30.4, 0.55), (4777, 11.8, 0.93), (4760, 2.2, None))
    jobs = [
        ObservedJob(
            job_id=job_id, node="g1", since_s=NOW_S - 7200, until_s=NOW_S, samples=7200, gpus=1,
            kind="a100", total_mib=40536, peak_mib=int(gib * MIB), smact=smact, partition="a100",
        )
        for job_id, gib, smact in held
    ]  # fmt: skip
    return [advise.row_of(one) for one in judged(jobs).jobs]


def ended(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """These runs at their ends, one of them out of memory by a neighbour's doing."""
    found = [
        run
        | {"outcome": "completed", "end_s": NOW_S - 60 * number, "overrun": None, "time_left": None}
        for number, run in enumerate(runs)
        if run["start_s"]
    ]
    found[1] |= {"outcome": "oom-gpu", "peak_mib": None}
    found[3] |= {"outcome": "cancelled"}
    return found


def terminal(width: int) -> Console:
    return Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False,
    )  # fmt: skip


def svg(lines: Iterable[Text], width: int, title: str) -> str:
    """The lines as a terminal shows them."""
    console = terminal(width)
    for line in lines:
        console.print(line, soft_wrap=True)
    return exported(console, title)


def said(show: Callable[[], object], width: int, title: str) -> str:
    """What a command says on a terminal."""
    console = terminal(width)
    flowing = partial(console.print, soft_wrap=False)  # a terminal wraps, and a picture crops
    with (
        mock.patch("slurm_coloc.cli.render.console", lambda: console),
        mock.patch.object(console, "print", lambda *args, **how: flowing(*args, **_kept(how))),
    ):
        show()
    return exported(console, title)


def _kept(how: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in how.items() if key != "soft_wrap"}


def exported(console: Console, title: str) -> str:
    """Without the fonts that rich would fetch."""
    text = console.export_svg(title=title, unique_id=re.sub(r"\W", "", title))
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    return text.replace("Fira Code,", "").replace("Fira Code", "monospace")


def table(columns: tuple[Column, ...], rows: list[dict[str, Any]], width: int) -> list[Text]:
    head, *rest = listing(columns, rows, width)
    return [Text(head, style="bold"), *map(Text, rest)]


def draw(folder: Path) -> None:
    """Write all terminals' screens."""
    cards, runs = cluster()
    seen = Known(cards, {"g7": "no NVML on this node"}, runs, NOW_S)
    screens: dict[str, tuple[list[Text], int]] = {
        "top-80x24": (picture(seen, View(), 80, 24), 80),
        "top-200x50": (picture(seen, View(), 200, 50), 200),
    }
    for width in (80, 160):
        screens[f"jobs-{width}"] = table(jobs.COLUMNS, runs, width), width
        screens[f"history-{width}"] = table(history.COLUMNS, ended(runs)[::-1], width), width
        screens[f"gpus-{width}"] = table(gpus.COLUMNS, cards, width), width
        screens[f"eta-{width}"] = table(eta.COLUMNS, running(runs), width), width
        screens[f"advise-{width}"] = table(advise.COLUMNS, whole(), width), width
        screens[f"report-{width}"] = table(compare.COLUMNS, sweep(), width), width
        screens[f"observe-{width}"] = table(history.OBSERVED, observed(runs), width), width
    texts = {
        name: svg(lines, width, "coloc " + name.split("-")[0].replace("observe", "history"))
        for name, (lines, width) in screens.items()
    }
    for width in (80, 160):
        texts[f"sums-{width}"] = said(
            lambda: render.show(report_command.sums(by_user())), width, "coloc report"
        )
        texts[f"doctor-{width}"] = said(lambda: doctor.show(faults()), width, "coloc doctor")
        texts[f"simulate-{width}"] = said(simulated, width, "coloc simulate")
    for name, text in texts.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
        print(f"{folder / name}.svg")


def observed(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decisions of observe mode: most would share, some of their texts tell too little."""
    found = []
    for number, run in enumerate(runs):
        row = run | {"made_s": NOW_S - 700 * (number + 1), "reason": "fits"}
        if number % 4 == 3:
            nothing = {"memory_mib": None, "upper_mib": None, "shards": 0, "tres": "gres/gpu:1"}
            reason = ("no-estimate", "no-summary", "fills-gpu")[number % 3]
            row |= nothing | {"action": "exclusive", "reason": reason}
        found.append(row)
    return found


def by_user() -> list[dict[str, Any]]:
    return [
        {
            "uid": uid, "runs": runs, "shared": runs - runs // 5, "completed": runs - oom - 3,
            "oom": oom, "put_back": oom + 1, "hours": 1.7 * runs, "measured": runs - 4,
            "peak_mib": 7200 * (runs - 4), "estimate_mib": 7900 * (runs - 4),
            "reserved_mib": 9100 * (runs - 4),
        }
        for uid, runs, oom in ((2001, 1210, 4), (2002, 96, 0), (2003, 31, 2))
    ]  # fmt: skip


def faults() -> list[Finding]:
    """What some of the doctor's own rules find in a slurm.conf that lacks the hook and requeues."""
    conf = parse_config((CONTRACT / "24.11" / "config.txt").read_text(encoding="utf-8"))
    conf |= {"JobRequeue": "0"}
    checks = (*releases.RELEASE_CHECKS, *slurm_conf.SETTINGS, accounting.accounting)
    return [check(conf) for check in checks]


def simulated() -> None:
    asked = "simulate --trace etc/examples/simulate/trace.csv --compare best,magm,first-fit"
    with mock.patch("sys.argv", ["coloc", *asked.split()]):
        build()(standalone_mode=False)


def sweep() -> list[dict[str, Any]]:
    """Reports of one model at three batch sizes."""
    found = []
    for number, batch in enumerate((16, 32, 64)):
        top = 1800 + 80 * batch
        steps = range(40 - 8 * number)
        memory = [min(top, 1400 + 900 * step) for step in steps]
        smact = [min(0.3 + 0.17 * number, 0.1 + 0.1 * step) for step in steps]
        series = {"step_s": 60.0, "memory_mib": memory, "smact": smact}
        answer = of_sweep(4711 + number, batch, series=series, reserved_mib=2048 * (2 + number))
        answer["run"] |= {"peak_mib": top, "end_s": 1000.0 + 60 * len(steps)}
        found.append(answer)
    return found


def photograph(folder: Path) -> None:
    """The pages in a browser, where there is one."""
    browser = shutil.which("chromium")
    if browser is None:
        print("no chromium here: the pages were not photographed")
        return
    cluster = cluster_page(
        report(many(), lambda uid: USERS.get(2001 + uid % 3, str(uid))),
        *(NOW_S - 30 * 86400, NOW_S),
        whose="all users",
        more=False,
    )
    shots = (
        ("page-wide", cluster, "1100,2600"),
        ("page-phone", cluster, "500,2600"),
        ("compare-wide", compare_page(sweep()), "1100,980"),
        ("compare-phone", compare_page(sweep()), "500,760"),
    )
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "page.html")
        for name, text, size in shots:
            file.write_text(text, encoding="utf-8")
            words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            words += [f"--window-size={size}", f"--screenshot={folder / name}.png"]
            subprocess.run([browser, *words, f"file://{file}"], check=True, capture_output=True)
            print(f"{folder / name}.png")


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True, exist_ok=True)
    with (
        mock.patch("time.time", lambda: NOW_S),
        mock.patch("slurm_coloc.cli.render.user_name", lambda uid: USERS.get(uid, str(uid))),
    ):
        draw(target)
    photograph(target)
