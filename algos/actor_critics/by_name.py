"""The four actor-critics by name; `motet.algos.actor_critics.actor_critic` says what they are."""

from typing import Any

from motet.algos.actor_critics.actor_critic import ActorCriticTrainer
from motet.algos.actor_critics.actor_critic_config import ActorCriticConfig, PPOConfig
from motet.algos.checks import checked_config
from motet.algos.config import TrainerConfig
from motet.algos.registration import register


@register("iac", config_class=ActorCriticConfig)
def iac(
    *, config: TrainerConfig | None = None, args: TrainerConfig | None = None, **kwargs: Any
) -> ActorCriticTrainer:
    """Independent actor-critics: a critic for each policy, temporal differences over turns."""
    return ActorCriticTrainer(config=_without_ratio("iac", config, args), central=False, **kwargs)


@register("maac", config_class=ActorCriticConfig)
def maac(
    *, config: TrainerConfig | None = None, args: TrainerConfig | None = None, **kwargs: Any
) -> ActorCriticTrainer:
    """Multi-agent actor-critic: one critic that reads everything, decentralised policies."""
    return ActorCriticTrainer(config=_without_ratio("maac", config, args), central=True, **kwargs)


@register("ippo", config_class=PPOConfig)
def ippo(
    *, config: TrainerConfig | None = None, args: TrainerConfig | None = None, **kwargs: Any
) -> ActorCriticTrainer:
    """Independent PPO (arXiv 2011.09533): a critic for each policy, clipped ratio, GAE."""
    config = checked_config(config, args, PPOConfig)
    return ActorCriticTrainer(config=config, central=False, **kwargs)


@register("mappo", config_class=PPOConfig)
def mappo(
    *, config: TrainerConfig | None = None, args: TrainerConfig | None = None, **kwargs: Any
) -> ActorCriticTrainer:
    """Multi-agent PPO (arXiv 2103.01955): one critic that reads everything, clipped ratio, GAE."""
    config = checked_config(config, args, PPOConfig)
    return ActorCriticTrainer(config=config, central=True, **kwargs)


def _without_ratio(
    name: str, config: TrainerConfig | None, args: TrainerConfig | None
) -> TrainerConfig:
    given = checked_config(config, args, ActorCriticConfig)
    if isinstance(given, PPOConfig):
        other = {"iac": "ippo", "maac": "mappo"}[name]
        raise TypeError(
            f"Expected an ActorCriticConfig as config for {name}, got a PPOConfig, which is for "
            f"{other}."
        )
    return given
