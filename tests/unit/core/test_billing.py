# SPDX-License-Identifier: Apache-2.0
"""Prices: all shards of a GPU cost one GPU, whatever stands beside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.slurm.billing import (
    Kind,
    Weights,
    coarse,
    good,
    one_price,
    parse_weights,
    proposed,
    share_price,
)
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape

A100, H100 = Kind("a100", 39), Kind("h100", 79)
G1 = NodeShape("g1", ("main", "a100"), (), "a100", 4, 156)
G2 = NodeShape("g2", ("main", "h100"), (), "h100", 2, 158)


def shape(*names: str) -> ClusterShape:
    return ClusterShape("c", (24, 11, 5), (G1, G2), tuple(PartitionShape(name) for name in names))


@given(gpu=st.integers(1, 100_000), shards=st.integers(1, 1000))
def test_all_shards_of_a_gpu_bill_the_gpu(gpu: int, shards: int) -> None:
    weights = Weights(float(gpu), share_price(gpu, shards), given=True)
    assert weights.billed(0, shards) == gpu == weights.billed(1, 0)
    assert all(weights.billed(0, n) <= gpu for n in range(shards))


@pytest.mark.parametrize(
    ("now", "kinds", "wanted"),
    [
        ("", (A100,), "GRES/gpu=39,GRES/shard=1"),
        ("GRES/gpu=1000", (A100,), "GRES/gpu=1000,GRES/shard=25.641026"),
        ("CPU=1.0,Mem=0.25G,GRES/gpu=16", (H100,),
         "CPU=1.0,Mem=0.25G,GRES/gpu=16,GRES/shard=0.202532"),
        ("GRES/gpu=39", (A100, H100), "GRES/gpu:a100=39,GRES/gpu:h100=79,GRES/shard=1"),
        ("GRES/gpu:a100=40", (A100,), "GRES/gpu=40,GRES/shard=1.025642"),
    ],
)  # fmt: skip
def test_the_proposal_is_good_and_keeps_what_is_there(
    now: str, kinds: tuple[Kind, ...], wanted: str
) -> None:
    assert proposed(parse_weights(now), kinds) == wanted
    assert good(parse_weights(wanted), kinds)
    assert not good(parse_weights(now), kinds)


def test_one_price_for_both_cards_is_dearer_by_the_shard() -> None:
    assert not good(parse_weights("GRES/gpu=39,GRES/shard=1"), (A100, H100))


def test_one_price_over_partitions_makes_billing_count_gpus() -> None:
    same = {
        "a100": parse_weights("GRES/gpu=1000,GRES/shard=25.641026"),
        "h100": parse_weights("GRES/gpu=1000,GRES/shard=12.658228"),
        "cpu": parse_weights("CPU=0"),
    }
    assert one_price(shape("a100", "h100", "cpu"), same) == (1000, "")
    for change in ("", "CPU=1", "GRES/gpu=79,GRES/shard=1", "GRES/gpu=1000"):
        price, why = one_price(
            shape("a100", "h100", "cpu"), {**same, "h100": parse_weights(change)}
        )
        assert price == 0 and why


def test_a_cpu_partition_without_weights_bills_its_cpus() -> None:
    weights = {"a100": parse_weights("GRES/gpu=39,GRES/shard=1")}
    assert one_price(shape("a100"), weights) == (39, "")
    assert one_price(shape("a100", "cpu"), weights)[0] == 0


def test_a_price_too_small_for_its_shares_is_told() -> None:
    assert "let a GPU cost 79 or more" in coarse(
        parse_weights("GRES/gpu=2,GRES/shard=0.02"), (H100,)
    )
    assert not coarse(parse_weights("GRES/gpu=1000,GRES/shard=12.6"), (H100,))
    assert not coarse(parse_weights("GRES/gpu=2"), (H100,))
