"""Tokenizers of other makes than `tiny`'s, with chat templates, and small models for them."""

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
)

from motet.agents import GenerationConfig, LMAgent, pocket_path

LLAMA = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content + ' </s>' }}"
    "{% else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}"
)
CHATML_SIGNS = ("<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou write tales.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def as_llamas(prepend_scheme: str = "first") -> PreTrainedTokenizerFast:
    """Words, bytes for what they lack, and a space before the first word of a text."""
    words = ["▁", "▁the", "▁end", "the", "en", "d", "e", "n", ".", "▁▁", "[INST]", "[/INST]"]
    tokens = ["</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme, split=False)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")
    fast.chat_template = LLAMA
    return fast


def chatml() -> PreTrainedTokenizerFast:
    """The embedded model's byte pairs, with ChatML's signs, its template, and a system prompt."""
    tokenizer = AutoTokenizer.from_pretrained(pocket_path())
    signs = [AddedToken(sign, special=True, normalized=False) for sign in CHATML_SIGNS]
    tokenizer.add_tokens(signs, special_tokens=True)
    tokenizer.eos_token = CHATML_SIGNS[1]
    tokenizer.chat_template = CHATML
    return tokenizer


def agent_with(
    tokenizer: PreTrainedTokenizerFast,
    kind: type[PretrainedConfig] = LlamaConfig,
    generation: GenerationConfig | None = None,
    **kwargs: object,
) -> LMAgent:
    """A model of random weights for a tokenizer, which often stops at its end token."""
    end = tokenizer.eos_token_id
    config = kind(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        eos_token_id=end,
        bos_token_id=None,
        pad_token_id=end,
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
        model.lm_head.weight[end] = 0.3 * torch.randn(16)
        model.lm_head.weight *= 3
    generation = generation or GenerationConfig(max_new_tokens=6, top_k=20)
    return LMAgent(model, tokenizer, generation=generation, **kwargs)
