# SPDX-License-Identifier: Apache-2.0
"""Embeddings, rotary angles and encoder-decoders in print(model): what leads to a gradient."""

import pytest

from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.estimators.text import PRECISION, step_of
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.rebuild.opening import opened
from slurm_coloc.estimate.rebuild.tied import headed, once
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary
from slurm_coloc.estimate.tokens import with_tokens

WORDS, WIDTH, TOKENS, BATCH = 8000, 256, 128, 4
MIB = 2**20


def linear(name: str, reads: int, makes: int) -> str:
    return f"({name}): Linear(in_features={reads}, out_features={makes}, bias=False)\n"


def attention(name: str, kind: str) -> str:
    rows = "".join(linear(one, WIDTH, WIDTH) for one in ("k", "v", "q", "out"))
    return f"({name}): {kind}(\n{rows})\n"


NORM = f"(norm): LayerNorm(({WIDTH},), eps=1e-05, elementwise_affine=True)\n"
FEED = linear("fc1", WIDTH, 4 * WIDTH) + "(act): GELU()\n" + linear("fc2", 4 * WIDTH, WIDTH)
EMBED = f"(words): Embedding({WORDS}, {WIDTH})\n"
PLACES = f"(places): Embedding({TOKENS}, {WIDTH})\n"


def listed(kind: str, rows: str) -> str:
    return f"(layers): ModuleList(\n(0-1): 2 x {kind}(\n{rows})\n)\n"


ENCODER = EMBED + PLACES + listed("ThingLayer", attention("self", "ThingAttention") + NORM + FEED)
HEAD = linear("lm_head", WIDTH, WORDS)


def printed(kind: str, *rows: str) -> Summary:
    """print(model) of these rows, indented as PyTorch does."""
    lines, depth = [f"{kind}("], 1
    for line in "".join(rows).splitlines():
        depth -= line.startswith(")")
        lines.append("  " * depth + line)
        depth += line.endswith("(")
    return parse_summary("\n".join([*lines, ")", ""]))


def step(summary: Summary) -> Recording:
    shaped = headed(once(with_tokens(summary, TOKENS)))
    return step_of(shaped, TrainingOptions(BATCH, TOKENS), BATCH, False, opened(shaped))


def decoder(*rows: str) -> str:
    inner = attention("self", "ThingAttention") + NORM + "".join(rows) + FEED
    return f"(decoder): ThingStack(\n{EMBED}{PLACES}{listed('ThingDecoderLayer', inner)})\n"


def test_every_embedding_that_is_summed_has_a_gradient() -> None:
    found = step(printed("ThingForSequenceClassification", ENCODER, linear("head", WIDTH, 2)))
    assert found.reached == 1.0


@pytest.mark.parametrize("kind", ["Qwen2RotaryEmbedding", "RotaryEmbeddingCat"])
def test_rotary_angles_are_beside_the_path(kind: str) -> None:
    """They stand between the last norm and the head of every decoder of today: the chain of
    gradients ended there, and a 1.5B decoder came out below its own weights and gradients."""
    plain = step(printed("ThingForCausalLM", ENCODER, NORM, HEAD))
    turned = step(printed("ThingForCausalLM", ENCODER, NORM, f"(rotary_emb): {kind}()\n", HEAD))
    assert turned.reached == plain.reached == 1.0
    assert sum(turned.parameters) == sum(plain.parameters)


@pytest.mark.parametrize(
    "cross",
    [
        attention("encoder_attn", "ThingAttention"),  # the second of a layer (BART)
        f"(cross): ThingLayerCrossAttention(\n{attention('EncDecAttention', 'ThingAttention')})\n",
    ],
)
def test_cross_attention_leads_back_to_the_encoder(cross: str) -> None:
    stacks = f"(encoder): ThingStack(\n{ENCODER})\n", decoder(cross + NORM), HEAD
    assert step(printed("ThingForConditionalGeneration", *stacks)).reached == 1.0
    without = printed("ThingForConditionalGeneration", stacks[0], decoder(), HEAD)
    assert step(without).reached < 0.7


def test_a_table_of_positions_is_beside_the_path() -> None:
    """T5's in the attention, MPNet's behind the layers: as wide as there are heads."""
    table = "(relative_attention_bias): Embedding(32, 8)\n"
    inside = attention("self", "ThingAttention").replace(")\n)\n", f")\n{table})\n")
    rows = EMBED + listed("ThingLayer", inside + NORM + FEED) + table
    assert step(printed("ThingForMaskedLM", rows, HEAD)).reached == 1.0


def test_nothing_is_below_what_the_trained_weights_take() -> None:
    """A path that ends early: each trained parameter has a gradient all the same, and the bound is
    the wider one."""
    cut = f"(encoder): ThingStack(\n{ENCODER})\n", decoder(), HEAD
    summary = printed("ThingForConditionalGeneration", *cut)
    options = TrainingOptions(BATCH, TOKENS, "adamw")
    found = estimate(summary, options, stack=Stack(0))
    assert found.memory_mib is not None, found.reason
    assert found.memory_mib >= 16 * once(with_tokens(summary, TOKENS)).parameters // MIB
    assert any("% of what is trained" in note for note in found.notes), found.notes


def test_where_most_is_not_reached_there_is_no_figure() -> None:
    late = f"(late): Embedding({WORDS}, {WIDTH})\n"
    big = f"(decoder): ThingStack(\n{late}{NORM})\n"
    summary = printed("ThingForConditionalGeneration", f"(encoder): Stack(\n{ENCODER})\n", big)
    found = estimate(summary, TrainingOptions(BATCH, TOKENS, "adamw"), stack=Stack(0))
    assert found.memory_mib is None and "coloc summarize" in found.reason


def test_amp_and_bf16_reach_as_much() -> None:
    summary = headed(once(with_tokens(printed("ThingForCausalLM", ENCODER, NORM, HEAD), TOKENS)))
    for precision in PRECISION:
        options = TrainingOptions(BATCH, TOKENS, precision=precision)
        assert step_of(summary, options, BATCH, False, opened(summary)).reached == 1.0


def test_decimals_of_a_float_are_no_long_number() -> None:
    drop = "(drop): StochasticDepth(p=0.0052631578947368418, mode=row)\n"
    assert printed("ThingForCausalLM", ENCODER, drop, HEAD).parameters > 0
