# SPDX-License-Identifier: Apache-2.0
"""The driver's errors (Xids) as the agent notes them, on emulated GPUs."""

import os
import time
from collections.abc import Callable

import pytest

from .agents import Agent, train

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the agent keeps records as root")


def listening(agent: Agent) -> None:
    log = agent.node.folder / "agent.log"
    agent.until(lambda: "event=xid result=" in log.read_text(), "it waits for Xids")


def xid(agent: Agent, where: object, number: int) -> None:
    agent.node.tool("coloc-emu", "xid", agent.node.ledger, where, number)


def training(agent: Agent) -> None:
    """Job 7 trains on the first GPU, and the agent waits for Xids."""
    agent.start()
    agent.job(7)
    train(agent, 7, 2000, 0.3)
    agent.sees(7, 2000)
    listening(agent)


def test_xids_of_a_shared_gpu(make_agent: Callable[..., Agent]) -> None:
    """A client's fatal exception ends all clients beside it, and is another's business elsewhere;
    what the hardware reports is hardware's, once however often it comes."""
    agent = make_agent()
    agent.start()
    for job_id in (7, 8):
        agent.job(job_id)
        train(agent, job_id, 2000, 0.3)
    uuid = agent.job(9, gpu=1)
    train(agent, 9, 1000, 0.1, CUDA_VISIBLE_DEVICES="1")
    for job_id, mib in ((7, 2000), (8, 2000), (9, 1000)):
        agent.sees(job_id, mib)
    listening(agent)
    xid(agent, 0, 31)
    agent.until(lambda: agent.events(7) == agent.events(8) == [("mps-fault", "Xid 31")], "both")
    xid(agent, uuid, 13)
    for _ in range(30):
        xid(agent, uuid, 94)
    both = [("xid", "Xid 13"), ("xid", "Xid 94")]
    agent.until(lambda: agent.events(9) == both, "alone it is its own")
    assert len(agent.events(7)) == 1


def test_an_xid_comes_at_once(make_agent: Callable[..., Agent]) -> None:
    """It is there before the Epilog of a run that dies of it can ask: not a second later."""
    agent = make_agent("1xa100-40gb")
    training(agent)
    took = []
    for number in range(300, 306):
        before = time.monotonic()
        xid(agent, 0, number)
        agent.until(lambda number=number: ("xid", f"Xid {number}") in agent.events(7), "noted")
        took.append(time.monotonic() - before)
    assert min(took) < 0.5, took


def test_an_xid_in_the_first_second_of_a_run(make_agent: Callable[..., Agent]) -> None:
    """The job came since the last sample; its record begins with the driver's word."""
    agent = make_agent("1xa100-40gb")
    training(agent)
    for job_id in range(8, 14):
        agent.job(job_id)
        xid(agent, 0, 31)
        agent.until(lambda job_id=job_id: agent.events(job_id), "noted")


def test_a_gpu_off_the_bus(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent()
    training(agent)
    agent.node.fault(0, "lost")
    agent.until(lambda: ("gpu-lost", "Xid 79") in agent.events(7), "noted")


def test_xids_of_mig_devices(make_agent: Callable[..., Agent]) -> None:
    """One instance's fault is no other's; one of the whole GPU concerns all of them."""
    agent = make_agent("mig-mixed")
    agent.start()
    uuids = [agent.job(7 + number, gpu=1, mig=number) for number in (2, 3)]
    for job_id, uuid in zip((9, 10), uuids, strict=True):
        train(agent, job_id, 2000, 0.1, CUDA_VISIBLE_DEVICES=uuid)
        agent.sees(job_id, 2000)
    listening(agent)
    xid(agent, uuids[0], 31)
    xid(agent, 1, 94)
    agent.until(lambda: agent.events(9) == [("xid", "Xid 31"), ("xid", "Xid 94")], "both")
    agent.until(lambda: agent.events(10) == [("xid", "Xid 94")], "the GPU's alone")


def test_a_driver_without_events(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent("1xa100-40gb", options=("--no-events",))
    training(agent)
    xid(agent, 0, 31)
    agent.until(
        lambda: "does not report Xids" in agent.record(7)["why"].get("xid", ""), "the reason"
    )
    assert agent.events(7) == []
