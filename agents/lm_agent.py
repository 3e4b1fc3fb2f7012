"""A transformers causal language model as an agent."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from motet.agents.adapter_files import load_adapter, save_adapter, save_base
from motet.agents.adapters import add_adapter, opened, train_adapter
from motet.agents.agent import Completion, History, check_request
from motet.agents.conversation import Conversation, check_contexts
from motet.agents.decoding import decoding
from motet.agents.generation import GenerationConfig
from motet.agents.kept_caches import KeptCaches
from motet.agents.loading import Source, default_device, load
from motet.agents.lora_config import default_lora, warn_of_dropout
from motet.agents.merged_model import merged_model
from motet.agents.quantization import made_trainable
from motet.agents.sampler import Sequences, Stops, sample
from motet.agents.stop_strings import StopStrings

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel
    from transformers import BitsAndBytesConfig


@dataclass(slots=True)
class PolicyVersion:
    """How many updates a policy has seen; shared by all agents that share its weights."""

    value: int = 0


class LMAgent:
    """Sample a causal language model, and let a learner train it.

    The sampler is the module that is trained: there is no second copy and nothing to
    synchronise. To share parameters, put the same object under several agents' names; to share all
    but a LoRA adapter each, see `with_adapter`.

    Args:
        model: a transformers causal language model, or a `PeftModel` around one.
        tokenizer: its tokenizer. It is only read: a missing pad token is no trouble.
        generation: sampling settings. Those of the model's own `generation_config` are not used,
            except its stop tokens.
        chat_template: send each observation as a user message through the tokenizer's chat
            template. By default it goes in raw.
        system_prompt: system message before it; needs `chat_template=True`.
        history: "none" sees an observation alone. "append" sees the running conversation, by token
            ids: the last prompt, the last completion and then the observation, as `act` gets the
            completion in `contexts`. Rollouts and evaluation pass it on by themselves.
        overflow: what to do with a prompt that does not fit into the context together with
            `max_new_tokens`: "raise", or "truncate_left" to drop its beginning. With history it
            is the whole conversation that is the prompt.
        frozen: keep learners from training it.
        seed: seed of the agent's own randomness, used where `act` gets none.
        adapter: name of the LoRA adapter in the model that the agent acts with; default: the active
            one, where the model has adapters. The base is frozen then.

    Attributes:
        model: the language model, without peft's wrapper.
        tokenizer: its tokenizer.
        adapter: name of the agent's adapter in the model, None for the plain model.
        generation: sampling settings.
        history: whether prompts go on from what the agent said before.
        frozen: whether learners leave it alone.
    """

    def __init__(  # noqa: PLR0913  # transformers' parts and the options of one agent
        self,
        model: "PreTrainedModel | PeftModel",
        tokenizer: PreTrainedTokenizerBase,
        *,
        generation: GenerationConfig | None = None,
        chat_template: bool = False,
        system_prompt: str | None = None,
        history: History = "none",
        overflow: Literal["raise", "truncate_left"] = "raise",
        frozen: bool = False,
        seed: int | None = None,
        adapter: str | None = None,
    ) -> None:
        base, adapter = opened(model, adapter)
        _check_parts(base, tokenizer, generation)
        conversation = Conversation(tokenizer, chat_template, system_prompt)
        if history not in ("none", "append"):
            raise ValueError(f"Expected history 'none' or 'append', got {history!r}.")
        if history == "append":
            conversation.check_continues()
        if overflow not in ("raise", "truncate_left"):
            raise ValueError(f"Expected overflow 'raise' or 'truncate_left', got {overflow!r}.")
        if adapter is not None:
            train_adapter(base, adapter)
            warn_of_dropout(base.peft_config[adapter])
        made_trainable(base)
        self.model = base
        self.tokenizer = tokenizer
        self.adapter = adapter
        self.generation = generation or GenerationConfig()
        self.history: History = history
        self.frozen = frozen
        self.version = PolicyVersion()
        self._conversation = conversation
        self._overflow = overflow
        self._kept: KeptCaches | None = None  # while caches are kept, and for these weights only
        self._stops: StopStrings | None = None
        self._stop_strings()  # refused here rather than when it acts
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        lora: "LoraConfig | None" = None,
        quantization_config: "BitsAndBytesConfig | None" = None,
        gguf_file: str | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device | None = None,
        revision: str = "main",
        **kwargs: Any,
    ) -> Self:
        """Load a model and its tokenizer, or an adapter with its base.

        Args:
            name_or_path: hub id or folder, of a model; or folder of a saved adapter.
            lora: train a new LoRA adapter with these settings instead of all weights; needs
                `pip install "motet[lora]"`. Its name is `adapter`, or "default".
            quantization_config: load the weights in 4 or 8 bits; needs
                `pip install "motet[quantization]"`. They can be read, and trained only through
                adapters.
            gguf_file: name of a GGUF file in it; needs `pip install "motet[gguf]"`. Its weights
                are converted to ordinary ones, so that the agent can be saved.
            dtype: of the weights. Small updates vanish in 16 bits, so that float32 is the default.
            device: where to put the model; default: a GPU if there is one.
            revision: branch, tag or commit on the hub.
            **kwargs: passed on to the constructor.

        Raises:
            FileNotFoundError: where the name is a folder without a model, or no folder at all, or
                where the base of an adapter is not there.
            ImportError: where peft or bitsandbytes is needed and not installed.
            TypeError: where `lora` or `quantization_config` is of another class.
            ValueError: where `lora` is given for a folder that has an adapter, or
                `quantization_config` for a GGUF file or a device that it cannot be on.
        """
        source = Source(name_or_path, revision, gguf_file, quantization_config)
        if lora is not None and source.adapter is not None:
            raise ValueError(
                f"Expected a model for lora=, got the adapter in {source.adapter}, which has "
                "settings of its own; leave lora out."
            )
        model, tokenizer = load(source, dtype, device or default_device())
        adapter = lora if source.adapter is None else source.adapter
        if adapter is not None:
            kwargs["adapter"] = kwargs.get("adapter") or "default"
            _attach(model, kwargs["adapter"], adapter, kwargs.get("seed"))
        return cls(model, tokenizer, **kwargs)

    @property
    def policy_version(self) -> int:
        """How many updates the policy has seen."""
        return self.version.value

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a completion: the model's, else the tokenizer's."""
        config = self.model.generation_config
        stop = config.eos_token_id if config is not None else None
        if stop is None:
            stop = self.tokenizer.eos_token_id
        if stop is None:
            return frozenset()
        return frozenset([stop] if isinstance(stop, int) else stop)

    @property
    def stops(self) -> Stops:
        """All that ends a completion: `stop_ids`, and the settings' stop strings."""
        return Stops(self.stop_ids, self._stop_strings())

    @property
    def context_length(self) -> int | None:
        """Most tokens of prompt and completion together, None for models without a limit."""
        config = self.model.config.get_text_config()
        length: int | None = getattr(config, "max_position_embeddings", None)  # not all have it
        return length

    @property
    def settings(self) -> dict[str, str]:
        """What it acts by besides weights and tokenizer; see `DescribedAgent`."""
        return {
            "generation": str(self.generation),
            "history": self.history,
            "chat_template": str(self._conversation.chat_template),
            "system_prompt": repr(self._conversation.system_prompt),
            "overflow": self._overflow,
        }

    def with_generation(self, **changes: Any) -> Self:
        """Return an agent with the same weights and other sampling settings."""
        twin = copy.copy(self)
        twin.generation = replace(self.generation, **changes)
        twin._stop_strings()  # refused here rather than when it acts
        twin._kept = None
        return twin

    def with_adapter(self, name: str, lora: "LoraConfig | str | Path | None" = None) -> Self:
        """Return another agent over the same base, with a LoRA adapter of its own.

        The base is frozen with its first adapter: it is what all of them share. This agent stays
        what it is, the plain base or another adapter.

        Args:
            name: of the adapter in the model.
            lora: its settings, or a folder to load it from; default: the settings of this agent's
                adapter, else peft's, which adapt some of the attention's layers.

        Returns:
            An agent with the same options that is not frozen, whose policy has seen no update.

        Raises:
            ImportError: where peft is not installed.
            TypeError: where the settings are no `LoraConfig`.
            ValueError: where the name is taken or cannot be one, or the settings would change what
                the agents share.
        """
        seed = int(torch.randint(2**63 - 1, (), generator=self._generator))
        if lora is None:
            lora = default_lora() if self.adapter is None else self.model.peft_config[self.adapter]
        _attach(self.model, name, lora, seed)
        warn_of_dropout(self.model.peft_config[name])
        twin = copy.copy(self)
        twin.adapter = name
        twin.frozen = False
        twin.version = PolicyVersion()
        twin._kept = None
        twin._generator = torch.Generator().manual_seed(seed)
        return twin

    def encode(self, observation: str, context: Completion | None = None) -> tuple[int, ...]:
        """Return the prompt's token ids, within the context length.

        Args:
            observation: what the agent sees.
            context: its last completion, which the prompt goes on from with `history="append"`.

        Raises:
            ValueError: where the prompt and `max_new_tokens` do not fit into the context length.
        """
        if context is None:
            ids = self._conversation.opening(observation)
        else:
            strings = self.generation.stop_strings or ()
            ids = self._conversation.continued(context, observation, self.stop_ids, strings)
        return tuple(self._fitted(ids, observation)) or (self._start_id(),)

    def _fitted(self, ids: list[int], observation: str) -> list[int]:
        """Return a prompt as it fits into the context, or raise."""
        context = self.context_length
        if context is None:
            return ids
        room = context - self.generation.max_new_tokens
        if room < 1:
            raise ValueError(
                f"Expected max_new_tokens below the context of {context} tokens, got "
                f"{self.generation.max_new_tokens}: there is no room for a prompt."
            )
        if len(ids) <= room:
            return ids
        if self._overflow == "raise":
            raise ValueError(
                f"Expected a prompt of at most {room} tokens (context {context} "
                f"less max_new_tokens={self.generation.max_new_tokens}), got {len(ids)} for "
                f"{observation[:60]!r}...; shorten it, lower max_new_tokens, or set "
                "overflow='truncate_left'."
            )
        first = [self.tokenizer.bos_token_id] if ids[0] == self.tokenizer.bos_token_id else []
        return first + ids[len(ids) - room + len(first) :]

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        """Sample completions; see `Agent.act`. All observations are decoded side by side.

        Raises:
            ValueError: where there are contexts although `history` is "none", not one for each
                observation, or without token ids of the model; where a prompt does not fit.
        """
        prompts = self.prompts(observations, num_generations, contexts)
        if not prompts:
            return [[] for _ in observations]
        if self._kept is not None:
            self._kept.refresh(self.policy_version)
        with decoding(self.model, self.generation, [self.adapter] * len(prompts)):
            sampled = sample(
                self.model,
                prompts,
                self.generation,
                self.stops,
                self.uniforms(len(prompts), seed),
                self._kept,
            )
        return self.completions(prompts, sampled, num_generations)

    def prompts(
        self,
        observations: Sequence[str],
        num_generations: int,
        contexts: Sequence[Completion | None] | None,
    ) -> list[tuple[int, ...]]:
        """Return the token ids of what `act` reads, one row for each answer.

        Args:
            observations: (B,) as for `act`.
            num_generations: G.
            contexts: as for `act`.

        Returns:
            (B G,) rows, observation by observation.

        Raises:
            ValueError: as `act`.
        """
        check_request(observations, num_generations)
        if contexts is not None and self.history == "none":
            raise ValueError(
                "Expected no contexts for an agent with history='none', which sees its "
                "observation alone; leave them out, or make it with history='append'."
            )
        if contexts is None:
            contexts = [None] * len(observations)
        rows = self.model.get_input_embeddings().weight.shape[0]
        check_contexts(contexts, len(observations), rows)
        seen = list(zip(observations, contexts, strict=True))
        encoded = {pair: self.encode(*pair) for pair in dict.fromkeys(seen)}
        return [encoded[pair] for pair in seen for _ in range(num_generations)]

    def uniforms(self, num_rows: int, seed: int | None) -> Tensor:
        """Draw the random numbers that some rows are sampled with.

        Args:
            num_rows: R.
            seed: of all of them; None goes on with the agent's own randomness.

        Returns:
            (R, max_new_tokens) float64 in [0, 1), on the CPU.
        """
        generator = self._generator
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
        shape = (num_rows, self.generation.max_new_tokens)
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    def completions(
        self, prompts: Sequence[tuple[int, ...]], sampled: Sequences, num_generations: int
    ) -> list[list[Completion]]:
        """Return what was sampled as `act` does.

        Args:
            prompts: (B G,) what `prompts` returned.
            sampled: (B G,) ids and log-probabilities.
            num_generations: G.

        Returns:
            (B,) lists of (G,) completions.
        """
        completions = [
            self._completion(prompt, ids, log_probs)
            for prompt, ids, log_probs in zip(prompts, sampled.ids, sampled.log_probs, strict=True)
        ]
        return [
            completions[start : start + num_generations]
            for start in range(0, len(completions), num_generations)
        ]

    @property
    def keeps_caches(self) -> bool:
        """Whether keys and values are kept from one `act` to the next."""
        return self._kept is not None

    @contextmanager
    def keeping_caches(self) -> Iterator[None]:
        """Keep keys and values from one `act` to the next, which goes on from them.

        It saves reading a conversation anew at every turn. What is kept belongs to the weights, so
        that no optimizer may step before the context ends and all is dropped; `collect_rollouts`
        opens one for each rollout.
        With `history="none"` there is nothing to go on from, and nothing is kept. Results are the
        same to rounding. `GenerationConfig.max_cache_gib` limits what is kept.
        """
        outer = self._kept
        if self.history == "append" and outer is None:
            self._kept = KeptCaches(self.model)
        try:
            yield
        finally:
            self._kept = outer

    def merged(self) -> Self:
        """Return an agent with the adapter in the weights, and nothing but those: for deployment.

        Its model is a copy of the base, which stays as it is; it draws what this agent would, up to
        rounding.

        Raises:
            ValueError: where the agent has no adapter, or the base is quantised.
        """
        if self.adapter is None:
            raise ValueError(
                "Expected an agent with an adapter to merge, got one without; its model is ready "
                "as it is."
            )
        twin = copy.copy(self)
        twin.model = merged_model(self.model, self.adapter)
        twin.adapter = None
        twin.version = PolicyVersion(self.version.value)
        twin._kept = None
        twin._generator = self._generator.clone_state()
        return twin

    def save_pretrained(self, folder: str | Path, *, merge: bool = False) -> None:
        """Write model and tokenizer into a folder that plain transformers loads.

        Of an agent with an adapter that alone is written, in a folder that peft loads.

        Args:
            folder: is made where it is not there.
            merge: write a whole model with the adapter in its weights; see `merged`.

        Raises:
            ValueError: as `merged`.
        """
        if merge:
            self.merged().save_pretrained(folder)
            return
        if self.adapter is None:
            save_base(self.model, folder)
        else:
            save_adapter(self.model, self.adapter, folder)
        self.tokenizer.save_pretrained(folder)

    def _completion(
        self, prompt: tuple[int, ...], ids: list[int], log_probs: list[float]
    ) -> Completion:
        stopped = ids[-1] in self.stop_ids
        text = self.tokenizer.decode(ids[:-1] if stopped else ids, skip_special_tokens=True)
        stops = self._stop_strings()
        found = None if stops is None else stops.find(text)
        if found is not None:
            text, stopped = text[:found], True
        return Completion(
            text=text,
            prompt_ids=prompt,
            completion_ids=tuple(ids),
            log_probs=tuple(log_probs),
            finish_reason="stop" if stopped else "length",
            policy_version=self.policy_version,
        )

    def _stop_strings(self) -> StopStrings | None:
        """Return what finds the stop strings: made once, and anew for another `generation`."""
        strings = self.generation.stop_strings
        if strings is None:
            return None
        if self._stops is None or self._stops.strings != strings:
            self._stops = StopStrings(self.tokenizer, strings)
        return self._stops

    def _start_id(self) -> int:
        """Token to start from where a prompt has none: a model cannot read nothing."""
        for token in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        raise ValueError(
            "Expected a prompt of at least one token, got an empty one, and the tokenizer has "
            "neither a bos nor an eos token to start from."
        )


def _check_parts(model: object, tokenizer: object, generation: object) -> None:
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"Expected a causal language model of transformers, got {model!r}; to load one by name "
            "use LMAgent.from_pretrained(name)."
        )
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise TypeError(f"Expected a tokenizer of transformers, got {tokenizer!r}.")
    if generation is not None and not isinstance(generation, GenerationConfig):
        raise TypeError(
            f"Expected motet.agents.GenerationConfig as generation, got {type(generation)}."
        )
    if model.get_output_embeddings() is None:
        raise TypeError(
            f"Expected a model with a language-model head, got {type(model).__name__}; load it "
            "with AutoModelForCausalLM."
        )
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ValueError(
            f"Expected a tokenizer of at most {rows} tokens, as the model has, got "
            f"{len(tokenizer)}; is it another model's? Where tokens were added, call "
            "model.resize_token_embeddings()."
        )


def _attach(
    model: PreTrainedModel, adapter: str, lora: "LoraConfig | str | Path", seed: int | None
) -> None:
    """Put an adapter into a model: a new one with these settings, or the one in this folder."""
    if isinstance(lora, str | Path):
        load_adapter(model, adapter, lora)
    else:
        add_adapter(model, adapter, lora, torch.Generator().seed() if seed is None else seed)
