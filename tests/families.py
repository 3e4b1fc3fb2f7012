"""Small models of several families, with random weights."""

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

SIZES = {"vocab_size": 97, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA_LIKE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
SHARING = {
    "llama": lambda: LlamaConfig(**LLAMA_LIKE, **SIZES),
    "qwen2": lambda: Qwen2Config(**LLAMA_LIKE, **SIZES),
    "gpt2": lambda: GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=128, **SIZES),
    "mistral": lambda: MistralConfig(sliding_window=64, **LLAMA_LIKE, **SIZES),
    "gemma2": lambda: Gemma2Config(head_dim=8, sliding_window=64, **LLAMA_LIKE, **SIZES),
    "eager": lambda: LlamaConfig(attn_implementation="eager", **LLAMA_LIKE, **SIZES),
}


def model_of(config: PretrainedConfig) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()
