"""The public names of `motet.algos`. To import them is to register the learners."""

from motet.algos.actor_critics.actor_critic import ActorCriticTrainer
from motet.algos.actor_critics.actor_critic_config import ActorCriticConfig, PPOConfig
from motet.algos.actor_critics.by_name import iac, ippo, maac, mappo
from motet.algos.actor_critics.critic import Critic
from motet.algos.callbacks import Callback, StopOnThreshold
from motet.algos.choices.pick_agent import PickAgent, load_pick_agents
from motet.algos.choices.sb3 import SB3Trainer
from motet.algos.choices.sb3_config import SB3Config
from motet.algos.config import LRSchedulerType, TrainerConfig
from motet.algos.evaluation import Evaluation, evaluate
from motet.algos.evaluations.cross_play import CrossPlay, cross_play
from motet.algos.evaluations.episodes import Episode
from motet.algos.evaluations.team_comparison import (
    TeamComparison,
    compare_evaluations,
    compare_teams,
)
from motet.algos.fixed.discussion import Discussion
from motet.algos.fixed.fixed_baselines import (
    best_of_n,
    discussion_team,
    frozen_team,
    pipeline_team,
    random_team,
    scripted_team,
)
from motet.algos.fixed.fixed_config import (
    BestOfNConfig,
    DiscussionConfig,
    FrozenConfig,
    PipelineConfig,
    RandomConfig,
    ScriptedConfig,
)
from motet.algos.fixed.fixed_team import FixedTeam
from motet.algos.fixed.pipeline import Pipeline
from motet.algos.group.advantages import (
    Baseline,
    LearningBaseline,
    greedy_return,
    group_max,
    group_mean,
    leave_one_out,
    no_baseline,
)
from motet.algos.group.baselines import grpo, mareinforce, maremax, maremax_group, marloo, rae
from motet.algos.group.centralised import centralised_magrpo
from motet.algos.group.grouping import GroupBy
from motet.algos.group.grpo_config import GRPOConfig
from motet.algos.group.magrpo import MAGRPOTrainer
from motet.algos.group.magrpo_config import MAGRPOConfig
from motet.algos.group.running_mean import RunningMean
from motet.algos.preferences.madpo import MADPOTrainer
from motet.algos.preferences.madpo_config import MADPOConfig
from motet.algos.preferences.marlhf import MARLHFTrainer
from motet.algos.preferences.marlhf_config import MARLHFConfig
from motet.algos.preferences.reward_model import RewardModel
from motet.algos.registration import Algorithm, AlgorithmSpec, make, register, registry, spec
from motet.algos.reports.curves import plot_metrics
from motet.algos.reports.metrics_log import MetricsLog, XAxis
from motet.algos.reports.report import write_report
from motet.algos.reports.tables import (
    before_after_table,
    evaluation_table,
    markdown_table,
    plot_before_after,
)
from motet.algos.rollouts.collect import Branches, JointMode, collect_rollouts
from motet.algos.rollouts.joint_policy import JointAnswers, JointPolicy
from motet.algos.rollouts.rollout import Node, Rollout
from motet.algos.tracking.console import ConsoleLogger
from motet.algos.tracking.csv import CSVLogger
from motet.algos.tracking.jsonl import JSONLLogger
from motet.algos.tracking.logger import ConfigLogger, Logger, TableLogger
from motet.algos.tracking.mlflow import MLflowLogger
from motet.algos.tracking.samples import sample_table
from motet.algos.tracking.tensorboard import TensorBoardLogger
from motet.algos.tracking.trackio import TrackioLogger
from motet.algos.tracking.wandb import WandbLogger
from motet.algos.trainer import Trainer
from motet.algos.updates.batch import Batch

__all__ = [
    "ActorCriticConfig",
    "ActorCriticTrainer",
    "Algorithm",
    "AlgorithmSpec",
    "Baseline",
    "Batch",
    "BestOfNConfig",
    "Branches",
    "CSVLogger",
    "Callback",
    "ConfigLogger",
    "ConsoleLogger",
    "Critic",
    "CrossPlay",
    "Discussion",
    "DiscussionConfig",
    "Episode",
    "Evaluation",
    "FixedTeam",
    "FrozenConfig",
    "GRPOConfig",
    "GroupBy",
    "JSONLLogger",
    "JointAnswers",
    "JointMode",
    "JointPolicy",
    "LRSchedulerType",
    "LearningBaseline",
    "Logger",
    "MADPOConfig",
    "MADPOTrainer",
    "MAGRPOConfig",
    "MAGRPOTrainer",
    "MARLHFConfig",
    "MARLHFTrainer",
    "MLflowLogger",
    "MetricsLog",
    "Node",
    "PPOConfig",
    "PickAgent",
    "Pipeline",
    "PipelineConfig",
    "RandomConfig",
    "RewardModel",
    "Rollout",
    "RunningMean",
    "SB3Config",
    "SB3Trainer",
    "ScriptedConfig",
    "StopOnThreshold",
    "TableLogger",
    "TeamComparison",
    "TensorBoardLogger",
    "TrackioLogger",
    "Trainer",
    "TrainerConfig",
    "WandbLogger",
    "XAxis",
    "before_after_table",
    "best_of_n",
    "centralised_magrpo",
    "collect_rollouts",
    "compare_evaluations",
    "compare_teams",
    "cross_play",
    "discussion_team",
    "evaluate",
    "evaluation_table",
    "frozen_team",
    "greedy_return",
    "group_max",
    "group_mean",
    "grpo",
    "iac",
    "ippo",
    "leave_one_out",
    "load_pick_agents",
    "maac",
    "make",
    "mappo",
    "mareinforce",
    "maremax",
    "maremax_group",
    "markdown_table",
    "marloo",
    "no_baseline",
    "pipeline_team",
    "plot_before_after",
    "plot_metrics",
    "rae",
    "random_team",
    "register",
    "registry",
    "sample_table",
    "scripted_team",
    "spec",
    "write_report",
]
