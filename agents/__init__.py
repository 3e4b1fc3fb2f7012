"""Who acts: language models, and agents without one."""

from motet.agents.agent import Agent, Completion, FinishReason, History, HistoryAgent
from motet.agents.api_agent import APIAgent
from motet.agents.embedded import pocket, pocket_path
from motet.agents.endpoints.budget import APIBudget, APIUsage
from motet.agents.endpoints.conversation import APICompletion
from motet.agents.endpoints.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    EndpointError,
)
from motet.agents.endpoints.limits import APILimits
from motet.agents.generation import GenerationConfig
from motet.agents.human_agent import HumanAgent
from motet.agents.lm_agent import LMAgent
from motet.agents.scripted import FixedAgent, RandomAgent, ReplayAgent
from motet.agents.space_agent import SpaceAgent

__all__ = [
    "APIAgent",
    "APIBudget",
    "APICompletion",
    "APILimits",
    "APIUsage",
    "Agent",
    "BudgetExceededError",
    "Completion",
    "DeadlineExceededError",
    "EndpointError",
    "FinishReason",
    "FixedAgent",
    "GenerationConfig",
    "History",
    "HistoryAgent",
    "HumanAgent",
    "LMAgent",
    "RandomAgent",
    "ReplayAgent",
    "SpaceAgent",
    "pocket",
    "pocket_path",
]
