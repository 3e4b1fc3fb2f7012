"""Train stable-baselines3 learners on a text task.

    env = envs.PickOfK(envs.make("story-length-ratio-v0"), candidates)
    model = PPO("MlpPolicy", envs.to_sb3_vec_env(env, num_envs=8))
    model.learn(20_000)

This module loads without stable-baselines3, which comes in with the first call.
"""

from typing import TYPE_CHECKING, Any, Literal

from gymnasium import spaces

from motet.envs.task.parts import checked_count
from motet.envs.views.joint_view import JointActionKind, TeamReward, is_vector

if TYPE_CHECKING:
    from motet.envs.views.sb3_vec_env import SB3VecEnv

Mode = Literal["shared", "centralised"]


def to_sb3_vec_env(
    env: Any,
    num_envs: int = 1,
    mode: Mode = "shared",
    *,
    reward: TeamReward = "mean",
    joint_action: JointActionKind = "multi_discrete",
) -> "SB3VecEnv":
    """Return a `VecEnv` of stable-baselines3 that plays episodes of an env side by side.

    Each step plays one turn of all episodes, with one call of the reward function. In mode
    "shared" one policy plays every agent: slot `i * N + j` is agent j of episode i and gets this
    agent's reward, so `VecEnv.num_envs` is `num_envs * N`. In mode "centralised" slot i is
    episode i, and one policy acts for its whole team, as in `to_gymnasium`.

    Episodes are seeded apart and follow orders of rows of their own. The order of episode i is
    that of an env with `reset(seed=seed of its first slot)`, from i rows further on: without
    `shuffle` the episodes walk through the dataset side by side, one row apart; with it each draws
    random orders of its own. What else is random in an episode, such as a writer that samples,
    comes from a seed that the stream of that first seed gives. Without a seed, the first ones come
    from the system.

    An episode that has ended begins anew at once: `infos[slot]["terminal_observation"]` is what
    its agents saw last, and `infos[slot]["TimeLimit.truncated"]` tells whether it was cut from
    outside the task. In mode "shared" an agent that leaves before the others is done then, once.
    Until they end too its slot idles: the observation is zeros, the reward 0, the action ignored,
    `infos[slot]` is `{"idle": True, "TimeLimit.truncated": False}`, and the mask leaves action 0.
    To a learner these steps are the first ones of the agent's next episode.

    Rewards in the log (`rollout/ep_rew_mean`) need stable-baselines3's `VecMonitor` around this.

    Args:
        env: a parallel env of picks, such as `PickOfK`, with `get_state`, `set_state` and `clone`;
            its own episode is left alone.
        num_envs: episodes at a time.
        mode: "shared" or "centralised".
        reward: for mode "centralised": the mean over agents, or the sum.
        joint_action: for mode "centralised": "multi_discrete", or "discrete" for DQN.

    Raises:
        ImportError: where stable-baselines3 is not installed.
        TypeError: where the env is not one of picks.
        ValueError: where an argument is unknown, or where agents that should share a policy have
            different spaces.
    """
    num_envs = checked_count("num_envs", num_envs)
    if mode not in ("shared", "centralised"):
        raise ValueError(f"Expected mode 'shared' or 'centralised', got {mode!r}.")
    _check_picks(env)
    try:
        from motet.envs.views.sb3_slots import CentralisedSlots, SharedSlots  # noqa: PLC0415
        from motet.envs.views.sb3_vec_env import SB3VecEnv  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "stable_baselines3":
            raise
        raise ImportError(
            "Expected stable-baselines3, which is not installed; pip install stable-baselines3."
        ) from exc
    if mode == "centralised":
        return SB3VecEnv(env, num_envs, CentralisedSlots(env, reward, joint_action))
    if (reward, joint_action) != ("mean", "multi_discrete"):
        raise ValueError(
            "Expected reward and joint_action only in mode 'centralised', got "
            f"reward={reward!r} and joint_action={joint_action!r} in mode 'shared', where each "
            "agent has its own."
        )
    return SB3VecEnv(env, num_envs, SharedSlots(env))


def _check_picks(env: Any) -> None:
    names = getattr(env, "possible_agents", None)
    if names is None:
        raise TypeError(f"Expected a PettingZoo ParallelEnv, got {env!r}.")
    seen: list[spaces.Space[Any]] = [env.observation_space(name) for name in names]
    acted: list[spaces.Space[Any]] = [env.action_space(name) for name in names]
    if not is_vector(seen, acted):
        raise TypeError(
            "Expected observations in Box and actions in Discrete spaces, which "
            f"stable-baselines3 learns on, got {seen[0]} and {acted[0]} of {env}; wrap it in "
            "motet.envs.PickOfK first."
        )
    if not callable(getattr(env, "clone", None)):
        raise TypeError(
            f"Expected an env with clone(), to play episodes side by side, got {env!r}; "
            "motet.envs.check_env lists what it should keep to."
        )
