# SPDX-License-Identifier: Apache-2.0
"""Language models of transformers: heads, caches, print(model)'s order, several GPUs."""

from dataclasses import replace

import pytest

from slurm_coloc.estimate.api import Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.rebuild.tied import caches, computes_loss, headed, of_class, once
from slurm_coloc.estimate.rebuild.tree import tree
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Layer, Summary
from slurm_coloc.estimate.tokens import resized, tokens_in_text, with_tokens

WORDS, WIDTH, TOKENS, BATCH = 8000, 256, 128, 16
LOGITS = BATCH * TOKENS * WORDS * 4 / 2**20

BODY = f"""\
  (model): ThingModel(
    (words): Embedding({WORDS}, {WIDTH})
    (layers): ModuleList(
      (0-1): 2 x ThingLayer(
        (self_attn): ThingAttention(
          (q_proj): Linear(in_features={WIDTH}, out_features={WIDTH}, bias=False)
          (k_proj): Linear(in_features={WIDTH}, out_features={WIDTH}, bias=False)
          (v_proj): Linear(in_features={WIDTH}, out_features={WIDTH}, bias=False)
          (o_proj): Linear(in_features={WIDTH}, out_features={WIDTH}, bias=False)
        )
        (mlp): ThingMLP(
          (act): GELU(approximate='none')
          (up): Linear(in_features={WIDTH}, out_features={4 * WIDTH}, bias=False)
          (down): Linear(in_features={4 * WIDTH}, out_features={WIDTH}, bias=False)
        )
        (norm): LayerNorm(({WIDTH},), eps=1e-05, elementwise_affine=True, bias=True)
      )
    )
  )
"""
HEAD = f"  (lm_head): Linear(in_features={WIDTH}, out_features={WORDS}, bias=False)\n"


def printed(kind: str, *parts: str) -> Summary:
    return parse_summary(f"{kind}(\n{''.join(parts)})\n")


def asked(summary: Summary, **options: object) -> Estimate:
    given = TrainingOptions(BATCH, TOKENS, **options)  # type: ignore[arg-type]
    return estimate(summary, given, stack=Stack(0))


def mib(summary: Summary, **options: object) -> int:
    found = asked(summary, **options)
    assert found.memory_mib is not None, found.reason
    return found.memory_mib


def test_what_a_class_says() -> None:
    model = printed("ThingForCausalLM", BODY, HEAD)
    assert computes_loss(model) and caches(model)
    assert not caches(printed("ThingForMaskedLM", BODY, HEAD))
    assert not caches(printed("XLNetLMHeadModel", BODY, HEAD))
    assert not computes_loss(printed("ThingModel", BODY, HEAD))
    inside = "".join(f"  {line}\n" for line in (BODY + HEAD).splitlines())
    around = printed("DataParallel", f"  (module): GPT2LMHeadModel(\n{inside}  )\n")
    assert of_class(around) == "GPT2LMHeadModel" and caches(around) and computes_loss(around)
    shaped = with_tokens(around, TOKENS)
    assert shaped.parameters - once(shaped).parameters == WORDS * WIDTH


def test_a_head_that_was_defined_first_runs_last() -> None:
    before, after = printed("ThingForMaskedLM", HEAD, BODY), printed("ThingForMaskedLM", BODY, HEAD)
    assert [row.layer.kind for row in tree(before)[0].children] == ["ThingModel", "Linear"]
    assert mib(before) == mib(after) > 4 * LOGITS


def test_an_activation_between_two_matrices() -> None:
    moved = BODY.replace("          (act): GELU(approximate='none')\n", "").replace(
        "          (down)", "          (act): GELU(approximate='none')\n          (down)"
    )
    assert moved != BODY
    models = [printed("ThingForMaskedLM", body, HEAD) for body in (BODY, moved)]
    assert mib(models[0]) == mib(models[1])


def test_keys_and_values_stay() -> None:
    """Copied since the classes carry the kernel's name no more: both kept, beside what they were
    made of only where one matrix makes all three."""
    size = BATCH * TOKENS * WIDTH * 4 / 2**20
    masked = mib(printed("ThingForMaskedLM", BODY, HEAD))
    # With the output of the step before they meet those of this one.
    assert mib(printed("ThingForCausalLM", BODY, HEAD)) >= masked
    old = BODY.replace("ThingAttention", "ThingSdpaAttention")
    assert mib(printed("ThingForCausalLM", old, HEAD)) <= masked + 8 * size


def test_the_loss_of_replicas() -> None:
    """The first GPU has half of the batch; logits of the whole are gathered, but no more where
    each replica computes its own loss."""
    half = mib(printed("ThingForMaskedLM", BODY, HEAD), gpus=2)
    plain = mib(printed("ThingModel", BODY, HEAD), gpus=2)
    assert plain - half == pytest.approx(1.03 * LOGITS, rel=0.25)
    assert half < mib(printed("ThingForMaskedLM", BODY, HEAD))


def test_adams_implementations_differ_where_the_step_is_the_peak() -> None:
    model = printed("ThingForMaskedLM", BODY, HEAD)
    few = {
        name: estimate(model, TrainingOptions(1, 8, name), stack=Stack(0)).memory_mib or 0
        for name in ("adamw", "adamw-for-loop", "adamw-fused")
    }
    assert few["adamw"] >= few["adamw-for-loop"] > few["adamw-fused"] > 0


def test_what_cannot_be_seen_has_no_figure() -> None:
    hidden = BODY.replace("ThingAttention", "DisentangledSelfAttention")
    assert "coloc summarize" in asked(printed("DebertaV2ForMaskedLM", hidden, HEAD)).reason
    again = BODY.replace("ThingLayer", "AlbertLayerGroup")
    assert "how often" in asked(printed("AlbertForMaskedLM", again, HEAD)).reason


def row(kind: str, out: tuple[int, ...], parameters: int = 0, depth: int = 1) -> Layer:
    return Layer(kind, depth, (), (out,), parameters)


def table(*rows: Layer) -> Summary:
    count = sum(one.parameters for one in rows)
    return Summary("torchinfo", "transformer", count, count, rows, 2)


def test_what_a_model_gives_out_is_its_heads() -> None:
    """torchinfo prints one of the tensors of a class that gives out several."""
    first = replace(row("BartForConditionalGeneration", (1, 8, 32), depth=0), leaf=False)
    model = table(first, row("Embedding", (1, 8, 32), 3200), row("Linear", (1, 8, 100), 3200))
    assert headed(model).layers[0].outputs == ()
    assert headed(model).layers[1:] == model.layers[1:]
    other = replace(model, layers=(replace(first, kind="BartModel"), *model.layers[1:]))
    assert headed(other) is other


def test_one_matrix_of_encoder_decoder_and_head() -> None:
    first = replace(row("T5ForConditionalGeneration", (1, 8, 32), depth=0), leaf=False)
    words = row("Embedding", (1, 8, 32), 3200)
    model = table(first, words, words, row("Linear", (1, 8, 100), 3200))
    assert once(model).parameters == 3200
    assert [one.parameters for one in once(model).layers] == [0, 0, 0, 3200]


def test_a_head_of_its_own_beside_one_embedding() -> None:
    """As the released weights of T5 1.1, Flan-T5 and mT5 have it."""
    first = replace(row("MT5ForConditionalGeneration", (1, 8, 32), depth=0), leaf=False)
    words = row("Embedding", (1, 8, 32), 3200)
    gated = replace(row("MT5DenseGatedActDense", (1, 8, 32)), leaf=False)
    model = table(first, words, words, words, gated, row("Linear", (1, 8, 100), 3200))
    assert once(model).parameters == 2 * 3200
    assert [one.parameters for one in once(model).layers] == [0, 0, 0, 3200, 0, 3200]


def test_a_batch_that_stands_second_divides_nothing() -> None:
    """PyTorch's default for LSTM and Transformer: 512 tokens of 16 sequences. Who corrects the
    batch size to the true one must not get a thirtieth."""
    rows = [
        replace(row("Embedding", (1, 16, 512), 512_000), kind="Embedding"),
        row("LSTM", (1, 16, 512), 2_101_248),
        row("Linear", (1, 16, 1000), 513_000),
    ]
    model = replace(table(*rows), family="recurrent", batch_in_text=512)
    plain, given = (
        estimate(model, TrainingOptions(batch), stack=Stack(0), estimator="text")
        for batch in (None, 16)
    )
    assert given.memory_mib == plain.memory_mib
    assert any("tokens first" in note for note in given.notes)
    more = estimate(model, TrainingOptions(1024), stack=Stack(0), estimator="text")
    assert (more.memory_mib or 0) > (plain.memory_mib or 0), "a larger one wins as before"


def test_a_width_that_is_as_many_as_the_tokens_stays() -> None:
    """GPT-2 medium at 1024 tokens, which are 1024 wide: a shorter text is as wide."""
    shapes = [(1, 1024, 1024), (1, 1024, 4096), (1, 16, 1024, 1024), (1, 1024, 16, 64)]
    kinds = ["Embedding", "Linear", "Softmax", "View"]
    model = table(*(row(kind, shape) for kind, shape in zip(kinds, shapes, strict=True)))
    shorter = [one.outputs[0] for one in resized(model, 1024, 512).layers]
    assert shorter == [(1, 512, 1024), (1, 512, 4096), (1, 16, 512, 512), (1, 512, 16, 64)]
    wide = table(row("Embedding", (1, 1024, 768)), row("Attention", (1, 1024, 1024)))
    assert resized(wide, 1024, 512).layers[1].outputs == ((1, 512, 512),), "scores"


def test_tokens_may_come_first() -> None:
    """A table of a batch of two and 128 tokens: shapes are told for one sample."""
    assert tokens_in_text(table(row("Embedding", (64, 2, 32), 3200))) == 128
    assert tokens_in_text(table(row("Embedding", (1, 128, 32), 3200))) == 128


LISTS = """\
==========================================================================================
Layer (type:depth-idx)                   Output Shape              Param #
==========================================================================================
PvtForImageClassification                [2, 1000]                 --
├─PvtModel: 1-1                          [2, 50, 512]              --
│    └─PvtEncoder: 2-1                   [2, 50, 512]              --
│    │    └─ModuleList: 3-7              --                        (recursive)
│    │    └─ModuleList: 3-8              --                        (recursive)
│    │    └─LayerNorm: 3-9               [2, 50, 512]              1,024
├─Linear: 1-2                            [2, 1000]                 513,000
==========================================================================================
Total params: 13,229,288
Trainable params: 13,229,288
Non-trainable params: 0
Total mult-adds (Units.MEGABYTES): 403.25
==========================================================================================
Input size (MB): 1.20
Forward/backward pass size (MB): 168.39
Params size (MB): 51.36
Estimated Total Size (MB): 220.96
==========================================================================================
"""


def test_lists_that_run_twice_hide_everything() -> None:
    """The footer counts 10 million outputs a sample that no row stands for, not even a closed one:
    a tenth of what it takes was estimated."""
    assert "full depth" in asked(parse_summary(LISTS)).reason
