# SPDX-License-Identifier: Apache-2.0
"""What no row shows: right, or told to be unsure, or no figure with what would help.

Each was far below its recording before, among 500 models that were drawn (estimator/generated).
"""

import pytest

from slurm_coloc.estimate.api import Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from tests.unit.estimate.texts import keras

MIB = 2**20


def asked(text: str, batch: int = 32, **options: object) -> Estimate:
    given = TrainingOptions(batch, **options)  # type: ignore[arg-type]
    return estimate(parse_summary(text), given, stack=Stack(0), estimator="text")


def unsure(answer: Estimate) -> list[str]:
    return [note for note in answer.notes if note.startswith("wider margin")]


def words(attention: str, width: int = 512, vocabulary: int = 32000, layers: int = 4) -> str:
    inner = "\n".join(
        f"        ({name}): Linear(in_features={width}, out_features={width}, bias=True)"
        for name in ("query", "key", "value", "out")
    )
    return f"""Model(
  (embedding): Embedding({vocabulary}, {width})
  (layers): ModuleList(
    (0-{layers - 1}): {layers} x Layer(
      (attention): {attention}(
{inner}
      )
      (norm1): LayerNorm(({width},), eps=1e-05, elementwise_affine=True, bias=True)
      (fc1): Linear(in_features={width}, out_features={4 * width}, bias=True)
      (act): GELU(approximate='none')
      (fc2): Linear(in_features={4 * width}, out_features={width}, bias=True)
      (norm2): LayerNorm(({width},), eps=1e-05, elementwise_affine=True, bias=True)
    )
  )
  (head): Linear(in_features={width}, out_features={vocabulary}, bias=True)
)
"""


def test_attention_of_ones_own_may_store_its_scores() -> None:
    """Small beside the rest: the bound takes them in; else there is no figure. Also where there are
    as many tokens as a token is wide: then each row looks like scores."""
    few, as_wide = (
        asked(words("SelfAttention"), seq_len=96),
        asked(words("SelfAttention"), seq_len=512),
    )
    assert few.upper_mib and any("SelfAttention may store its scores" in one for one in unsure(few))
    assert as_wide.memory_mib is None or unsure(as_wide)
    many = asked(words("CausalSelfAttention"), batch=8, seq_len=2048)
    assert many.memory_mib is None and "coloc summarize" in many.reason
    published = asked(words("BertSdpaSelfAttention"), batch=8, seq_len=2048)
    assert published.memory_mib and not unsure(published)


def test_autocast_computes_the_loss_in_32_bits() -> None:
    text = words("BertSdpaSelfAttention", width=64, layers=1)
    logits = 32 * 128 * 32000 * 4 // MIB
    memory = {
        name: asked(text, seq_len=128, precision=name, optimizer="sgd").memory_mib or 0
        for name in ("fp32", "amp", "bf16")
    }
    # The scores in 16 bits, and of 32: their logarithms, and two gradients.
    assert 3.4 * logits < memory["amp"] < 5 * logits
    assert memory["bf16"] < 3 * logits
    causal = text.replace("Model(", "GPT2LMHeadModel(", 1)
    named = asked(causal, seq_len=128, precision="bf16", optimizer="sgd").memory_mib or 0
    assert named > memory["bf16"] + logits, "transformers computes it in 32 bits by itself"


def test_what_autocast_leaves_wide_is_counted_so() -> None:
    """A group norm gives out 32 bits, and so does the activation behind it."""
    rows = "\n".join(
        f"  ({3 * n}): GroupNorm(8, 64, eps=1e-05, affine=True)\n  ({3 * n + 1}): SiLU()\n"
        f"  ({3 * n + 2}): Conv2d(64, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
        for n in range(8)
    )
    stem = "  (s): Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
    text = f"Sequential(\n{stem}\n{rows}\n)\n"
    plain, lowered = (
        asked(text, shape=(3, 64, 64), precision=name).memory_mib or 0 for name in ("fp32", "amp")
    )
    # Kept in 32 bits: what the norm reads and what the activation does; in 16 what convolutions do.
    assert 0.75 * plain < lowered < plain


GRAPH = """\
==========================================================================================
Layer (type:depth-idx)                   Input Shape               Output Shape              Param #
==========================================================================================
Graph                                    [2, 128, 64]              [2, 128, 7]               --
├─Linear: 1-1                            [2, 128, 64]              [2, 128, 256]             16,640
├─ReLU: 1-2                              [2, 128, 256]             [2, 128, 256]             --
├─Linear: 1-3                            [2, 128, 256]             [2, 128, 7]               1,799
==========================================================================================
Total params: 18,439
Trainable params: 18,439
Non-trainable params: 0
==========================================================================================
Input size (MB): {size}
Forward/backward pass size (MB): 0.54
Params size (MB): 0.07
Estimated Total Size (MB): 0.81
==========================================================================================
"""


def test_an_input_that_no_row_shows() -> None:
    """The neighbours of a graph: the footer counts them."""
    assert asked(GRAPH.format(size="0.07")).memory_mib
    answer = asked(GRAPH.format(size="0.20"))
    assert answer.memory_mib is None and "no row shows" in answer.reason


@pytest.mark.parametrize("kind", ["GraphConv", "GCNLayer", "MessagePassing", "TokenMixer"])
def test_matrices_whose_class_does_more(kind: str) -> None:
    rows = "    (lin): Linear(in_features=64, out_features=64, bias=True)"
    last = "  (1): Linear(in_features=64, out_features=7, bias=True)"
    text = f"Net(\n  (0): {{}}(\n{rows}\n  )\n{last}\n)\n"
    assert asked(text.format("Sequential")).memory_mib
    answer = asked(text.format(kind))
    assert answer.memory_mib is None and f"what {kind} does" in answer.reason
    one = asked(text.format("Sequential"), batch=512, shape=(64,)).memory_mib or 0
    many = asked(text.format("Sequential"), batch=512, shape=(1024, 64)).memory_mib or 0
    assert many > one + 512 * 1024 * 64 * 4 // MIB


def test_weights_of_pairs_are_no_figure() -> None:
    text = words("Attention").replace(
        "out_features=512, bias=True)\n      )", "out_features=1, bias=True)\n      )"
    )
    answer = asked(text, seq_len=128)
    assert answer.memory_mib is None and "what Attention weighs" in answer.reason


RECURRENT = """Model(
  (embedding): Embedding(1000, 64)
  (rnn): {kind}(64, 256, num_layers={layers}, batch_first=True, bidirectional={both})
  (head): Linear(in_features={made}, out_features=1000, bias=True)
)
"""


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_models_have_a_figure(kind: str) -> None:
    """By layers and directions, and always an unsure one."""
    found = {}
    for layers in (1, 3):
        for both in (False, True):
            text = RECURRENT.format(kind=kind, layers=layers, both=both, made=512 if both else 256)
            answer = asked(text, batch=64, seq_len=128)
            assert answer.memory_mib and unsure(answer)
            found[layers, both] = answer.memory_mib
    step = 64 * 128 * 256 * 4 // MIB
    assert found[3, False] > found[1, False] + 2 * step
    assert found[1, True] >= found[1, False] + step


def test_torchsummary_counts_no_weights_of_recurrent_rows() -> None:
    line = "----------------------------------------------------------------"
    text = f"""{line}
        Layer (type)               Output Shape         Param #
================================================================
            Conv1d-1              [-1, 64, 128]          51,328
              LSTM-2  [[-1, 128, 64], [-1, 2, 64]]               0
            Linear-3                   [-1, 10]             650
================================================================
Total params: 51,978
Trainable params: 51,978
Non-trainable params: 0
{line}
"""
    answer = asked(text)
    assert answer.memory_mib is None and "torchinfo" in answer.reason


WIRED = """Net(
  (stem): Conv2d(3, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
  (nodes): ModuleList(
    (0): Conv2d(32, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    (1): BatchNorm2d(32, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    (2): ReLU()
    (3): Conv2d(32, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
  )
  (pool): AdaptiveAvgPool2d(output_size=1)
  (flat): Flatten(start_dim=1, end_dim=-1)
  (head): Linear(in_features=32, out_features=10, bias=True)
)
"""


def test_a_list_whose_code_says_which_reads_what() -> None:
    assert asked(WIRED.replace("ModuleList", "Sequential"), shape=(3, 32, 32)).memory_mib
    answer = asked(WIRED, shape=(3, 32, 32))
    assert answer.memory_mib is None and "ModuleList" in answer.reason


def test_two_lists_that_are_run_in_turn() -> None:
    """The ways down and up of a U-Net."""
    up = "    (0): Conv2d(32, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
    text = f"Net(\n  (downs): ModuleList(\n{up}\n  )\n  (ups): ModuleList(\n{up}\n  )\n)\n"
    assert "ModuleList" in asked(text, shape=(32, 32, 32)).reason


def test_dropout_of_maps_drops() -> None:
    """Where it stands in a sequence; blocks of published models list it with a probability of 0."""
    rows = [
        "Net                                      [2, 64, 64, 64]           --",
        "├─{parent}: 1-1                          [2, 64, 64, 64]           --",
        "│    └─Conv2d: 2-1                       [2, 64, 64, 64]           1,792",
        "│    └─Dropout: 2-2                      [2, 64, 64, 64]           --",
    ]
    head = "Layer (type:depth-idx)                   Output Shape              Param #"
    line = "=" * 90
    text = "\n".join([line, head, line, *rows, line, "Total params: 1,792", line]) + "\n"
    own, published = (
        asked(text.format(parent=name)).memory_mib or 0 for name in ("Sequential", "Mlp")
    )
    assert own - published > 32 * 64 * 64 * 64 * 4 // MIB - 2


def test_a_closed_block_of_keras_says_how_it_opens() -> None:
    """Before, a model of closed blocks alone was of an "unknown family"."""
    assert "summary(expand_nested=True)" in asked(keras("keras3_nested.txt")).reason
    assert asked(keras("keras3_expanded.txt")).memory_mib


@pytest.mark.parametrize(
    "experts",
    ["(experts): GptOssExperts()", "(experts): NewExperts(\n        (act_fn): SiLU()\n      )"],
)
def test_experts_whose_weights_print_tells_nothing_of(experts: str) -> None:
    """Bare parameters: nine tenths of such a model."""
    line = "(fc1): Linear(in_features=512, out_features=2048, bias=True)"
    text = words("LlamaAttention").replace(line, experts)
    answer = asked(text, seq_len=128)
    assert answer.memory_mib is None
    assert "Experts are in no row: record it with coloc summarize" in answer.reason


def test_experts_that_are_modules_have_rows() -> None:
    line = "(fc1): Linear(in_features=512, out_features=2048, bias=True)"
    text = words("LlamaAttention").replace(line, f"(experts): Experts(\n        {line}\n      )")
    assert "in no row" not in asked(text, seq_len=128).reason


@pytest.mark.parametrize("name", ["keras2_sequential.txt", "keras3_mlp.txt"])
def test_keras_has_the_wider_margin_that_it_is_promised(name: str) -> None:
    answer = asked(keras(name))
    assert unsure(answer) and not any("torchsummary" in note for note in answer.notes)
    assert "Keras" in unsure(answer)[0]


def test_keras_prints_the_last_step_of_a_recurrent_row_and_keeps_all() -> None:
    rule, end = "_" * 65 + "\n", "=" * 65 + "\n"

    def text(steps: int) -> str:
        return (
            'Model: "sequential"\n' + rule + " Layer (type)                Output Shape"
            "              Param #   \n" + end
            + f" embedding (Embedding)       (None, {steps}, 128)".ljust(55) + "1280      \n"
            + " lstm (LSTM)                 (None, 512)".ljust(55) + "1312768   \n"
            + " dense (Dense)               (None, 10)".ljust(55) + "5130      \n"
            + end + "Total params: 1,319,178\nTrainable params: 1,319,178\n"
            "Non-trainable params: 0\n" + rule
        )  # fmt: skip

    short, long = (asked(text(steps), batch=512).memory_mib for steps in (2, 200))
    gates = 512 * 200 * 512 * 4 * 5 // MIB
    assert short and long and long - short > 0.9 * gates
