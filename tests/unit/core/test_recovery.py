# SPDX-License-Identifier: Apache-2.0
"""Outcome, and the steps of a recovery from wherever the job stands."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.recover.outcome import Outcome, ended_for_overrun, outcome_of
from slurm_coloc.core.recover.recovery import Goal, Step, next_step, same_gres
from slurm_coloc.core.slurm.job import REQUEUED_HELD, JobView

GOAL = Goal(restart=0, tres="gres/gpu:1")
FAILED = JobView(7, "FAILED", restarts=0, tres_per_node="gres/shard:12", priority=10)


@pytest.mark.parametrize(
    ("state", "oom", "outcome"),
    [
        ("FAILED", True, Outcome.OOM_GPU),
        ("FAILED", False, Outcome.FAILED),
        ("COMPLETED", True, Outcome.COMPLETED),
        ("OUT_OF_MEMORY", True, Outcome.OOM_HOST),
        ("CANCELLED", True, Outcome.CANCELLED),
        ("TIMEOUT", True, Outcome.TIMEOUT),
        ("PREEMPTED", True, Outcome.PREEMPTED),
        ("NODE_FAIL", True, Outcome.NODE_FAIL),
    ],
)
def test_only_a_failed_job_with_evidence_ran_out_of_gpu_memory(
    state: str, oom: bool, outcome: Outcome
) -> None:
    assert outcome_of(JobView(1, state), oom=oom) is outcome


def act(view: JobView, step: Step) -> tuple[JobView, bool]:
    """What Slurm shows after a step, as tried on real releases; and whether it was the raise."""
    if step is Step.REQUEUE_HOLD:
        return replace(view, state="PENDING", restarts=view.restarts + 1, priority=0), False
    if step is Step.SET_GRES:
        return replace(view, tres_per_node="gres/gpu:1"), False
    if step is Step.RELEASE:
        return replace(view, priority=10), False
    return view, True


def test_the_steps_in_their_order() -> None:
    view, goal, steps = FAILED, GOAL, []
    while (step := next_step(view, goal)) not in (Step.DONE, Step.LOST, Step.WAIT):
        steps.append(step)
        view, raised = act(view, step)
        goal = replace(goal, raised=goal.raised or raised)
    assert steps == [Step.REQUEUE_HOLD, Step.SET_GRES, Step.RELEASE, Step.RAISE]
    assert next_step(view, goal) is Step.DONE


def test_a_node_is_avoided_before_the_hold_ends() -> None:
    back = replace(FAILED, state="PENDING", restarts=1, priority=0, tres_per_node="gres/gpu:1")
    avoids = replace(GOAL, avoid=True)
    assert next_step(replace(back, tres_per_node="gres/shard:12"), avoids) is Step.SET_GRES
    assert next_step(back, avoids) is Step.EXCLUDE
    assert next_step(back, GOAL) is Step.RELEASE
    assert next_step(replace(back, state="RUNNING"), avoids) is Step.DONE
    assert next_step(back, replace(avoids, ours=False)) is Step.DONE, "its owner put it back"


def test_the_hold_of_an_expedited_requeue_is_ended() -> None:
    """Slurm put it back and holds it (--requeue=expedite): nobody else would release it."""
    asks = replace(FAILED, state="PENDING", restarts=1, priority=0, reason=REQUEUED_HELD)
    back = replace(asks, tres_per_node="gres/gpu:1")
    theirs = replace(GOAL, ours=False)
    assert next_step(replace(asks, requeue_hold=True), theirs) is Step.SET_GRES
    assert next_step(replace(back, requeue_hold=True), theirs) is Step.RELEASE
    assert next_step(back, theirs) is Step.DONE, "somebody's scontrol requeuehold"


def test_a_completing_job_is_waited_for() -> None:
    assert next_step(replace(FAILED, state="COMPLETING", completing=True), GOAL) is Step.WAIT


def test_a_job_that_failed_is_put_back_while_it_is_completing() -> None:
    completing = replace(FAILED, completing=True)
    assert next_step(completing, GOAL) is Step.REQUEUE_HOLD
    back = replace(completing, state="PENDING", restarts=1, priority=0)
    assert next_step(back, GOAL) is Step.WAIT


def test_a_slurmctld_that_forgot_the_end_is_waited_for() -> None:
    assert next_step(replace(FAILED, state="RUNNING"), GOAL) is Step.WAIT
    assert next_step(replace(FAILED, state="COMPLETED"), GOAL) is Step.LOST


def test_a_job_that_its_owner_put_back_keeps_his_hold() -> None:
    theirs = replace(GOAL, ours=False)
    back = replace(FAILED, state="PENDING", restarts=1, priority=0)
    assert next_step(back, theirs) is Step.SET_GRES
    assert next_step(replace(back, tres_per_node="gres/gpu:1"), theirs) is Step.DONE
    assert next_step(replace(back, tres_per_node="gres/gpu:1"), GOAL) is Step.RELEASE
    assert next_step(replace(back, state="CANCELLED"), GOAL) is Step.LOST


def test_others_acts_are_respected() -> None:
    assert next_step(replace(FAILED, state="CANCELLED"), GOAL) is Step.LOST
    assert next_step(replace(FAILED, state="RUNNING", restarts=1), GOAL) is Step.DONE
    assert next_step(replace(FAILED, state="FAILED", restarts=1), GOAL) is Step.DONE
    assert next_step(replace(FAILED, state="PENDING", restarts=3), GOAL) is Step.DONE


@given(
    state=st.sampled_from(["PENDING", "RUNNING", "FAILED", "COMPLETED", "CANCELLED", "COMPLETING"]),
    restarts=st.integers(0, 4),
    goal_restart=st.integers(0, 3),
    priority=st.sampled_from([0, 10]),
    tres=st.sampled_from(["gres/shard:12", "gres:gpu:1", "gres/gpu:1"]),
    raised=st.booleans(),
    avoid=st.booleans(),
)
def test_a_job_is_never_requeued_for_another_run_than_the_one_that_failed(
    state: str,
    restarts: int,
    goal_restart: int,
    priority: int,
    tres: str,
    raised: bool,
    avoid: bool,
) -> None:
    view = JobView(7, state, restarts, priority=priority, tres_per_node=tres)
    view = replace(view, completing=state == "COMPLETING")
    step = next_step(view, Goal(goal_restart, "gres/gpu:1", raised, avoid=avoid))
    if step is Step.REQUEUE_HOLD:
        assert (state, restarts) == ("FAILED", goal_restart)
    if step in (Step.SET_GRES, Step.EXCLUDE, Step.RELEASE, Step.RAISE):
        assert (state, restarts) == ("PENDING", goal_restart + 1)


def test_a_killed_job_did_not_run_out_of_gpu_memory() -> None:
    assert outcome_of(JobView(1, "FAILED", signal=9), oom=True) is Outcome.FAILED
    assert outcome_of(JobView(1, "FAILED", exit_code=137), oom=True) is Outcome.FAILED
    # By the agent, whatever the signal; what Slurm itself says goes before.
    for signal in (0, 9, 15):
        view = JobView(1, "FAILED", signal=signal)
        assert outcome_of(view, oom=True, overrun=True) is Outcome.OVERRUN
    assert outcome_of(JobView(1, "COMPLETED"), oom=True, overrun=True) is Outcome.COMPLETED


def test_an_end_by_the_agent_is_one_shortly_before_the_runs_own() -> None:
    def event(at_s: float, **more: str) -> dict[str, object]:
        return {"at_s": at_s, "kind": "overrun", "state": "ended", "text": "why", **more}

    assert ended_for_overrun([event(95)], 100.0) == "why"
    assert ended_for_overrun([event(5)], 100.0) == "", "it went on without those processes"
    assert ended_for_overrun([event(95, state="begun")], 100.0) == ""
    assert ended_for_overrun([event(95, kind="idle")], 100.0) == ""
    assert ended_for_overrun([{"at_s": 99.0, "kind": "xid", "text": "x"}], 100.0) == ""


def test_spelling_of_gres_does_not_matter() -> None:
    assert same_gres("gres:gpu:1", "gres/gpu:1")
    assert same_gres("gpu:a100:1,lustre:1", "gres/lustre:1,gres/gpu:a100:1")
    assert not same_gres("gres/shard:1", "gres/gpu:1")
