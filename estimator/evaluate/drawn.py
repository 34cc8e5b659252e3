# SPDX-License-Identifier: Apache-2.0
"""Architectures of transformers in sizes drawn at random, as their configurations spell them."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple


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


def as_it_is(s: Sizes) -> Settings:
    return {}


#: draws of sizes for each architecture
DRAWS = 2
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
    ("SegformerForImageClassification", "SegformerConfig", as_it_is, {}),
    ("PoolFormerForImageClassification", "PoolFormerConfig", as_it_is, {}),
    ("MobileViTForImageClassification", "MobileViTConfig", as_it_is, {}),
    ("ResNetForImageClassification", "ResNetConfig", as_it_is, {}),
    ("RegNetForImageClassification", "RegNetConfig", as_it_is, {}),
    ("PvtForImageClassification", "PvtConfig", as_it_is, {}),
)


def draw(name: str, number: int) -> Sizes:
    """The sizes of an architecture's draw: always the same."""
    chance = random.Random(f"{name} {number}")
    width = chance.choice((256, 384, 512, 768))
    return Sizes(
        width, chance.choice((2, 4, 6)), width // 64, 4 * width, chance.choice((2000, 8000, 32000))
    )
