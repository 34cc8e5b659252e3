# SPDX-License-Identifier: Apache-2.0
"""The pages of `coloc report` from a real Slurm, and the page of 10,000 runs in a real browser."""

import json
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_coloc.cli.report.cluster import cluster_page
from slurm_coloc.core.report.cluster import report
from slurm_coloc.core.report.past import PastRun
from slurm_coloc.flow.client.request import call_socket
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, until

RUNS = 10_000


def test_two_users_ask_for_pages(make_lab: Callable[..., Lab]) -> None:
    """Root sees all; a user sees his own, and writes where he may. A lab without other runs."""
    lab = make_lab()
    jobs = []
    for number in (1, 2):
        me = desk(lab, 330 + number, user=number)
        jobs.append(me.submit("--mem=50", wrap=me.train(memory_mib=2000, smact=0.2, work_s=12)))
    ada, ben = lab.users[1], lab.users[2]
    for job_id in jobs:
        lab.wait(job_id, "COMPLETED", 60)
    until(
        lambda: "2 runs of --coloc jobs of all users" in lab.run(
            ["coloc", "report", "--cluster", "--since", "1h"]
        ).stdout,
        60,
        "both ends are in the page",
    )  # fmt: skip
    page = lab.run(["coloc", "report", "--cluster"]).stdout
    assert ada in page
    assert ben in page
    mine = lab.run(["coloc", "report", "--cluster"], user=ada).stdout
    assert f"1 runs of --coloc jobs of {ada}" in mine
    assert ben not in mine
    file = lab.home(ada) / "page.html"
    told = lab.run(["coloc", "report", str(jobs[0]), "--html", "-o", str(file)], user=ada)
    assert told.stdout.startswith(f"{file}: ") and " kB" in told.stdout
    text = file.read_text("utf-8")
    assert f"<title>Job {jobs[0]}</title>" in text
    assert "GPU memory" in text
    denied = lab.run(["coloc", "report", str(jobs[0]), "--html"], user=ben, check=False)
    assert denied.returncode == 1
    wrong = lab.run(["coloc", "report", "--cluster", "-o", "/none/page.html"], check=False)
    assert wrong.returncode == 2
    assert "/none/page.html: No such file" in wrong.stderr


def test_what_a_user_is_advised(make_lab: Callable[..., Lab]) -> None:
    """In the default configuration: of his own whole-GPU job without --coloc, nobody else's."""
    lab = make_lab(mode="observe")
    ada, ben = lab.users[1], lab.users[2]
    train = desk(lab, user=1).train(memory_mib=6000, smact=0.2, work_s=120)
    job_id = lab.sbatch("--gpus=1", "--mem=50", wrap=train, user=ada)
    lab.wait(job_id, "RUNNING", 60)
    path = lab.dir / "coloc" / "colocd.sock"
    until(
        lambda: any(
            one["job_id"] == job_id and one["uid"] is not None
            for one in call_socket(path, "observed", days=1)["jobs"]
        ),
        90,
        "the agent has measured it and Slurm has said whose it is",
    )
    told = lab.run(["coloc", "advise"], user=ada).stdout
    assert "1 jobs had whole GPUs" in told
    assert "1 of them would share" in told
    assert "no job of yours" in lab.run(["coloc", "advise"], user=ben).stdout


def many() -> list[PastRun]:
    """Runs of a month on 96 GPUs, by a fixed seed."""
    draw, now_s, found = random.Random(1), 1_795_800_000.0, []
    for number in range(RUNS):
        start_s = now_s - draw.random() * 30 * 86400
        estimate = int(2 ** draw.uniform(10, 15))
        shared = draw.random() < 0.8
        [outcome] = draw.choices(["completed", "failed", "oom-gpu", "cancelled"], [85, 8, 3, 4])
        found.append(
            PastRun(
                number + 1, 1000 + draw.randrange(40), draw.choice(["ml", "bio", "physics", None]),
                draw.choice(["gpu", "small"]), shared, outcome,
                draw.choice(["self", "neighbour", "unknown"]) if outcome == "oom-gpu" else None,
                "none", start_s - draw.expovariate(1 / 600), start_s,
                start_s + draw.expovariate(1 / 7200) + 60, (f"GPU-{draw.randrange(96):036d}",),
                int(estimate * draw.lognormvariate(-0.05, 0.1)) if draw.random() < 0.9 else None,
                estimate, int(estimate * 1.2), int(estimate * 1.3) if shared else 0,
                draw.random() if draw.random() < 0.95 else None,
                draw.choice(["mps", "streams"]) if shared else "alone", draw.random() < 0.01,
            )
        )  # fmt: skip
    return found


@pytest.mark.long
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_opens_the_page_of_10000_runs(tmp_path: Path, width: int) -> None:
    """Under 3 MB, without a word on the console, and no wider than a phone; its time is printed."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium here: apt install chromium")
    text = cluster_page(report(many()), 1_793_200_000.0, 1_795_800_000.0, whose="all", more=False)
    assert len(text.encode()) < 3e6
    file, picture = tmp_path / "page.html", tmp_path / "page.png"
    # The page itself tells how wide it became.
    probe = "<script>document.title += ' w=' + document.documentElement.scrollWidth</script>"
    file.write_text(text.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    began = time.monotonic()
    done = subprocess.run(
        [*words, f"--window-size={width},900", "--dump-dom", f"file://{file}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    took_s = time.monotonic() - began
    assert done.returncode == 0, done.stderr[-2000:]
    assert "10,000" in done.stdout
    assert "CONSOLE" not in done.stderr
    wide = re.search(r"<title>[^<]* w=(\d+)", done.stdout)
    assert wide
    # Headless Chromium's windows are 500 pixels wide at least.
    assert int(wide[1]) <= max(width, 500)
    print(json.dumps({"width": width, "bytes": len(text), "s with the browser's start": took_s}))
    subprocess.run(
        [*words, f"--window-size={width},5000", f"--screenshot={picture}", f"file://{file}"],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    assert picture.stat().st_size > 10_000
