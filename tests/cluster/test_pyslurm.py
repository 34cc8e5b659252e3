# SPDX-License-Identifier: Apache-2.0
"""The real pyslurm of the Slurm that runs here: it sees and does what the commands do, and the main
job goes through it. Where no wheel of it is at hand these tests are skipped."""

import asyncio
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_coloc.adapters.slurm.bindings import SlurmBindings
from slurm_coloc.adapters.slurm.commands import SlurmCommands
from slurm_coloc.core.slurm.binding import Need, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeWeight
from slurm_coloc.core.slurm.controller import Controller
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.lab import parts
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.runtime import CHECKOUT
from tests.cluster.conftest import PREFIX, lab_of
from tests.cluster.jobs import desk, train, until
from tests.contract import record
from tests.contract.cases import Cases

Make = Callable[..., Lab]
#: COLOC_PYSLURM names the folder of wheels; else it is looked for beside the checkout
FOLDER = Path(os.environ.get("COLOC_PYSLURM", CHECKOUT.parent / "shared" / "vendor"))
UNKNOWN = 99999  # no job has this id
SAME = (
    "state", "tres", "uid", "partition", "restarts", "nodes", "admin_comment", "exit_code",
    "submit_s", "requeue", "batch", "array_task", "held",
)  # fmt: skip
CLIENTS = """
import asyncio, json
from slurm_coloc.adapters.slurm.bindings import SlurmBindings
from slurm_coloc.adapters.slurm.commands import SlurmCommands

async def main():
    slow, fast = SlurmCommands(30), SlurmBindings(30, forced=True)
    try:
        BODY
    finally:
        await fast._child.close()

asyncio.run(main())
"""


def wheel() -> Path | None:
    """pyslurm's wheel for this Slurm and this Python."""
    try:
        major, minor = parts.find_programs().release
    except Exception:
        return None
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return next(iter(sorted(FOLDER.glob(f"pyslurm-{major}.{minor}.*-{tag}-*.whl"))), None)


pytestmark = [
    pytest.mark.skipif(wheel() is None, reason=f"no wheel of pyslurm for this Slurm in {FOLDER}"),
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Path]:
    """A folder with pyslurm, which every account can read."""
    folder = Path(tempfile.mkdtemp(prefix="coloc-pyslurm-", dir="/tmp"))
    folder.chmod(0o755)
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    subprocess.run([*words, str(wheel())], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def lab(make_lab: Make) -> Iterator[Lab]:
    yield make_lab()


def clients(lab: Lab, site: Path, body: str) -> Any:
    """What a program with both clients prints."""
    text = CLIENTS.replace("BODY", body.strip())
    env = {**os.environ, **lab.env, "PYTHONPATH": f"{site}:{CHECKOUT}"}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@dataclass
class Live:
    """A client's answers about the jobs of tests/contract/record.py, in a cluster that runs."""

    ids: dict[str, int]
    lab: str
    release: str
    views: list[JobView] = field(default_factory=list)
    one_by_one: dict[int, JobView | None] = field(default_factory=dict)
    needs: dict[int, Need] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    each_task: bool = True
    host: str = socket.gethostname().split(".")[0]

    async def ask(self, client: SlurmCommands, uid: int) -> None:
        self.views = await client.jobs_of([uid])
        for job_id in (*self.ids.values(), UNKNOWN):
            self.one_by_one[job_id] = await client.job(job_id)
            need = await client.need(job_id)
            if need is not None:
                self.needs[job_id] = replace(need, req_nodes="")  # not in the recorded columns
        for name in ("usage", "shape", "node_weights", "config", "controllers"):
            self.told[name] = await getattr(client, name)()

    def id_of(self, name: str) -> int:
        return self.ids[name]

    def jobs(self) -> list[JobView]:
        return self.views

    def job(self, name: str) -> JobView:
        return next(view for view in self.views if view.job_id == self.ids[name])

    def need(self, name: str) -> Need:
        return self.needs[self.ids[name]]

    def usage(self) -> Sequence[NodeUse]:
        return cast("Sequence[NodeUse]", self.told["usage"])

    def shape(self) -> ClusterShape:
        return cast("ClusterShape", self.told["shape"])

    def weights(self) -> Sequence[NodeWeight]:
        return cast("Sequence[NodeWeight]", self.told["node_weights"])

    def config(self) -> Mapping[str, str]:
        return cast("Mapping[str, str]", self.told["config"])

    def controllers(self) -> list[Controller]:
        return cast("list[Controller]", self.told["controllers"])


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest, site: Path) -> Iterator[dict[str, Live]]:
    """What both clients told of the same jobs in the same moment."""
    name = f"{PREFIX}both"
    with lab_of(request, record.spec(name)) as lab, pytest.MonkeyPatch.context() as patch:
        ids = record.situation(lab, lab.users[0])
        for key, value in (lab.env | {"PYTHONPATH": str(site)}).items():
            patch.setenv(key, value)
        release = ".".join(map(str, lab.release))
        found = {client: Live(ids, name, release) for client in ("commands", "pyslurm")}

        async def ask() -> None:
            uid = pwd.getpwnam(lab.users[0]).pw_uid
            await found["commands"].ask(SlurmCommands(30), uid)
            fast = SlurmBindings(30, forced=True)
            try:
                await found["pyslurm"].ask(fast, uid)
                assert not fast._beyond, "pyslurm itself told what it is asked for"
            finally:
                await fast._child.close()

        asyncio.run(ask())
        yield found


def fields(view: JobView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in SAME}


class TestContract(Cases):
    """All of tests/contract/cases.py, asked of both."""

    @pytest.fixture(params=["commands", "pyslurm"])
    def asked(self, answers: dict[str, Live], request: pytest.FixtureRequest) -> Live:
        return answers[request.param]

    def test_one_job(self, asked: Live) -> None:
        """By its id it is the same as among all of its user's."""
        for name, job_id in asked.ids.items():
            found = asked.one_by_one[job_id]
            assert found is not None and found.job_id == job_id, name
            if name != "array":  # an id that several tasks share
                assert fields(found) == fields(asked.job(name)), name

    def test_an_unknown_job(self, asked: Live) -> None:
        assert asked.one_by_one[UNKNOWN] is None
        assert UNKNOWN not in asked.needs

    @pytest.mark.parametrize("field_of_a_job", SAME)
    def test_both_tell_the_same(self, answers: dict[str, Live], field_of_a_job: str) -> None:
        told = [
            {one.handle: fields(one)[field_of_a_job] for one in live.views}
            for live in answers.values()
        ]
        assert told[0] == told[1] and len(told[0]) > len(next(iter(answers.values())).ids)


@pytest.mark.parametrize("client", ["slow", "fast"], ids=["commands", "pyslurm"])
def test_orders(lab: Lab, site: Path, client: str) -> None:
    job = desk(lab, 300).submit("--gpus=1", "--begin=now+2hours", wrap="sleep 30")
    body = f"""
        await {client}.update("{job}", Priority=4242)
        await {client}.set_gres("{job}", "gres/gpu:1")
        print(json.dumps("done"))
"""
    assert clients(lab, site, body) == "done"
    shown = lab.job(job)
    assert shown["Priority"] == "4242" and "gpu:1" in shown["TresPerNode"].replace("=", ":")
    clients(lab, site, f'await {client}.hold("{job}"); print(json.dumps(0))')
    assert lab.job(job)["Priority"] == "0"
    clients(lab, site, f'await {client}.release("{job}"); print(json.dumps(0))')
    clients(lab, site, f'await {client}.update("{job}", StartTime="now"); print(json.dumps(0))')
    until(lambda: lab.job(job)["JobState"] == "RUNNING", 30, "it runs")
    clients(lab, site, f'await {client}.requeue_hold("{job}"); print(json.dumps(0))')
    until(lambda: lab.job(job)["Restarts"] == "1", 30, "it was put back")


def test_the_main_job(lab: Lab, site: Path) -> None:
    """An out-of-memory, found and put back through pyslurm."""
    program = lab.dir / "bin" / "coloc"
    program.write_text(program.read_text().replace('PYTHONPATH="', f'PYTHONPATH="{site}:'))
    lab.restart("colocd")
    me = desk(lab, 300)
    job = me.submit("--gpus=1", wrap=train(lab, memory_mib=9900, smact=0.2, work_s=3))
    until(
        lambda: [run["outcome"] for run in me.explain(job)["runs"]] == ["oom-gpu", "completed"],
        120,
        "it ran out of memory and came back",
    )
    log = lab.log_file("colocd", ".out").read_text()
    assert "event=pyslurm" in log and "result=used" in log, log[-2000:]
    assert "the commands are used" not in log, log[-2000:]
