# SPDX-License-Identifier: Apache-2.0
"""E10 and S12 on real daemons: texts are estimated before their submission, never while slurmctld
waits; and what of the way of a ticket may be missing, wrong or hostile, costs its own job at most.

Where an estimate came from stands in colocd's log of the decision (estimate=ticket, known, none).
"""

import base64
import json
import re
import secrets
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.lab.client import Done
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import coloc, mlp_summary, own_slurm, until
from tests.cluster.test_spank import environment

LOGGED = re.compile(r"decision=([0-9a-f]{12}) .*?estimate=(\w+)")
SCRIPTS = Path(__file__).parent / "scripts"
HELD = ("--hold", "--gpus=1", "--mem=10", "--wrap=true")


@pytest.fixture
def tag(request: pytest.FixtureRequest) -> str:
    """What makes the texts of a test different from all others'."""
    return f"{request.node.name}-{secrets.token_hex(4)}"


def text_file(lab: Lab, user: str, name: str, millions: int = 300) -> Path:
    """A summary that nobody has sent before: it ends with ``name``."""
    path = lab.home(user) / f"{name}.txt"
    path.write_text(f"{mlp_summary(millions)}{name}\n")
    path.chmod(0o644)
    return path


def submit(lab: Lab, user: str, path: Path, *args: str, **more: Any) -> Done:
    words = ["sbatch", "--parsable", f"--coloc={path}", "--coloc-batch-size=32", *args, *HELD]
    return lab.run(words, user=user, check=False, **more)


def found_by(lab: Lab, done: Done) -> tuple[str, str]:
    """The reason of the decision for a job, and by what its estimate was found."""
    assert done.returncode == 0, done.stderr
    comment = lab.job(int(done.stdout.split()[-1]))["AdminComment"]
    _, _, decision, _, reason, _ = comment.split(":")

    def logged() -> str:
        found = dict(LOGGED.findall(lab.log_file("colocd", ".out").read_text(errors="replace")))
        return found.get(decision, "")

    return reason, until(logged, 20, f"the decision {decision} is in colocd's log")


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_new_texts_share_and_none_is_estimated_while_slurmctld_waits(lab: Lab, tag: str) -> None:
    user = lab.users[0]
    found = []
    for number in range(50):
        path = text_file(lab, user, f"{tag}-{number}")
        found.append(found_by(lab, submit(lab, user, path)))
    assert set(found) == {("fits", "ticket")}, found


@pytest.mark.smoke
def test_every_option_of_an_estimate_is_part_of_its_ticket(lab: Lab, tag: str) -> None:
    """One that the ticket does not have costs the first job of each text its share."""
    user, options = lab.users[0], (
        "--coloc-training=accumulate", "--coloc-precision=amp", "--coloc-optimizer=sgd-momentum",
    )  # fmt: skip
    for number, words in enumerate([*((one,) for one in options), options]):
        path = text_file(lab, user, f"{tag}-{number}")
        assert found_by(lab, submit(lab, user, path, *words)) == ("fits", "ticket"), words


@pytest.mark.smoke
def test_with_a_ticket_no_text_travels(lab: Lab, tag: str) -> None:
    user = lab.users[0]
    path = text_file(lab, user, tag)
    argv = ["salloc", f"--coloc={path}", "--gpus=1", "--mem=10", "env"]
    seen = environment(lab.run(argv, user=user).stdout)
    names = {name for name in seen if name.startswith("SLURM_SPANK_COLOC_")}
    short = {name.removeprefix("SLURM_SPANK_COLOC_") for name in names}
    assert short == {"V", "KIND", "TICKET", "TEXT_SHA256"}, short


def test_each_component_of_a_heterogeneous_job_has_a_ticket(lab: Lab, tag: str) -> None:
    user = lab.users[0]
    path = text_file(lab, user, tag)
    part = f"#SBATCH --coloc={path} --gres=gpu:1 --mem=10\n"
    script = f"#!/bin/bash\n{part}#SBATCH hetjob\n{part}true\n"
    before = len(lab.log_file("colocd", ".out").read_text())
    done = lab.run(["sbatch", "--hold"], user=user, input=script, check=False)
    assert done.returncode == 0 and "not estimated" not in done.stderr, done.stderr

    def by() -> list[str]:
        said = lab.log_file("colocd", ".out").read_text()[before:]
        return [how for _, how in LOGGED.findall(said)]

    until(lambda: len(by()) == 2, 20, "both decisions are in colocd's log")
    assert by() == ["ticket", "ticket"]


@pytest.mark.timeout(180)
def test_from_a_login_node_by_tcp(make_lab: Callable[..., Lab], tag: str) -> None:
    """No Unix socket is there; plugstack.conf names the controllers."""
    lab = make_lab(users=1, network=True)
    user = lab.users[0]
    found = [
        found_by(lab, submit(lab, user, text_file(lab, user, f"{tag}-{number}")))
        for number in range(5)
    ]
    assert set(found) == {("fits", "ticket")}, found


# ---- tickets that are not good --------------------------------------------------------------


def ticket(lab: Lab, user: str, path: Path, batch_size: int = 32) -> str:
    """A ticket for this text, as the user's own program gets one."""
    coloc = {"summary": pack_file(path), "batch_size": str(batch_size)}
    request = json.dumps({"v": 1, "op": "ticket", "coloc": coloc})
    program = f"{lab.dir}/spank/coloc-ticket"
    words = [program, f"--socket={lab.dir}/coloc/colocd.sock", "--deadline-ms=20000"]
    return lab.run(words, user=user, input=request).stdout.strip()


def pack_file(path: Path) -> str:
    """As spank/encode.c packs it: the best compression that there is."""
    return base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()


def with_ticket(lab: Lab, user: str, path: Path, forged: str, *args: str) -> Done:
    """A submission whose plugin believes a program of the user's: it gives this ticket."""
    program = lab.home(user) / "forge"
    program.write_text(f"#!/bin/sh\necho {forged}\n")
    program.chmod(0o755)
    plugin = f"required {lab.dir}/spank/coloc.so socket=/dev/null ticket={program}"
    return submit(lab, user, path, *args, env=own_slurm(lab, user, plugin))


def test_a_forged_ticket_costs_its_own_job_the_share(lab: Lab, tag: str) -> None:
    user = lab.users[0]
    done = with_ticket(lab, user, text_file(lab, user, tag), "0123456789abcdef" * 2)
    assert found_by(lab, done) == ("not-prepared", "none")
    assert "whole GPU: not estimated yet; submitted again it may share" in done.stderr, done.stderr
    told = coloc(lab, "explain", done.stdout.split()[-1], user=user)["decision"]
    assert told["detail"] == "its ticket is not good any more"


def test_a_ticket_is_good_once_and_for_its_user(lab: Lab, tag: str) -> None:
    ada, ben = lab.users[:2]
    path = text_file(lab, ada, tag)
    mine = ticket(lab, ada, path)
    assert len(mine) == 32
    copy = lab.home(ben) / "copy.txt"
    shutil.copyfile(path, copy)
    copy.chmod(0o644)
    assert found_by(lab, with_ticket(lab, ben, copy, mine)) == ("fits", "known")
    assert found_by(lab, with_ticket(lab, ada, path, mine)) == ("fits", "ticket")
    assert found_by(lab, with_ticket(lab, ada, path, mine)) == ("fits", "known")


def test_a_ticket_for_other_options(lab: Lab, tag: str) -> None:
    """Its job has a whole GPU; the next one shares, although no text was sent with either."""
    user = lab.users[0]
    path = text_file(lab, user, tag)
    other = ticket(lab, user, path, batch_size=33)
    assert found_by(lab, with_ticket(lab, user, path, other)) == ("not-prepared", "none")
    until(
        lambda: found_by(lab, with_ticket(lab, user, path, other)) == ("fits", "known"),
        60,
        "the text is estimated with these options",
        each_s=1,
    )


def test_colocd_restarted_between_ticket_and_submission(lab: Lab, tag: str) -> None:
    user = lab.users[0]
    path = text_file(lab, user, tag)
    mine = ticket(lab, user, path)
    lab.restart("colocd")
    until(lambda: ticket(lab, user, text_file(lab, user, f"{tag}-new")), 60, "colocd is back")
    assert found_by(lab, with_ticket(lab, user, path, mine)) == ("not-prepared", "none")
    assert found_by(lab, submit(lab, user, path)) == ("fits", "ticket")


# ---- without a ticket -----------------------------------------------------------------------


def test_without_the_program_the_text_goes_and_is_known_the_next_time(lab: Lab, tag: str) -> None:
    """As with the plugin of an older release, or a login node that reaches no colocd."""
    user = lab.users[0]
    path = text_file(lab, user, tag)
    env = own_slurm(lab, user, f"required {lab.dir}/spank/coloc.so ticket=off")
    done = submit(lab, user, path, env=env)
    assert found_by(lab, done) == ("not-prepared", "none")
    assert "submitted again it may share" in done.stderr, done.stderr
    until(
        lambda: found_by(lab, submit(lab, user, path, env=env)) == ("fits", "known"),
        60,
        "it is estimated in the background",
        each_s=1,
    )


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    subprocess.run(["kill", "-STOP", str(pid)], check=True)
    try:
        yield
    finally:
        subprocess.run(["kill", "-CONT", str(pid)], check=True)


def processes(lab: Lab) -> dict[str, int]:
    """colocd's main process and its front."""
    main = lab.colocd.pid
    children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
    (front,) = [
        int(pid)
        for pid in children
        if b"slurm_coloc.front" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return {"main": main, "front": front}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("which", ["main", "front"])
def test_a_stopped_colocd_costs_the_deadline_and_no_submission(
    make_lab: Callable[..., Lab], tag: str, which: str
) -> None:
    lab = make_lab(users=1, deadline_ms=300)
    user = lab.users[0]
    assert found_by(lab, submit(lab, user, text_file(lab, user, f"{tag}-before")))
    with stopped(processes(lab)[which]):
        done = submit(lab, user, text_file(lab, user, tag))
        assert done.returncode == 0, done.stderr
        job = lab.job(int(done.stdout.split()[-1]))
    reason = {"main": "colocd_slow", "front": "not-prepared"}[which]
    assert f":exclusive:{reason}:" in job["AdminComment"], job


@pytest.fixture
def flood(tmp_path: Path) -> Path:
    """The hostile plugin, built; tests are skipped where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    built = tmp_path / "flood.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, SCRIPTS / "flood.c"], check=True)
    return built


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["COLOC_TICKET", "COLOC_TEXT_SHA256", "COLOC_SUMMARY"])
def test_a_ticket_of_30_mb(lab: Lab, flood: Path, name: str, tag: str) -> None:
    """S12: it counts as not given; the next user's submission goes as ever."""
    ada, ben = lab.users[:2]
    plugin = lab.home(ada) / "flood.so"
    shutil.copyfile(flood, plugin)
    plugin.chmod(0o755)
    env = own_slurm(lab, ada, f"required {plugin} COLOC_V:1 {name}=30000000")
    done = lab.run(["sbatch", "--parsable", *HELD], user=ada, env=env, check=False)
    most = 65536 if name == "COLOC_SUMMARY" else 64
    if done.returncode == 0:  # Slurm itself may refuse so long a message
        assert f"{name} is longer than {most} bytes: ignored" in done.stderr, done.stderr
    assert found_by(lab, submit(lab, ben, text_file(lab, ben, tag))) == ("fits", "ticket")
