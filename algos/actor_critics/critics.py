"""The critics of a team: one for each policy, or one for all of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from motet.agents import LMAgent
from motet.algos.actor_critics.actor_critic_config import ActorCriticConfig
from motet.algos.actor_critics.critic import Critic, loaded_trunk, trunk_of
from motet.algos.actor_critics.critic_reads import Prefix, joint_prompt, own_prompt, retold_prompt
from motet.algos.actor_critics.critic_update import CriticUpdater
from motet.algos.actor_critics.shared_critic import SharedCritic
from motet.algos.actor_critics.value_head import ValueHead
from motet.algos.team import Policy
from motet.algos.updates.update import PolicyUpdater

AnyCritic: TypeAlias = CriticUpdater | SharedCritic
CriticModel: TypeAlias = str | Path | PreTrainedModel

CENTRAL = "central"
"""Name of a critic that judges all agents."""


def make_critics(
    updaters: Sequence[PolicyUpdater],
    config: ActorCriticConfig,
    *,
    central: bool,
    model: CriticModel | None,
    tokenizer: PreTrainedTokenizerBase | None,
) -> list[AnyCritic]:
    """Return the critics of a team.

    Args:
        updaters: of its policies.
        config: settings.
        central: one critic for all agents instead of one for each policy.
        model: a critic's trunk, or its name; None for a copy of the policy's, as it is now.
        tokenizer: of a model that is given.

    Raises:
        ValueError: where a shared trunk is to be central or another model, or a critic cannot be
            asked over tokens.
        TypeError: where the model is none.
    """
    if tokenizer is not None and model is None:
        raise ValueError("Expected critic= together with critic_tokenizer=, got None.")
    if config.critic == "shared":
        _check_shared(central=central, model=model)
        return [_shared(updater, config) for updater in updaters]
    policies = [updater.policy for updater in updaters]
    if central:
        agents = {name: agent for policy in policies for name, agent in policy.agents.items()}
        judged = [(CENTRAL, policies[0], agents)]
    else:
        judged = [(policy.name, policy, policy.agents) for policy in policies]
    return [
        CriticUpdater(name, _separate(policy, agents, config, model, tokenizer), config)
        for name, policy, agents in judged
    ]


def prefix_of(critic: AnyCritic, updaters: Sequence[PolicyUpdater], *, central: bool) -> Prefix:
    """Return how a critic reads a node.

    Args:
        critic: whose.
        updaters: of the team's policies.
        central: whether it reads all prompts, or an agent's own.
    """
    if isinstance(critic, SharedCritic):
        return own_prompt
    if central:
        return joint_prompt(critic.critic.encode)
    agents = {name: a for each in updaters for name, a in each.policy.agents.items()}
    judged = [agents[name] for name in critic.head.agents]
    if all(_same_tokens(critic.critic.tokenizer, agent.tokenizer) for agent in judged):
        return own_prompt
    return retold_prompt(critic.critic.encode, agents)


def _check_shared(*, central: bool, model: CriticModel | None) -> None:
    if central:
        raise ValueError(
            "Expected critic='separate' for a central critic, got 'shared': it reads the joint "
            "text, which the policies' own forward passes do not."
        )
    if model is not None:
        raise ValueError(
            "Expected critic='separate' together with critic=, a model of its own, got 'shared' "
            "in the config, which puts the value head on the policy's trunk."
        )


def _shared(updater: PolicyUpdater, config: ActorCriticConfig) -> SharedCritic:
    policy = updater.policy
    return SharedCritic(updater, _head(policy.model, policy.agents, config), config)


def _separate(
    policy: Policy,
    agents: Mapping[str, LMAgent],
    config: ActorCriticConfig,
    model: CriticModel | None,
    tokenizer: PreTrainedTokenizerBase | None,
) -> Critic:
    """Return a critic with a trunk of its own."""
    first = policy.agents[policy.name]
    if model is None:
        trunk, tokenizer = trunk_of(policy.model), first.tokenizer
    else:
        trunk, tokenizer = loaded_trunk(model, tokenizer)
        trunk = trunk.to(policy.model.device)
    head = _head(trunk, agents, config)
    critic = Critic(trunk, tokenizer, head, bf16=first.generation.bf16)
    if config.token_level:
        _check_token_level(critic, agents)
    return critic


def _head(
    model: PreTrainedModel, agents: Mapping[str, LMAgent], config: ActorCriticConfig
) -> ValueHead:
    width: int = model.config.get_text_config().hidden_size
    return ValueHead(
        width,
        list(agents),
        hidden_size=config.value_head_hidden_size,
        normalize=config.normalize_values,
        seed=config.seed,
    )


def _check_token_level(critic: Critic, agents: Mapping[str, LMAgent]) -> None:
    for name, agent in agents.items():
        if not _same_tokens(critic.tokenizer, agent.tokenizer):
            raise ValueError(
                f"Expected a critic with the tokens of {name} for token_level=True, got one with "
                "others: it is asked before each token that the agent wrote. Leave critic= out, or "
                "set token_level=False."
            )
    if critic.looks_ahead():
        raise ValueError(
            "Expected a critic that reads from left to right for token_level=True, got "
            f"{type(critic.trunk).__name__}, which looks ahead: it would judge a token by those "
            "after it. Set token_level=False."
        )


def _same_tokens(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    return one is other or one.get_vocab() == other.get_vocab()
