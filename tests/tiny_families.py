"""Families of real models, as small as they come, with random weights everywhere.

Biases, norms and gates are moved off their initial zeros and ones too: a weight that cancels out
of the computation would hide what is done to it.
"""

import functools

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

VOCABULARY = 40
END = 0  # the end token, and what the tokenizer and the models pad with
CONTEXT = 96
# of Gemma2's sliding layers: many rows are longer; enough for the learner's trial of whether
# siblings can share a row
WINDOW = 10

_IDS = {
    "vocab_size": VOCABULARY,
    "bos_token_id": None,
    "eos_token_id": END,
    "pad_token_id": END,
}
_SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    **_IDS,
}
_CONFIGS = {
    "llama": lambda: LlamaConfig(tie_word_embeddings=False, **_SHAPE),
    "tied llama": lambda: LlamaConfig(tie_word_embeddings=True, **_SHAPE),
    "gpt2": lambda: GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=CONTEXT, **_IDS),
    "qwen2": lambda: Qwen2Config(tie_word_embeddings=False, **_SHAPE),
    # soft caps bend the logits of attention (in "eager" only) and of the vocabulary
    "gemma2": lambda: Gemma2Config(
        head_dim=4,
        query_pre_attn_scalar=4,
        sliding_window=WINDOW,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        attn_implementation="eager",
        **_SHAPE,
    ),
}
FAMILIES = tuple(_CONFIGS)


@functools.cache
def tiny_model(family: str, seed: int = 0) -> PreTrainedModel:
    """The one model of a family and a seed; whoever trains it must not move its weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(_CONFIGS[family]()).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.2)
    return model


def letter(token: int) -> str:
    """The text of a token; the end token's is its name."""
    return "<|end|>" if token == END else chr(ord("A") + token)


@functools.cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A letter per token; pad is the end token."""
    vocabulary = {letter(token): token for token in range(VOCABULARY)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>"
    )
