# SPDX-License-Identifier: Apache-2.0
"""When a job gets a MIG device, which one, and what becomes of its request."""

from dataclasses import replace

import pytest

from slurm_coloc.adapters.slurm.commands.shape import node_shape
from slurm_coloc.core.decide.decide import decide
from slurm_coloc.core.decide.decision import (
    Action,
    Decision,
    Estimate,
    Method,
    Question,
    Reason,
    Rules,
    Sizing,
)
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.rewrite import exclusive_tres, rewrite, whole_gpu
from slurm_coloc.core.decide.slices import more
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.core.slurm.gres import called

SLICES = (("1c.3g.20gb", 1), ("1g.5gb", 2), ("2c.3g.20gb", 1), ("2g.10gb", 1))
NODE = NodeShape("n1", ("main",), (), "a100", 1, 39, slices=SLICES)
MIXED = ClusterShape("c", (24, 11, 5), (NODE,), (PartitionShape("main", default=True),))
ONLY_MIG = replace(MIXED, nodes=(NodeShape("n1", ("main",), (), None, 0, 0, slices=SLICES),))
ONE = JobRequest(uid=1000, tres_per_node="gres/gpu:1")


def ask(
    upper_mib: int,
    method: Method = "auto",
    shape: ClusterShape = MIXED,
    request: JobRequest = ONE,
    oom: int | None = None,
    policy: str = "collocate",
) -> Decision:
    rules = Rules(Sizing(), (), method)
    estimate = Estimate("text", upper_mib, upper_mib)
    return decide(Question(request, estimate, oom_mib=oom, policy=policy), shape, rules)


@pytest.mark.parametrize(
    ("upper_mib", "method", "kind"),
    [
        (4000, "auto", "1g.5gb"),
        (4800, "auto", "1g.5gb"),
        (4801, "auto", None),  # 64 MiB of a device no program finds
        (6000, "auto", None),
        (6000, "mig", "1c.3g.20gb"),
        (9000, "mig", "2g.10gb"),
        (13000, "mig", "2c.3g.20gb"),
        (14000, "mig", None),
        (4000, "mps", None),
        (4000, "streams", None),
    ],
)
def test_the_smallest_that_holds_it(upper_mib: int, method: Method, kind: str | None) -> None:
    found = ask(upper_mib, method)
    assert found.action is Action.COLLOCATE
    assert (found.gpu_type, bool(found.slice_mib)) == (kind, kind is not None)
    assert found.reason is (Reason.FITS_SLICE if kind else Reason.FITS)


def test_a_device_where_there_are_no_shards() -> None:
    assert ask(9000, "auto", ONLY_MIG).gpu_type == "2g.10gb"
    assert ask(20000, "auto", ONLY_MIG).reason is Reason.NO_SHARED_GPU


def test_who_gets_none() -> None:
    assert ask(4000, policy="exclusive").action is Action.EXCLUSIVE
    named = replace(ONE, tres_per_node="gres/gpu:a100:1")
    assert ask(4000, request=named).reason is Reason.FITS  # shards of the card that was named
    assert not ask(4000, request=replace(ONE, tres_per_node="gres/gpu:2")).slice_mib
    # the same model ran out of memory on such a device before
    assert ask(4000, "mig", oom=4864).gpu_type == "1c.3g.20gb"


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (ONE, {"tres_per_node": "gres/gpu:1g.5gb:1"}),
        (JobRequest(1), {"tres_per_node": "gres/gpu:1g.5gb:1"}),
        (JobRequest(1, tres_per_job="gres:gpu:1"), {"tres_per_job": "gres/gpu:1g.5gb:1"}),
        (
            JobRequest(1, tres_per_task="cpu:2,gres/gpu:1"),
            {"tres_per_task": "cpu:2,gres/gpu:1g.5gb:1"},
        ),
    ],
)
def test_the_request_names_the_device(request_: JobRequest, fields: dict[str, str]) -> None:
    found = rewrite(request_, ask(4000, request=request_), MIXED).fields
    assert found == fields | {"min_nodes": 1, "max_nodes": 1, "requeue": 1}


def test_a_whole_gpu_is_asked_for_by_its_type() -> None:
    """An untyped request may land on a MIG device."""
    assert whole_gpu(MIXED) == "gres/gpu:a100:1"
    assert exclusive_tres(ONE, MIXED) == "gres/gpu:a100:1"
    whole = Decision(Action.EXCLUSIVE, Reason.FILLS_GPU)
    assert rewrite(ONE, whole, MIXED).fields == {"tres_per_node": "gres/gpu:a100:1"}
    two = replace(ONE, tres_per_node="gres/gpu:2")
    assert rewrite(two, whole, MIXED).fields == {"tres_per_node": "gres/gpu:a100:2"}
    # without MIG nothing is named, and with two types of whole GPUs nothing can be
    plain = replace(MIXED, nodes=(replace(NODE, slices=()),))
    assert whole_gpu(plain) == "gres/gpu:1"
    other = NodeShape("n2", ("main",), (), "h100", 4, 0)
    assert whole_gpu(replace(MIXED, nodes=(NODE, other))) == "gres/gpu:1"


def test_mig_gres_of_a_node_are_no_whole_gpus() -> None:
    found = node_shape(
        {
            "NodeName": "n1",
            "Partitions": "main",
            "State": "IDLE",
            # 22.05 and 24.11 show shards of every type
            "Gres": "gpu:a100:1,gpu:1g.5gb:2,gpu:2g.10gb:1,shard:a100:39,shard:1g.5gb:0",
        }
    )
    assert found is not None
    assert (found.gpus, found.gpu_type, found.shards_per_gpu) == (1, "a100", 39)
    assert found.slices == (("1g.5gb", 2), ("2g.10gb", 1))


@pytest.mark.parametrize(
    ("release", "kind", "tres"),
    [
        ((24, 11, 5), "1g.5gb", "gres/gpu:a100:1"),
        ((22, 5, 8), "1g.5gb", "gres/gpu:2g.10gb:1"),  # 2c.3g.20gb shares its memory
        ((22, 5, 8), "2g.10gb", ""),
        ((23, 2, 7), "1g.5gb", ""),
    ],
)
def test_what_comes_after_an_out_of_memory(release: tuple[int, ...], kind: str, tres: str) -> None:
    shape = replace(MIXED, release=release)
    mib = {"1g.5gb": 4864, "2g.10gb": 9984}[kind]
    found = Decision(Action.COLLOCATE, Reason.FITS_SLICE, 1, kind, 1, slice_mib=mib)
    assert more(found, ONE, shape, ()) == tres
    # other gres of the request stay
    if tres:
        request = replace(ONE, tres_per_node="gres/gpu:1,gres/fpga:1")
        assert more(found, request, shape, ()) == f"{tres},gres/fpga:1"


def test_a_job_that_shares_is_asked_of_nothing_new() -> None:
    found = Decision(Action.COLLOCATE, Reason.FITS, 12, None, 39)
    for release in ((22, 5, 8), (23, 2, 7), (24, 11, 5)):
        shape = replace(MIXED, release=release)
        assert more(found, ONE, shape, ()) == exclusive_tres(ONE, shape)


def test_words() -> None:
    assert called("gres:gpu:2g.10gb:1") == "a larger MIG device"
    assert called("gres/gpu:a100:1") == called("gres/shard:39") == called("") == "a whole GPU"
