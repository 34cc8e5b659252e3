# SPDX-License-Identifier: Apache-2.0
"""coloc leave without Slurm: which step is next, what a share becomes, which lines go."""

from dataclasses import replace

import pytest

from slurm_coloc.admin.leave.conf_edits import node_edits, plain_gres, slurm_conf_edits
from slurm_coloc.admin.leave.plan import (
    Facts,
    Shares,
    State,
    pinned,
    shares_of,
    steps,
    whole_request,
)
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.job import JobView

NODE = NodeShape("n1", ("main",), (), "a100", 2, 78)
SHAPE = ClusterShape("test", (24, 11, 5), (NODE,))
STEERED = ClusterShape("test", (24, 11, 5), (replace(NODE, devices=("a100-0", "a100-1")),))
MIG = ClusterShape("test", (24, 11, 5), (replace(NODE, slices=(("1g.5gb", 2),)),))


def job(job_id: int, state: str = "PENDING", tres: str = "gres/shard:6", **more: object) -> JobView:
    return JobView(job_id, state, priority=5, tres_per_node=tres, **more)  # type: ignore[arg-type]


FACTS = Facts(
    off=True,
    off_file="/etc/slurm-coloc/off",
    work=0,
    shares=Shares(),
    shape=SHAPE,
    in_force=("GresTypes=shard", "78 shards"),
    edits=("GresTypes=gpu,shard  ->  GresTypes=gpu",),
    node_edits=("gres.conf: Name=shard Count=78  ->  (out)", "plugstack.conf: optional coloc.so"),
    linked=("n1",),
    offering=("n1",),
)


def states(facts: Facts) -> dict[str, str]:
    return {step.name: str(step.state) for step in steps(facts)}


def test_jobs_by_what_they_do() -> None:
    views = [
        job(1),
        job(2, reason="JobHeldUser"),
        job(3, completing=True),  # requeued, its last run not over
        job(4, "RUNNING"),
        job(5, "SUSPENDED"),
        job(6, "FAILED", completing=True),
        job(7, "COMPLETED"),
        job(8, tres="gres/gpu:1"),
        job(9, "CONFIGURING"),
        JobView(10, "PENDING", tres_per_task="cpu:1,gres/shard:6"),
    ]
    found = shares_of(views)
    assert [view.job_id for view in found.waiting] == [1, 2, 10]
    assert [view.job_id for view in found.holding] == [3, 4, 5, 6, 9]
    assert [view.job_id for view in found.ended] == [7]


def test_the_order_of_the_steps() -> None:
    waits = Shares(waiting=(job(1),))
    on = states(replace(FACTS, off=False, shares=waits))
    assert (on["switch off"], on["waiting shares"], on["controller"]) == ("next", "waits", "waits")
    off = states(replace(FACTS, shares=waits))
    assert (off["switch off"], off["waiting shares"], off["controller"]) == (
        "done",
        "next",
        "waits",
    )
    runs = states(replace(FACTS, shares=Shares(holding=(job(1, "RUNNING"),))))
    assert (runs["running shares"], runs["controller"]) == ("waits", "waits")
    back = states(replace(FACTS, work=1))
    assert (back["recoveries"], back["controller"]) == ("waits", "waits")
    limits = states(replace(FACTS, limits_set=True))
    assert (limits["limits"], limits["controller"]) == ("by hand", "waits")
    clear = states(FACTS)
    assert (clear["controller"], clear["nodes"]) == ("by hand", "waits")
    assert (clear["login nodes"], clear["colocd"]) == ("waits", "waits")
    nodes = states(replace(FACTS, in_force=()))
    assert (nodes["controller"], nodes["nodes"], nodes["colocd"]) == ("done", "by hand", "waits")
    agents = states(replace(FACTS, in_force=(), linked=(), offering=()))
    assert (agents["nodes"], agents["login nodes"], agents["colocd"]) == (
        *("done", "by hand"),
        "by hand",
    )
    gone = replace(FACTS, in_force=(), linked=(), offering=(), work=None, node_edits=())
    assert set(states(gone).values()) == {"done"}


def test_before_23_11_5_waiting_shares_wait_for_the_running_ones() -> None:
    old = replace(SHAPE, release=(23, 11, 4))
    shares = Shares(waiting=(job(1),), holding=(job(2, "RUNNING"),))
    assert states(replace(FACTS, shape=old, shares=shares))["waiting shares"] == "waits"
    alone = replace(shares, holding=())
    assert states(replace(FACTS, shape=old, shares=alone))["waiting shares"] == "next"
    # 22.05 cannot change them at all.
    oldest = replace(SHAPE, release=(22, 5, 8))
    assert states(replace(FACTS, shape=oldest, shares=alone))["waiting shares"] == "waits"


def test_lines_are_shown_when_their_time_has_come() -> None:
    def lines(facts: Facts) -> dict[str, tuple[str, ...]]:
        return {step.name: step.lines for step in steps(facts) if step.lines}

    assert lines(replace(FACTS, shares=Shares(waiting=(job(1),)))) == {}
    assert lines(FACTS) == {"controller": FACTS.edits, "nodes": FACTS.node_edits}


def test_a_long_list_of_jobs_is_cut() -> None:
    many = Shares(waiting=tuple(job(number) for number in range(1, 30)))
    (step,) = (one for one in steps(replace(FACTS, shares=many)) if one.name == "waiting shares")
    assert step.state is State.NEXT and "and 21 more" in step.found
    held = Shares(waiting=(replace(job(1), priority=0),))
    (step,) = (one for one in steps(replace(FACTS, shares=held)) if one.name == "waiting shares")
    assert "1 (held)" in step.found


@pytest.mark.parametrize(
    ("view", "shape", "whole"),
    [
        (job(1), SHAPE, "gres/gpu:1"),
        (job(1, tres="gres:shard:6"), SHAPE, "gres/gpu:1"),
        (job(1, tres="gres/shard:a100:6"), SHAPE, "gres/gpu:a100:1"),
        (job(1, tres="gres/nvme:1,gres/shard:6"), SHAPE, "gres/gpu:1,gres/nvme:1"),
        (job(1, tres="gres/shard:a100-1:6"), STEERED, "gres/gpu:1"),
        (job(1), MIG, "gres/gpu:a100:1"),
        (
            JobView(1, "PENDING", tres_per_task="cpu:2,gres/shard:6"),
            SHAPE,
            "per-task:gres/gpu:1,cpu:2",
        ),
    ],
)
def test_what_a_share_becomes(view: JobView, shape: ClusterShape, whole: str) -> None:
    assert whole_request(view, shape) == whole
    assert pinned(view, shape) == (shape is STEERED)


def test_lines_of_slurm_conf() -> None:
    found = list(
        slurm_conf_edits(
            [
                "ClusterName=x",
                "GresTypes=gpu,shard",
                "JobSubmitPlugins=lua,throttle",
                "SelectTypeParameters=CR_Core,LL_SHARED_GRES",
                "SchedulerParameters=extra_constraints",
                "AccountingStorageTRES=gres/gpu,gres/shard",
                "Prolog=/etc/slurm/prolog.d/*",
                "Epilog=/usr/libexec/slurm-coloc/coloc-epilog",
                "NodeName=n1 CPUs=8 Gres=gpu:a100:4,shard:a100:156 State=UNKNOWN",
                "NodeName=n2 CPUs=8 Gres=shard:39",
                "NodeName=n3 CPUs=8 Gres=gpu:1",
                'PartitionName=main Nodes=ALL TRESBillingWeights="GRES/gpu=39,GRES/shard=1"',
            ]
        )
    )
    assert [line.split("  ->  ")[1] for line in found] == [
        "GresTypes=gpu",
        "(out, where job_submit.lua has nothing but ours)",
        "SelectTypeParameters=CR_Core",
        "(out)",
        "AccountingStorageTRES=gres/gpu",
        "(out)",
        "NodeName=n1 CPUs=8 Gres=gpu:a100:4 State=UNKNOWN",
        "NodeName=n2 CPUs=8",
        'PartitionName=main Nodes=ALL TRESBillingWeights="GRES/gpu=39"',
    ]


def test_lines_of_the_nodes_files() -> None:
    found = list(
        node_edits(
            ["NodeName=n1 Name=gpu Type=a100-0 File=/dev/nvidia0", "Name=shard Count=39"],
            ["optional coloc.so", "required pyxis.so"],
        )
    )
    assert [line.split("  ->  ")[0] for line in found] == [
        "gres.conf: NodeName=n1 Name=gpu Type=a100-0 File=/dev/nvidia0",
        "gres.conf: Name=shard Count=39",
        "plugstack.conf: optional coloc.so",
    ]
    assert plain_gres("gpu:a100:2(S:0-1),shard:78") == "gpu:a100:2(S:0-1)"
