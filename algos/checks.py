"""What a trainer checks before compute is spent, and what it warns of after."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from motet.agents import Agent, LMAgent
from motet.algos.config import TrainerConfig
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.schedule import eval_rows
from motet.algos.streaming import stream_of, wrapped_rows
from motet.algos.tracking.logger import Logger
from motet.algos.tracking.opening import chosen_trackers
from motet.algos.tracking.trackers import TRACKERS, TrackingSettings
from motet.envs.simulator import make_simulator, text_env_of


def check_prompts(
    env: ParallelTextEnv,
    eval_env: ParallelTextEnv | None,
    agents: Mapping[str, Agent],
    config: TrainerConfig,
) -> None:
    """Encode the first prompts of all rows: too long a prompt stops before it costs time.

    Of a stream those of the first rollout, and of the rows that are evaluated on: reading all would
    cost more than it saves, or never end.

    Raises:
        ValueError: where a prompt does not fit into an agent's context.
    """
    rows: Iterable[int]
    for each in (env, eval_env):
        inner = text_env_of(each)
        if each is None or inner is None:
            continue
        stream = stream_of(each)
        if stream is None:
            rows = range(len(inner.dataset))
        elif each is eval_env:
            rows = eval_rows(each, config.eval_num_samples)
        else:
            rows = wrapped_rows(stream, range(config.rollout_batch_size))
        simulator = make_simulator(each)  # what wrappers make of the prompts counts
        for row in rows:
            first = simulator.start([row])[0]
            for name, prompt in first.observations.items():
                agent = agents[name]
                if isinstance(agent, LMAgent) and first.infos[name].get("acts", True):
                    agent.encode(prompt)


def check_team(env: ParallelTextEnv, agents: Mapping[str, Agent]) -> None:
    """Raise where agents are missing or too many.

    Raises:
        ValueError: with the names of both.
    """
    if set(agents) != set(env.possible_agents):
        raise ValueError(
            f"Expected an agent for each of {list(env.possible_agents)}, got {list(agents)}."
        )


def checked_config(
    config: TrainerConfig | None, args: TrainerConfig | None, kind: type[TrainerConfig]
) -> TrainerConfig:
    """Return the config that was given by one of its two names, or the defaults.

    Raises:
        ValueError: where it was given twice.
        TypeError: where it is another learner's.
    """
    if config is not None and args is not None:
        raise ValueError("Expected config= or args=, which are the same; got both.")
    given = args if config is None else config
    given = kind() if given is None else given
    if not isinstance(given, kind):
        article = "an" if kind.__name__[0] in "AEIMOS" else "a"
        raise TypeError(f"Expected {article} {kind.__name__} as config, got {given!r}.")
    return given


def checked_loggers(loggers: Sequence[Logger]) -> list[Logger]:
    """Return loggers as a list.

    Raises:
        TypeError: where it is none, or holds something else.
    """
    if not isinstance(loggers, list | tuple):
        raise TypeError(f"Expected a list of loggers, got {loggers!r}.")
    for logger in loggers:
        if not isinstance(logger, Logger):
            raise TypeError(f"Expected loggers with log and close, got {logger!r}.")
    return list(loggers)


def check_trackers(config: TrackingSettings, wandb_config: Mapping[str, Any] | None) -> None:
    """Raise where a run is to report to what cannot be had.

    Raises:
        TypeError: where the options of Weights & Biases are no dict.
        ImportError: where a tracker's library is not installed.
    """
    if wandb_config is not None and not isinstance(wandb_config, Mapping):
        raise TypeError(
            f"Expected wandb_config as a dict of options of wandb.init, got {wandb_config!r}."
        )
    for name in chosen_trackers(config, wandb_config):
        TRACKERS[name].check()


def check_metrics(metrics: Mapping[str, float], learner: str) -> None:
    """Raise where what an update returns lacks what the loop reads.

    Raises:
        ValueError: with what is missing.
    """
    needed = ("train/num_optimizer_steps", "train/tokens_computed")
    missing = [name for name in needed if name not in metrics]
    if missing:
        raise ValueError(
            f"Expected update of {learner} to return the metrics of self.optimize, got none named "
            f"{' or '.join(missing)}; return {{**own, **self.optimize(groups)}}, or count them."
        )


def check_left(num_done: int, num_rollouts: int) -> None:
    """Look at what a checkpoint leaves of a run.

    Args:
        num_done: rollouts trained on.
        num_rollouts: of the whole run.

    Raises:
        ValueError: where the run is shorter than what is done of it.
    """
    if num_done > num_rollouts:
        raise ValueError(
            f"Expected a run of at least the {num_done} rollouts that the checkpoint is past, got "
            f"one of {num_rollouts}; raise num_train_epochs or num_rollouts."
        )
    if num_done == num_rollouts:
        warnings.warn(
            f"The run had ended: the checkpoint is past all of its {num_rollouts} rollouts, and "
            "nothing is left to train. For a longer one raise num_train_epochs or num_rollouts.",
            stacklevel=4,
        )


def warn_if_nothing_learnt(*, stepped: bool, stacklevel: int) -> None:
    """Warn where a run took no optimizer step.

    Args:
        stepped: whether it did.
        stacklevel: calls between this one and the user's.
    """
    if not stepped:
        warnings.warn(
            "No optimizer step was taken: in every group all completions earned the same, so "
            "that there was nothing to prefer, or all were cut, with mask_truncated_completions. "
            "Check the reward function, or raise num_generations, the temperature or "
            "max_new_tokens.",
            stacklevel=stacklevel,
        )


def warn_if_one_turn(env: ParallelTextEnv, *, went_on: bool, stacklevel: int) -> None:
    """Warn where no episode of a run had a second turn, although the task has several.

    Args:
        env: of the run.
        went_on: whether one had.
        stacklevel: as for `warn_if_nothing_learnt`.
    """
    inner = text_env_of(env)
    if inner is None or inner.num_turns == 1 or went_on:
        return
    if inner.early_termination_threshold is None:
        return  # a wrapper ended them, a TimeLimit say
    warnings.warn(
        f"Every group ended at turn 1 although num_turns={inner.num_turns}: the mean reward of "
        f"each was above early_termination_threshold={inner.early_termination_threshold}. "
        "Later turns were never trained; raise the threshold, or set it to None.",
        stacklevel=stacklevel,
    )
