"""Text tasks as PettingZoo parallel environments: build, register, make, check."""

from motet.envs import wrappers
from motet.envs.checks import EnvCheckError, check_env
from motet.envs.data import StreamedRows, load_rows, train_eval_split
from motet.envs.registration import EnvSpec, make, pprint_registry, register, registry, spec
from motet.envs.task import RewardProcessor, RewardProcessors
from motet.envs.text_batch import TextBatch
from motet.envs.text_env import TextEnv
from motet.envs.text_space import TextSpace
from motet.envs.text_state import ResetResult, StepResult, TextState
from motet.envs.views import JointText, to_aec, to_gymnasium, to_sb3_vec_env
from motet.envs.workers import RewardWorkers
from motet.envs.wrappers import PickOfK

__all__ = [
    "EnvCheckError",
    "EnvSpec",
    "JointText",
    "PickOfK",
    "ResetResult",
    "RewardProcessor",
    "RewardProcessors",
    "RewardWorkers",
    "StepResult",
    "StreamedRows",
    "TextBatch",
    "TextEnv",
    "TextSpace",
    "TextState",
    "check_env",
    "load_rows",
    "make",
    "pprint_registry",
    "register",
    "registry",
    "spec",
    "to_aec",
    "to_gymnasium",
    "to_sb3_vec_env",
    "train_eval_split",
    "wrappers",
]

register(
    "story-length-ratio-v0",
    "motet.envs.story_length_ratio:story_length_ratio",
    reward_range=(0.0, 1.0),
)

register(
    "story-name-match-v0",
    "motet.envs.story_name_match:story_name_match",
    reward_range=(0.0, 1.0),
)

register(
    "story-budget-v0",
    "motet.envs.story_budget:story_budget",
    reward_range=(0.0, 1.0),
)
