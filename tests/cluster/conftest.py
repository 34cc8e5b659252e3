# SPDX-License-Identifier: Apache-2.0
"""Labs for the tests on real Slurm daemons.

``lab`` is one lab for the whole run (mode on, one node, two A100-40GB, three users), emptied after
each test. ``lab_like`` lends the tests of a file a lab of given fields, emptied too; ``make_lab``
gives a test one of its own. A failed test shows its labs' logs. Tests that a release cannot pass
carry ``@pytest.mark.needs_slurm("24.11", "why")``. A release older than 23.11 gets a smoke test:
there only tests marked ``smoke`` run (``--all-releases``: all).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import parts
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.cluster.lending import Library
from tests.harness import built
from tests.harness.selection import leave_out

HERE = Path(__file__).parent
LABS = pytest.StashKey[list[Lab]]()
FAILED = pytest.StashKey[bool]()  # of a test in this try
# The project is built for 24.11; what is older than the first sound release gets a smoke test.
FULL_RELEASE = (23, 11)
# A busy machine may need longer than the 200 ms that a submission may wait elsewhere, and a job
# whose estimate came late has a whole GPU. The tests that judge the limit itself are in tests/unit.
PATIENT_MS = 3000
PREFIX = f"t{os.getpid()}"  # several test runs side by side do not meet


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs_slurm(release, why): skipped where the installed Slurm is older"
    )
    config.stash[LABS] = []


def why_not() -> str | None:
    """Why no lab can be brought up here; None when one can."""
    if os.geteuid() != 0:
        return "a lab needs root"
    try:
        parts.find_programs()
    except SlurmError as err:
        return err.message
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    reason = why_not() if here else None
    found = parts.find_programs() if here and reason is None else None
    for item in here:
        item.add_marker(pytest.mark.cluster)
        if found is None:
            item.add_marker(pytest.mark.skip(reason=reason or "no Slurm"))
            continue
        for mark in item.iter_markers("needs_slurm"):
            release = tuple(int(part) for part in mark.args[0].split("."))
            if found.release < release:
                why = f"Slurm {found.version} is older than {mark.args[0]}: {mark.args[1]}"
                item.add_marker(pytest.mark.skip(reason=why))
    if found is not None and found.release < FULL_RELEASE and not config.getoption("all_releases"):
        why = f"are beyond the smoke test that Slurm {found.version} gets (--all-releases)"
        leave_out(config, items, beyond_smoke, why)


def beyond_smoke(item: pytest.Item) -> bool:
    """Whether this cluster test is left out on a release that gets a smoke test."""
    return HERE in item.path.parents and item.get_closest_marker("smoke") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.stash[FAILED] = True
    if report.failed and HERE in item.path.parents:  # type: ignore[attr-defined]
        for lab in item.config.stash[LABS]:
            if lab.dir.exists():
                report.sections.append((f"lab {lab.spec.name}", lab.logs()))  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="session")
def slurm_version() -> tuple[int, int]:
    """The installed release as (major, minor)."""
    return parts.find_programs().release


@pytest.fixture(scope="session", autouse=True)
def labs_built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Labs start from one build of emulator and plugin."""
    if why_not() is not None:
        yield
        return
    into = built.folder(tmp_path_factory)
    for where in (built.EMULATOR, built.SPANK):
        built.built(where, into)
    os.environ[parts.BUILT] = str(into)
    yield
    del os.environ[parts.BUILT]


@contextmanager
def lab_of(request: pytest.FixtureRequest, spec: LabSpec) -> Iterator[Lab]:
    """A lab for several tests: its logs are shown with one that fails."""
    lab = Lab.up(spec)
    request.config.stash[LABS].append(lab)
    yield lab
    request.config.stash[LABS].remove(lab)
    lab.down()


@pytest.fixture(scope="session")
def shared_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab behind ``lab``."""
    with lab_of(request, LabSpec(name=PREFIX, deadline_ms=PATIENT_MS)) as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    """One lab for the whole run; its jobs are ended after each test."""
    yield shared_lab
    shared_lab.clear()


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    """The labs behind ``lab_like``."""
    stash = request.config.stash[LABS]

    def up(spec: LabSpec) -> Lab:
        lab = Lab.up(spec)
        stash.append(lab)
        return lab

    def down(lab: Lab) -> None:
        stash.remove(lab)
        lab.down()

    found = Library(up, down)
    yield found
    found.close()


@pytest.fixture
def lab_like(request: pytest.FixtureRequest, library: Library) -> Iterator[Callable[..., Lab]]:
    """A function like ``make_lab`` that lends the lab of an earlier test of this file, emptied, if
    its fields are the same. For tests that leave daemons and files as they found them."""

    def lend(**wish: object) -> Lab:
        wish = {"name": f"{PREFIX}m{library.made}", "deadline_ms": PATIENT_MS} | wish
        return library.lend(LabSpec(**wish), request.path)  # type: ignore[arg-type]

    yield lend
    library.take_back(fit=not request.node.stash.get(FAILED, False))


@pytest.fixture
def make_lab(request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """A function that brings a lab up by the fields of LabSpec; all go down after the test."""
    stash = request.config.stash[LABS]
    own: list[Lab] = []

    def make(**wish: object) -> Lab:
        wish = {"name": f"{PREFIX}x{len(own)}", "deadline_ms": PATIENT_MS} | wish
        lab = Lab.up(LabSpec(**wish))  # type: ignore[arg-type]
        own.append(lab)
        stash.append(lab)
        return lab

    yield make
    for lab in own:
        stash.remove(lab)
        lab.down()
