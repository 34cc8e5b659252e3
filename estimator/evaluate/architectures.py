# SPDX-License-Identifier: Apache-2.0
"""Texts of transformers' architectures against their recordings: synthetic labels, nothing here is
measured on a card.

Each architecture is made twice in sizes drawn at random, printed with print(model) and with
torchinfo (whole, and at its default depth), and recorded; text and recording are then estimated
alike. Needs torch, torchinfo and transformers.
"""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from estimator.evaluate.recorded import prepared
from estimator.evaluate.texts import KINDS
from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack

DRAWS = 2  #: of sizes, for each architecture
SAMPLES, TOKENS, BATCH = 2, 128, 32  #: printed and recorded with, and estimated for
PRINTED, RECORDED = "plain", "recorded"
PLAIN = (PRINTED, *KINDS)  #: ends of the texts that a user has


class Sizes(NamedTuple):
    """Width, blocks, heads, width of the feed-forward, words."""

    width: int
    blocks: int
    heads: int
    inner: int
    words: int


Settings = dict[str, Any]
Spelling = Callable[[Sizes], Settings]


def _usual(s: Sizes) -> Settings:
    return {
        "hidden_size": s.width,
        "num_hidden_layers": s.blocks,
        "num_attention_heads": s.heads,
        "intermediate_size": s.inner,
        "vocab_size": s.words,
    }


def _vision(s: Sizes) -> Settings:
    return {key: value for key, value in _usual(s).items() if key != "vocab_size"}


def _ids(s: Sizes) -> Settings:
    """Special words must be among the words."""
    return {**_usual(s), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _shared(s: Sizes) -> Settings:
    """Keys and values for every second head (grouped queries)."""
    return {**_ids(s), "num_key_value_heads": max(1, s.heads // 2), "head_dim": s.width // s.heads}


def _albert(s: Sizes) -> Settings:
    return {**_usual(s), "embedding_size": 128}


def _gpt(s: Sizes) -> Settings:
    return {
        "n_embd": s.width, "n_layer": s.blocks, "n_head": s.heads, "vocab_size": s.words,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


def _gptj(s: Sizes) -> Settings:
    return {**_gpt(s), "rotary_dim": 32}


def _neo(s: Sizes) -> Settings:
    kinds = [[["global", "local"], s.blocks // 2]]
    return {
        "hidden_size": s.width, "num_layers": s.blocks, "num_heads": s.heads,
        "attention_types": kinds, "vocab_size": s.words, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


def _opt(s: Sizes) -> Settings:
    more = {"ffn_dim": s.inner, "word_embed_proj_dim": s.width}
    return {key: value for key, value in {**_ids(s), **more}.items() if key != "intermediate_size"}


def _bloom(s: Sizes) -> Settings:
    return {"hidden_size": s.width, "n_layer": s.blocks, "n_head": s.heads, "vocab_size": s.words}


def _distil(s: Sizes) -> Settings:
    return {
        "dim": s.width, "n_layers": s.blocks, "n_heads": s.heads, "hidden_dim": s.inner,
        "vocab_size": s.words,
    }  # fmt: skip


def _t5(s: Sizes) -> Settings:
    return {
        "d_model": s.width, "num_layers": s.blocks, "num_heads": s.heads, "d_ff": s.inner,
        "d_kv": s.width // s.heads, "vocab_size": s.words, "decoder_start_token_id": 0,
    }  # fmt: skip


def _bart(s: Sizes) -> Settings:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", s.blocks), ("attention_heads", s.heads), ("ffn_dim", s.inner),
        )
    }  # fmt: skip
    return {
        **sides, "d_model": s.width, "vocab_size": s.words, "pad_token_id": 1,
        "decoder_start_token_id": 2, "forced_eos_token_id": 2,
    }  # fmt: skip


def _xlnet(s: Sizes) -> Settings:
    return {
        "d_model": s.width, "n_layer": s.blocks, "n_head": s.heads, "d_inner": s.inner,
        "vocab_size": s.words,
    }  # fmt: skip


def _swin(s: Sizes) -> Settings:
    heads = max(1, s.width // 256)
    return {
        "embed_dim": 32 * heads,
        "depths": [2, 2, s.blocks, 2],
        "num_heads": [heads * 2**k for k in range(4)],
    }


def _convnext(s: Sizes) -> Settings:
    first = max(32, s.width // 8)
    return {"hidden_sizes": [first * 2**k for k in range(4)], "depths": [2, 2, s.blocks, 2]}


def _xglm(s: Sizes) -> Settings:
    return {
        "d_model": s.width, "num_layers": s.blocks, "attention_heads": s.heads,
        "ffn_dim": s.inner, "vocab_size": s.words,
    }  # fmt: skip


def _as_it_is(s: Sizes) -> Settings:
    return {}


#: class, its configuration's, how that spells sizes, and what else it is told: those that the rules
#: for print(model) and for language models were mended with
MODELS: tuple[tuple[str, str, Spelling, Settings], ...] = (
    ("BertForMaskedLM", "BertConfig", _usual, {}),
    ("BertForSequenceClassification", "BertConfig", _usual, {}),
    ("RobertaForMaskedLM", "RobertaConfig", _usual, {"max_position_embeddings": 514}),
    ("XLMRobertaForSequenceClassification", "XLMRobertaConfig", _usual, {}),
    ("CamembertForMaskedLM", "CamembertConfig", _usual, {"max_position_embeddings": 514}),
    ("DistilBertForMaskedLM", "DistilBertConfig", _distil, {}),
    ("AlbertForMaskedLM", "AlbertConfig", _albert, {}),
    ("ElectraForMaskedLM", "ElectraConfig", _albert, {}),
    ("DebertaV2ForSequenceClassification", "DebertaV2Config", _usual,
     {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    ("MPNetForMaskedLM", "MPNetConfig", _usual, {"max_position_embeddings": 514}),
    ("ModernBertForMaskedLM", "ModernBertConfig", _ids,
     {"cls_token_id": 1, "sep_token_id": 2}),
    ("LongformerForMaskedLM", "LongformerConfig", _usual,
     {"attention_window": 64, "max_position_embeddings": 514}),
    ("GPT2LMHeadModel", "GPT2Config", _gpt, {}),
    ("GPTNeoForCausalLM", "GPTNeoConfig", _neo, {}),
    ("GPTJForCausalLM", "GPTJConfig", _gptj, {}),
    ("GPTNeoXForCausalLM", "GPTNeoXConfig", _ids, {}),
    ("OPTForCausalLM", "OPTConfig", _opt, {}),
    ("BloomForCausalLM", "BloomConfig", _bloom, {}),
    ("LlamaForCausalLM", "LlamaConfig", _ids, {}),
    ("MistralForCausalLM", "MistralConfig", _shared, {}),
    ("Qwen2ForCausalLM", "Qwen2Config", _shared, {}),
    ("Qwen3ForCausalLM", "Qwen3Config", _shared, {}),
    ("GemmaForCausalLM", "GemmaConfig", _shared, {}),
    ("PhiForCausalLM", "PhiConfig", _ids, {}),
    ("Phi3ForCausalLM", "Phi3Config", _ids, {}),
    ("FalconForCausalLM", "FalconConfig", _ids, {}),
    ("T5ForConditionalGeneration", "T5Config", _t5, {}),
    ("MT5ForConditionalGeneration", "MT5Config", _t5, {}),
    ("BartForConditionalGeneration", "BartConfig", _bart, {}),
    ("PegasusForConditionalGeneration", "PegasusConfig", _bart, {}),
    ("MBartForConditionalGeneration", "MBartConfig", _bart, {}),
    ("XLNetForSequenceClassification", "XLNetConfig", _xlnet, {}),
    ("XLNetLMHeadModel", "XLNetConfig", _xlnet, {}),
    ("ViTForImageClassification", "ViTConfig", _vision, {}),
    ("DeiTForImageClassification", "DeiTConfig", _vision, {}),
    ("BeitForImageClassification", "BeitConfig", _vision, {}),
    ("Dinov2ForImageClassification", "Dinov2Config", _vision, {"image_size": 224}),
    ("SwinForImageClassification", "SwinConfig", _swin, {}),
    ("ConvNextForImageClassification", "ConvNextConfig", _convnext, {}),
    ("CLIPVisionModel", "CLIPVisionConfig", _vision, {}),
    ("SiglipVisionModel", "SiglipVisionConfig", _vision, {}),
)  # fmt: skip


#: those that were first looked at when the rules stood
KEPT_BACK: tuple[tuple[str, str, Spelling, Settings], ...] = (
    ("ErnieForMaskedLM", "ErnieConfig", _usual, {}),
    ("Data2VecTextForMaskedLM", "Data2VecTextConfig", _usual, {"max_position_embeddings": 514}),
    ("RoFormerForMaskedLM", "RoFormerConfig", _usual, {}),
    ("MegatronBertForMaskedLM", "MegatronBertConfig", _usual, {}),
    ("ConvBertForMaskedLM", "ConvBertConfig", _usual, {}),
    ("NystromformerForMaskedLM", "NystromformerConfig", _usual, {}),
    ("StableLmForCausalLM", "StableLmConfig", _shared, {}),
    ("OlmoForCausalLM", "OlmoConfig", _ids, {}),
    ("Olmo2ForCausalLM", "Olmo2Config", _ids, {}),
    ("GraniteForCausalLM", "GraniteConfig", _ids, {}),
    ("CohereForCausalLM", "CohereConfig", _ids, {}),
    ("Starcoder2ForCausalLM", "Starcoder2Config", _shared, {}),
    ("Gemma2ForCausalLM", "Gemma2Config", _shared, {}),
    ("CodeGenForCausalLM", "CodeGenConfig", _gptj, {}),
    ("BioGptForCausalLM", "BioGptConfig", _ids, {}),
    ("XGLMForCausalLM", "XGLMConfig", _xglm, {}),
    ("BlenderbotForConditionalGeneration", "BlenderbotConfig", _bart, {}),
    ("M2M100ForConditionalGeneration", "M2M100Config", _bart, {}),
    ("ViTMSNForImageClassification", "ViTMSNConfig", _vision, {}),
    ("SegformerForImageClassification", "SegformerConfig", _as_it_is, {}),
    ("PoolFormerForImageClassification", "PoolFormerConfig", _as_it_is, {}),
    ("MobileViTForImageClassification", "MobileViTConfig", _as_it_is, {}),
    ("ResNetForImageClassification", "ResNetConfig", _as_it_is, {}),
    ("RegNetForImageClassification", "RegNetConfig", _as_it_is, {}),
    ("PvtForImageClassification", "PvtConfig", _as_it_is, {}),
)


class Judged(NamedTuple):
    """An architecture's draw: MiB by its recording, and by each of its texts (None: no figure)."""

    name: str
    recorded: int
    texts: dict[str, tuple[int, int] | None]


def draw(name: str, number: int) -> Sizes:
    """The sizes of an architecture's draw: always the same."""
    chance = random.Random(f"{name} {number}")
    width = chance.choice((256, 384, 512, 768))
    return Sizes(
        width, chance.choice((2, 4, 6)), width // 64, 4 * width, chance.choice((2000, 8000, 32000))
    )


def make(cache: Path) -> None:
    """Files NAME-DRAW.KIND; those that are there stay. What cannot be made is named on stderr."""
    missing = [
        (f"{name}-{number}", name, config, {**spelling(draw(name, number)), **told})
        for name, config, spelling, told in (*MODELS, *KEPT_BACK)
        for number in range(1 if spelling is _as_it_is else DRAWS)
        if not all((cache / f"{name}-{number}.{end}").exists() for end in (RECORDED, *PLAIN))
    ]
    if not missing:
        return
    if "transformers" not in sys.modules:
        prepared()
    cache.mkdir(parents=True, exist_ok=True)
    for stem, name, config, settings in missing:
        try:
            for end, text in _texts(name, config, settings).items():
                (cache / f"{stem}.{end}").write_text(text, encoding="utf-8")
        except Exception as why:  # many architectures; one that fails must not stop the rest
            print(f"{stem}: {type(why).__name__}: {str(why)[:160]}", file=sys.stderr)


def _texts(name: str, config: str, settings: Settings) -> dict[str, str]:
    import torch
    import torchinfo
    import transformers

    from slurm_coloc.summarize.jobs import Wish, job_of
    from slurm_coloc.summarize.making import made

    torch.set_num_threads(1)
    wish = Wish(batch_size=SAMPLES, seq_len=TOKENS)

    def maker() -> Any:
        return getattr(transformers, name)(getattr(transformers, config)(**settings))

    found = {RECORDED: made(lambda: job_of(maker(), wish, name), wish).text}
    model = maker().train()
    total = sum(p.numel() for p in model.parameters())
    found[PRINTED] = f"{model}\nTotal params: {total:,}\nTrainable params: {total:,}\n"
    batch = job_of(model, wish, name).inputs(SAMPLES)
    for kind, how in KINDS.items():
        text = torchinfo.summary(model, input_data=batch, mode="train", verbose=0, **how)
        found[kind] = f"{text}\n"
    return found


def judged(
    models: Sequence[tuple[str, str, Spelling, Settings]], cache: Path, optimizer: str
) -> list[Judged]:
    """All draws that are in the cache, without a context. print(model) needs words as input."""
    found = []
    for name, _, spelling, _ in models:
        for number in range(DRAWS):
            path = cache / f"{name}-{number}.{RECORDED}"
            if not path.exists():
                continue
            words = "vocab_size" in spelling(draw(name, number))
            options = TrainingOptions(BATCH, TOKENS if words else None, optimizer)
            summary = parse_summary(path.read_text(encoding="utf-8"))
            answer = estimate(summary, options, stack=Stack(0), estimator="traced")
            if answer.memory_mib is None:
                print(f"{name}-{number}: {answer.reason}", file=sys.stderr)
                continue
            texts = {
                end: _asked(cache / f"{name}-{number}.{end}", options)
                for end in PLAIN
                if words or end != PRINTED
            }
            found.append(Judged(f"{name}-{number}", answer.memory_mib, texts))
    return found


def _asked(path: Path, options: TrainingOptions) -> tuple[int, int] | None:
    if not path.exists():
        return None
    try:
        summary = parse_summary(path.read_text(encoding="utf-8"))
    except SummaryError:
        return None
    answer = estimate(summary, options, stack=Stack(0), estimator="text")
    if answer.memory_mib is None or answer.upper_mib is None:
        return None
    return answer.memory_mib, answer.upper_mib


def table(cases: list[Judged]) -> str:
    """A line for each kind of text: how far it is from the recording."""
    lines = [
        "| text | answered | median | within 5 % | 10 % | 20 % | recording above the bound |",
        "|---|---|---|---|---|---|---|",
    ]
    for end in PLAIN:
        asked = [case for case in cases if end in case.texts]
        told = [(case.recorded, found) for case in asked if (found := case.texts[end])]
        errors = sorted(abs(found[0] / recorded - 1) for recorded, found in told)
        if not errors:
            continue
        near = " | ".join(
            f"{100 * sum(e < limit for e in errors) / len(errors):.0f} %"
            for limit in (0.05, 0.1, 0.2)
        )
        above = sum(found[1] < recorded for recorded, found in told)
        lines.append(
            f"| {end} | {len(told)} of {len(asked)} | {100 * errors[len(errors) // 2]:.1f} % |"
            f" {near} | {above} |"
        )
    return "\n".join(lines)


def each(cases: list[Judged]) -> str:
    """A line a draw."""
    lines = []
    for case in cases:
        off = []
        for end, found in case.texts.items():
            if found is None:
                off.append(f"{end} no figure")
                continue
            below = " ABOVE THE BOUND" if found[1] < case.recorded else ""
            off.append(f"{end} {100 * (found[0] / case.recorded - 1):+.1f} %{below}")
        lines.append(f"{case.name:40} {case.recorded:6} MiB  {', '.join(off)}")
    return "\n".join(lines)
