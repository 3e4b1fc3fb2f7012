"""How a team learns.

Dimension letters, in all docstrings: N agents, G generations, J joint actions, B sequences,
P prompt tokens, T completion tokens (of a tree: turns), V vocabulary.
"""

from motet.algos.advantages import Baseline, group_mean, leave_one_out, no_baseline
from motet.algos.baselines import mareinforce, marloo
from motet.algos.batch import Batch
from motet.algos.collect import JointMode, collect_rollouts
from motet.algos.config import LRSchedulerType, TrainerConfig
from motet.algos.evaluation import Evaluation, evaluate
from motet.algos.logger import ConsoleLogger, JSONLLogger, Logger, WandbLogger
from motet.algos.magrpo import MAGRPOTrainer
from motet.algos.magrpo_config import MAGRPOConfig
from motet.algos.registration import Algorithm, AlgorithmSpec, make, register, registry, spec
from motet.algos.rollout import Node, Rollout
from motet.algos.trainer import Trainer

__all__ = [
    "Algorithm",
    "AlgorithmSpec",
    "Baseline",
    "Batch",
    "ConsoleLogger",
    "Evaluation",
    "JSONLLogger",
    "JointMode",
    "LRSchedulerType",
    "Logger",
    "MAGRPOConfig",
    "MAGRPOTrainer",
    "Node",
    "Rollout",
    "Trainer",
    "TrainerConfig",
    "WandbLogger",
    "collect_rollouts",
    "evaluate",
    "group_mean",
    "leave_one_out",
    "make",
    "mareinforce",
    "marloo",
    "no_baseline",
    "register",
    "registry",
    "spec",
]
