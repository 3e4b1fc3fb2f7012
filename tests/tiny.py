"""Small real models for tests: a byte tokenizer and Llamas with random weights.

The tokenizer's pad token is its end token, as SmolLM2-Instruct's is: what confuses the two fails.
"""

from collections.abc import Sequence

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from motet.agents import Completion, GenerationConfig, LMAgent
from motet.algos import MAGRPOTrainer, Rollout
from motet.envs import TextEnv

END = 0


def byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|end|>": END, **{letter: i + 1 for i, letter in enumerate(alphabet)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>"
    )


def tiny_llama(seed: int = 0, *, context: int = 512) -> LlamaForCausalLM:
    """A two-layer Llama over bytes that ends a completion after about twenty tokens."""
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        eos_token_id=END,
        pad_token_id=END,
        bos_token_id=None,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def tiny_agent(seed: int = 0, *, context: int = 512, **generation: float | bool | None) -> LMAgent:
    settings = GenerationConfig(**{"max_new_tokens": 24, **generation})
    return LMAgent(
        tiny_llama(seed, context=context), byte_tokenizer(), generation=settings, seed=seed
    )


class CountingAgent:
    """Wrap an agent and record how often, and with how many observations, it was asked."""

    def __init__(self, agent: LMAgent) -> None:
        self._agent = agent
        self.calls: list[int] = []

    def act(
        self, observations: Sequence[str], num_generations: int = 1, *, seed: int | None = None
    ) -> list[list[Completion]]:
        self.calls.append(len(observations))
        return self._agent.act(observations, num_generations, seed=seed)


LETTERS = "abcd"


def letter_agent(seed: int = 0, **kwargs: bool) -> LMAgent:
    """An agent that says one of four letters, or nothing: the smallest thing that can learn."""
    vocabulary = {"<|end|>": END, **{letter: i + 1 for i, letter in enumerate(LETTERS)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|end|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        eos_token_id=END,
        pad_token_id=END,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>"
    )
    return LMAgent(model, fast, generation=GenerationConfig(max_new_tokens=1), seed=seed, **kwargs)


def say_the_same(*texts: list[str]) -> list[float]:
    """Reward 1 when all agents say the same letter; one who is alone is to say "a"."""
    alone = ["a"] if len(texts) == 1 else []
    return [
        float(len({*said, *alone}) == 1 and "" not in said) for said in zip(*texts, strict=True)
    ]


def matching_env(num_turns: int = 1, num_agents: int = 2, **kwargs: object) -> TextEnv:
    """The task of saying the same letter."""
    return TextEnv(
        [{"prompt": letter} for letter in LETTERS],
        say_the_same,
        transition=lambda prompt: [prompt] * num_agents,
        num_turns=num_turns,
        num_agents=num_agents,
        **kwargs,
    )


class Cloned:
    """A `TextEnv` that does not look like one, so that it is stepped by clones, the slow path."""

    def __init__(self, env: TextEnv) -> None:
        self._env = env
        self.possible_agents = env.possible_agents

    @property
    def agents(self) -> list[str]:
        return self._env.agents

    def reset(self, seed: int | None = None, options: object = None) -> tuple[dict, dict]:
        return self._env.reset(options={"row": seed})

    def step(self, actions: dict[str, str]) -> tuple[dict, dict, dict, dict, dict]:
        return self._env.step(actions)

    def clone(self, *, seed: int | None = None) -> "Cloned":
        return Cloned(self._env.clone(seed=seed))


def caught_gradients(trainer: MAGRPOTrainer) -> dict[str, dict[str, torch.Tensor]]:
    """Gradients of each agent's weights by name, filled in by every step: it frees them at its end.

    They are as the optimizer gets them, clipped. Weights that get none are left out.
    """
    caught: dict[str, dict[str, torch.Tensor]] = {}
    for updater in trainer.updaters:

        def catch(optimizer: torch.optim.Optimizer, *_: object, policy=updater.policy) -> None:
            gradients = {
                name: weight.grad.clone()
                for name, weight in policy.model.named_parameters()
                if weight.grad is not None
            }
            caught.update(dict.fromkeys(policy.agents, gradients))

        updater.optimizer.register_step_pre_hook(catch)
    return caught


def updated_as_expected(
    trainer: MAGRPOTrainer, rollout: Rollout, models: dict[str, torch.nn.Module], loss: torch.Tensor
) -> dict[str, float]:
    """Update once, hold loss and every gradient to those of a slow one; return the metrics.

    The weights are moved by the update: give the optimizer a tiny learning rate, and no clipping.
    """
    for model in models.values():
        model.zero_grad()
    loss.backward()
    slow = {
        name: {key: weight.grad.clone() for key, weight in model.named_parameters()}
        for name, model in models.items()
    }
    caught = caught_gradients(trainer)
    metrics = trainer.update(rollout)
    total = metrics["train/loss"] * metrics["train/num_optimizer_steps"]
    assert abs(total - loss.item()) <= 1e-5 * max(1.0, abs(loss.item()))
    for name, gradients in slow.items():
        assert caught[name].keys() == gradients.keys()
        for key, gradient in gradients.items():
            error = float((caught[name][key] - gradient).norm())
            assert error <= 1e-5 * float(gradient.norm()) + 1e-7, (name, key)
    return metrics
