# SPDX-License-Identifier: Apache-2.0
"""Adapters beside frozen matrices (LoRA), as print(model) and as a table."""

import pytest

from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.rebuild.model import rebuild
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Layer, Summary
from slurm_coloc.estimate.tokens import with_tokens
from tests.unit.estimate.test_rebuild import kept
from tests.unit.estimate.test_words import EMBED, FEED, HEAD, NORM, PLACES, WIDTH, linear
from tests.unit.estimate.test_words import printed as text

RANK, BATCH, TOKENS = 8, 4, 128
ROW = BATCH * TOKENS * WIDTH * 4
BASE = linear("base_layer", WIDTH, WIDTH)
DOWN, UP = linear("default", WIDTH, RANK), linear("default", RANK, WIDTH)


def adapted(name: str, dropout: str = "Identity()") -> str:
    return (
        f"({name}): lora.Linear(\n{BASE}(lora_dropout): ModuleDict(\n(default): {dropout}\n)\n"
        f"(lora_A): ModuleDict(\n{DOWN})\n(lora_B): ModuleDict(\n{UP})\n"
        "(lora_embedding_A): ParameterDict()\n(lora_magnitude_vector): ModuleDict()\n)\n"
    )


def model(projection: str, around: tuple[str, ...] = ("PeftModel", "LoraModel")) -> Summary:
    rows = projection + linear("k", WIDTH, WIDTH) + projection + linear("out", WIDTH, WIDTH)
    layer = f"(self): ThingAttention(\n{rows})\n{NORM}{FEED}"
    inner = f"{EMBED}{PLACES}(layers): ModuleList(\n(0-1): 2 x ThingLayer(\n{layer})\n)\n{HEAD}"
    for kind in ("ThingForCausalLM", *reversed(around[1:])):
        inner = f"(model): {kind}(\n{inner})\n"
    return text(around[0], inner)


def asked(summary: Summary) -> int:
    found = estimate(summary, TrainingOptions(BATCH, TOKENS, "adamw"), stack=Stack(0))
    assert found.memory_mib is not None, found.reason
    return found.memory_mib


def test_what_is_not_the_adapters_is_frozen() -> None:
    found = model(adapted("q"))
    assert found.trainable == 2 * 2 * 2 * WIDTH * RANK
    assert found.trainable < found.parameters / 100
    saved = adapted("q").replace("(lora_dropout)", "(modules_to_save)", 1)
    assert model(saved).trainable == found.trainable, "an Identity has nothing to train"


def test_an_adapter_takes_less_than_training_all_and_more_than_its_weights() -> None:
    whole = asked(model(linear("q", WIDTH, WIDTH), ("Wrapper", "Inner")))
    found = asked(model(adapted("q")))
    weights = model(adapted("q")).parameters * 4 // 2**20
    assert weights < found < whole


@pytest.mark.parametrize("dropout", ["Identity()", "Dropout(p=0.05, inplace=False)"])
def test_every_adapter_has_a_gradient(dropout: str) -> None:
    summary = with_tokens(model(adapted("q", dropout)), TOKENS)
    step = rebuild(summary, Scope(batch=BATCH, drops=True))
    assert step.reached == 1.0
    sizes = [event for event in step.events if isinstance(event, int)]
    gradients = [size for at, size in enumerate(s for s in sizes if s >= 0) if at in step.gradients]
    assert sorted(gradients) == [WIDTH * RANK * 4] * 8


def layer(kind: str, depth: int, reads: int, makes: int, parameters: int, frozen: bool) -> Layer:
    shapes = ((1, TOKENS, reads),), ((1, TOKENS, makes),)
    leaf = parameters > 0 or kind == "GELU"
    return Layer(kind, depth, *shapes, parameters, leaf=leaf, frozen=frozen)


def test_a_table_keeps_what_the_adapter_reads_and_no_more() -> None:
    """A frozen matrix saves nothing; the matrix down saves what both read, the one up a few
    columns: it was taken for a chain of three matrices, and half of the memory was not seen."""
    rows = (
        layer("Net", 0, WIDTH, WIDTH, 0, False),
        layer("GELU", 1, WIDTH, WIDTH, 0, False),
        layer("Linear", 1, WIDTH, WIDTH, 0, False),
        layer("Linear", 2, WIDTH, WIDTH, WIDTH * WIDTH, True),
        Layer("ModuleDict", 2, leaf=False),
        layer("Linear", 3, WIDTH, RANK, WIDTH * RANK, False),
        Layer("ModuleDict", 2, leaf=False),
        layer("Linear", 3, RANK, WIDTH, WIDTH * RANK, False),
        Layer("ModuleDict", 2),
        layer("Linear", 1, WIDTH, WIDTH, WIDTH * WIDTH, True),
    )
    trainable = 2 * WIDTH * RANK
    count = trainable + 2 * WIDTH * WIDTH
    summary = Summary("torchinfo", "mlp", count, trainable, rows, 1)
    step = rebuild(summary, Scope(batch=BATCH))
    assert step.reached == 1.0
    # What the adapter reads, and the last output with its softmax, which the loss holds.
    assert kept(step)[ROW] == 3
    assert kept(step)[BATCH * TOKENS * RANK * 4] == 1


def test_a_summary_without_adapters_is_as_before() -> None:
    plain = text("ThingForCausalLM", EMBED, NORM, HEAD)
    assert plain.trainable == plain.parameters
    assert not any(row.frozen for row in plain.layers)
