"""Wrappers of parallel envs that survive snapshots, clones and batched stepping."""

from motet.envs.wrappers.features import HashingEncoder, TextEncoder
from motet.envs.wrappers.order_enforcing import OrderEnforcing
from motet.envs.wrappers.pick_of_k import PickOfK
from motet.envs.wrappers.prompt_template import PromptTemplate
from motet.envs.wrappers.record_episode_statistics import RecordEpisodeStatistics
from motet.envs.wrappers.record_transcripts import RecordTranscripts, load_transcripts
from motet.envs.wrappers.reward_shaping import RewardShaping
from motet.envs.wrappers.time_limit import TimeLimit
from motet.envs.wrappers.transform_action import TransformAction, extract_tag, strip
from motet.envs.wrappers.wrapper import Wrapper
from motet.envs.wrappers.wrapper_state import WrapperState

__all__ = [
    "HashingEncoder",
    "OrderEnforcing",
    "PickOfK",
    "PromptTemplate",
    "RecordEpisodeStatistics",
    "RecordTranscripts",
    "RewardShaping",
    "TextEncoder",
    "TimeLimit",
    "TransformAction",
    "Wrapper",
    "WrapperState",
    "extract_tag",
    "load_transcripts",
    "strip",
]
