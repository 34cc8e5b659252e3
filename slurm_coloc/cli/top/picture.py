# SPDX-License-Identifier: Apache-2.0
"""One picture of `coloc top`, as lines that fit the terminal. Nothing here asks or prints."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import set_cell_size
from rich.text import Text

from slurm_coloc.cli import render
from slurm_coloc.cli.jobs import age_of, name_of, order_of, share_of, state_of, why_of

Row = render.Row

SORTS = ("node", "memory", "activity")
HELP = (
    "q        end",
    "↑ ↓ j k  scroll by a line; Page Up, Page Down by a screen",
    "s        sort GPUs by node, memory, activity",
    "u        your jobs alone, or everybody's",
    "w        with the waiting jobs, or without",
    "p        hold the picture, or go on",
    "h        these keys",
)
FULL, BUSY = 0.9, 0.9  # ratios above which a bar is red
BAR = 20  # characters of a bar on a wide terminal
SLOWER = 0.995  # a speed below it is shown
ROOMY = 100  # columns from which a job's line also has its peak


class Known(NamedTuple):
    """What colocd has told. ``silent``: nodes without figures, and why; ``runs``: that wait or run;
    ``at_s``: when, 0 for never; ``private``: others' are hidden; ``fault``: why it does not
    answer now."""

    gpus: Sequence[Row] = ()
    silent: dict[str, str] = {}  # noqa: RUF012
    runs: Sequence[Row] = ()
    at_s: float = 0.0
    private: bool = False
    fault: str = ""


@dataclass(slots=True)
class View:
    """What the user has chosen to see."""

    everybody: bool = True
    sort: str = SORTS[0]
    waiting: bool = True
    held: bool = False
    told: bool = False
    first: int = 0
    page: int = 10

    def press(self, key: str) -> bool:
        """Do what a key asks for; whether colocd has to be asked anew."""
        steps = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "page-up": -self.page,
            "page-down": self.page,
        }
        if key in steps:
            self.first = max(0, self.first + steps[key])
        elif key == "home":
            self.first = 0
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == "w":
            self.waiting = not self.waiting
        elif key == "p":
            self.held = not self.held
        elif key in ("h", "?"):
            self.told = not self.told
        elif key == "u":
            self.everybody = not self.everybody
            return True
        return False


def picture(seen: Known, view: View, width: int, height: int | None) -> list[Text]:
    """Lines of at most ``width``, at most ``height`` of them (None: all)."""
    head = [*_head(seen, view)]
    body = [Text(line) for line in HELP] if view.told else [*_body(seen, view, width)]
    if height is not None:
        view.page = max(1, height - len(head) - 1)
        view.first = min(view.first, max(0, len(body) - view.page))
        body = body[view.first : view.first + view.page]
        body += [Text()] * (view.page - len(body))
        body.append(_foot(view, width))
    return [_cut(line, width) for line in (*head, *body)]


def _head(seen: Known, view: View) -> Iterator[Text]:
    used = sum(gpu["total_mib"] - gpu["free_mib"] for gpu in seen.gpus)
    total = sum(gpu["total_mib"] for gpu in seen.gpus)
    active = [gpu["smact"] for gpu in seen.gpus if gpu["smact"] is not None]
    runs = sum(run["state"] == "RUNNING" for run in seen.runs)
    waits = sum(run["state"] == "PENDING" for run in seen.runs)
    when = time.strftime("%H:%M:%S", time.localtime(seen.at_s)) if seen.at_s else "--:--:--"
    busy = f"{100 * sum(active) / len(active):.0f}%" if active else render.NONE
    yield Text.assemble(
        ("coloc top ", "bold"),
        f"{when}  {len(seen.gpus)} GPUs, {render.gib(used)} of {render.gib(total)} GiB,"
        f" SM {busy}; {runs} run, {waits} wait",
    )
    if seen.fault:
        yield Text(f"colocd does not answer: {render.plain(seen.fault)}", style="red")
    elif view.held:
        yield Text("held: p goes on", style="yellow")
    else:
        whose = "everybody's jobs" if view.everybody else "your jobs"
        hidden = ", PrivateData=jobs hides others'" if seen.private else ""
        yield Text(f"sorted by {view.sort}, {whose}{hidden}", style="dim")


def _foot(view: View, width: int) -> Text:
    keys = "q end  s sort  u users  w waiting  p hold  h keys"
    place = f"  line {view.first + 1}" if view.first else ""
    return Text(set_cell_size(keys + place, width), style="reverse")


def _body(seen: Known, view: View, width: int) -> Iterator[Text]:
    on = _by_gpu(seen.runs)
    label = max((len(_label(gpu)) for gpu in seen.gpus), default=0)
    label = min(label, 32 if width >= 110 else 12)
    for gpu in sorted(seen.gpus, key=lambda one: _rank(one, view.sort)):
        yield _gpu(gpu, width, label)
        shown: set[int] = set()
        for run in sorted(on.get(gpu["uuid"], ()), key=order_of):
            held = {one["job_id"]: one["mib"] for one in gpu["jobs"] or ()}
            shown.add(run["job_id"])
            yield _job(run, held.get(run["job_id"]), width)
        others = [one for one in gpu["jobs"] or () if one["job_id"] not in shown]
        if others and view.everybody:
            listed = ", ".join(f"{render.job(one)}: {render.gib(one['mib'])}" for one in others)
            yield Text(f"    other jobs (GiB): {listed}", style="dim")
        if gpu["foreign_mib"]:
            yield Text(f"    of no job: {render.gib(gpu['foreign_mib'])} GiB", style="yellow")
    for node, why in sorted(seen.silent.items()):
        yield Text(f"{render.plain(node)}: {render.plain(why)}", style="yellow")
    seen_on = {gpu["uuid"] for gpu in seen.gpus}
    elsewhere = [
        run
        for run in seen.runs
        if run["state"] != "PENDING" and seen_on.isdisjoint(run["gpu_uuids"] or ())
    ]
    if elsewhere:
        yield Text("on GPUs without figures", style="bold")
        for run in sorted(elsewhere, key=order_of):
            yield _job(run, None, width)
    if not seen.gpus and not seen.silent and seen.at_s:
        yield Text("no agent has told of GPUs yet: coloc doctor says what is missing")
    waits = [run for run in seen.runs if run["state"] == "PENDING"]
    if view.waiting and waits:
        yield Text()
        yield Text(f"{len(waits)} waiting", style="bold")
        for run in sorted(waits, key=order_of):
            yield _waiting(run, width)


def _by_gpu(runs: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for run in runs:
        for uuid in run["gpu_uuids"] or () if run["state"] != "PENDING" else ():
            found.setdefault(uuid, []).append(run)
    return found


def _rank(gpu: Row, sort: str) -> tuple[float, str, int]:
    used = (gpu["total_mib"] - gpu["free_mib"]) / max(1, gpu["total_mib"])
    first = {"memory": -used, "activity": -(gpu["smact"] or 0.0)}.get(sort, 0.0)
    return first, gpu["node"], gpu.get("index") or 0


def _label(gpu: Row) -> str:
    return f"{render.plain(gpu['node'])}:{gpu.get('index') or 0}"


def _gpu(gpu: Row, width: int, label: int) -> Text:
    used, total = gpu["total_mib"] - gpu["free_mib"], max(1, gpu["total_mib"])
    bar = BAR if width >= 110 else 10
    line = Text(_label(gpu).ljust(label), style="bold")
    line.append("  mem ", style="default")
    line.append_text(_bar(used / total, bar, FULL))
    line.append(f" {render.gib(used):>4}/{render.gib(total)}", style="default")
    line.append("  SM ", style="default")
    if gpu["smact"] is None:
        line.append("not measured", style="dim")
    else:
        line.append_text(_bar(gpu["smact"], bar, BUSY))
        line.append(f" {gpu['smact']:4.0%}", style="default")
    if gpu["power_w"] is not None:
        line.append(f"  {gpu['power_w']:.0f} W", style="default")
    if width >= 110:
        if gpu["dram"] is not None:
            line.append(f"  DRAM {gpu['dram']:.0%}", style="default")
        line.append(f"  {render.plain(gpu['name'])}", style="dim")
    return line


def _bar(ratio: float, size: int, full: float) -> Text:
    filled = round(max(0.0, min(1.0, ratio)) * size)
    made = Text("[", style="default")
    made.append("|" * filled, style="red" if ratio > full else "green")
    made.append(" " * (size - filled) + "]", style="default")
    return made


def _job(run: Row, held_mib: int | None, width: int) -> Text:
    held = f" holds {render.gib(held_mib)}" if held_mib is not None else ""
    who = f"{name_of(run):>9} {_name(render.user_name(run['uid']), 8)} "
    size = 20 if width >= 110 else 12
    line = Text(f"    {who}{_name(run['name'] or render.NONE, size)} {share_of(run)}{held}")
    wide = width >= ROOMY
    peak = f", peak {render.gib(run['peak_mib'])}" if run["peak_mib"] and wide else ""
    line.append(peak)
    # What is wrong stands before what is cut first on a narrow terminal.
    if run.get("overrun"):
        line.append("  holds more than its share" if wide else "  over its share", style="red")
    elif run.get("idle_since_s") is not None:
        line.append(f"  idle {render.ago(run['idle_since_s'])}", style="yellow")
    elif run["state"] != "RUNNING":
        line.append(f"  {render.plain(state_of(run))}", style="dim")
    line.append(f"  {age_of(run)}")
    if left := render.left(run):
        line.append(f", {left} left")
    if (speed := run.get("speed")) is not None and speed < SLOWER:
        line.append(f", ~{speed:.0%} as fast as alone" if wide else f", ~{speed:.0%} fast")
    return line


def _waiting(run: Row, width: int) -> Text:
    who = f"{name_of(run):>9} {_name(render.user_name(run['uid']), 8)} "
    size = 20 if width >= 110 else 12
    line = Text(
        f"    {who}{_name(run['name'] or render.NONE, size)} {share_of(run)}  {age_of(run)}"
    )
    if why := why_of(run):
        line.append(f"  {render.plain(why)}", style="dim")
    return line


def _name(text: str, size: int) -> str:
    text = render.plain(text)
    return set_cell_size(text, size)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line
