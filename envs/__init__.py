"""Text tasks as PettingZoo parallel environments: build, register, make, check."""

from motet.envs.check_env import EnvCheckError, check_env
from motet.envs.registration import EnvSpec, make, pprint_registry, register, registry, spec
from motet.envs.rewards import RewardProcessor, RewardProcessors
from motet.envs.text_env import TextEnv
from motet.envs.text_space import TextSpace
from motet.envs.text_state import StepResult, TextState

__all__ = [
    "EnvCheckError",
    "EnvSpec",
    "RewardProcessor",
    "RewardProcessors",
    "StepResult",
    "TextEnv",
    "TextSpace",
    "TextState",
    "check_env",
    "make",
    "pprint_registry",
    "register",
    "registry",
    "spec",
]

register("story-length-ratio-v0", "motet.envs.story_length_ratio:story_length_ratio")
