"""Who acts: language models, and agents without one."""

from motet.agents.agent import Agent, Completion, FinishReason, History, HistoryAgent
from motet.agents.embedded import pocket, pocket_path
from motet.agents.generation import GenerationConfig
from motet.agents.lm_agent import LMAgent
from motet.agents.scripted import FixedAgent, RandomAgent, ReplayAgent
from motet.agents.space_agent import SpaceAgent

__all__ = [
    "Agent",
    "Completion",
    "FinishReason",
    "FixedAgent",
    "GenerationConfig",
    "History",
    "HistoryAgent",
    "LMAgent",
    "RandomAgent",
    "ReplayAgent",
    "SpaceAgent",
    "pocket",
    "pocket_path",
]
