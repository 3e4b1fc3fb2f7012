"""Many live episodes and branches of one env, stepped side by side.

    batch = TextBatch(envs.make("story-length-ratio-v0", num_turns=2))
    batch.reset(rows=[0, 1, 2])
    while any(batch.agents):
        joint_actions = [
            {agent: policy(text) for agent, text in seen.items()} for seen in batch.observations
        ]
        results = batch.step(joint_actions)     # one call of the reward function

It is no `gymnasium.vector.VectorEnv`, which knows no agents, resets by itself and turns infos into
arrays: here everything is a list by episode, episodes end when they end, and an ended one stays as
it is, with no live agents and no observations, until `restart`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.envs.simulator import make_simulator, step_siblings, text_env_of, whole_clone
from motet.envs.task.parts import check_rows_and_seeds, check_sequence, is_integer
from motet.envs.text_state import ResetResult, StepResult
from motet.envs.workers.reward_workers import RewardWorkers

JointAction = Mapping[str, Any]


class TextBatch:
    """Step many episodes of an env at once.

    Args:
        env: a `TextEnv`, bare or wrapped, or any other parallel env with `clone()`; its own
            episode is left alone.
        reward_workers: scores the joint actions of a turn side by side; see `TextEnv`.

    Attributes:
        observations: by episode, what each live agent sees; empty where the episode ended.
        infos: by episode, the infos of the last reset or step, those of agents that left included.
        states: by episode, what a snapshot needs: see `expand`.

    Raises:
        TypeError: where the env has no `clone()`, or `reward_workers` are for no `TextEnv` or for
            one in a wrapper that its clone lacks.
    """

    def __init__(self, env: Any, *, reward_workers: int | RewardWorkers | None = None) -> None:
        if isinstance(env, type):
            raise TypeError(f"Expected an env to step many episodes of, got the class {env!r}.")
        if reward_workers is not None:
            if text_env_of(env) is None:
                raise TypeError(
                    f"Expected reward_workers only for a TextEnv, bare or wrapped, got {env!r}."
                )
            env = whole_clone(env)
            env.unwrapped.set_reward_workers(reward_workers)
        self.env = env
        self._simulator = make_simulator(env)
        self.observations: list[dict[str, Any]] = []
        self.infos: list[dict[str, dict[str, Any]]] = []
        self.states: list[Any] = []

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        num_live = sum(map(bool, self.observations))
        return f"<TextBatch of {self.env}: {len(self)} episodes, {num_live} live>"

    @property
    def agents(self) -> list[list[str]]:
        """Live agents by episode; none where it ended."""
        return [list(seen) for seen in self.observations]

    def reset(
        self, rows: Sequence[int] | None = None, *, seeds: Sequence[int] | None = None
    ) -> list[dict[str, Any]]:
        """Begin one episode for each row or each seed, in place of those before.

        Args:
            rows: (B,) dataset rows.
            seeds: (B,) seeds, as for the env's `reset`; with rows, of what else is random.

        Returns:
            (B,) observations.

        Raises:
            TypeError: where one is no list of integers.
            ValueError: where neither is given, or their numbers differ.
            IndexError: where there is no such row.
        """
        results = self._started(rows, seeds)
        self.observations, self.infos, self.states = [], [], []
        for result in results:
            self.observations.append({})
            self.infos.append({})
            self.states.append(None)
            self._enter(len(self.states) - 1, result)
        return list(self.observations)

    def restart(
        self,
        episodes: Sequence[int],
        rows: Sequence[int] | None = None,
        *,
        seeds: Sequence[int] | None = None,
    ) -> list[dict[str, Any]]:
        """Begin new episodes in the places of some; arguments as for `reset`.

        Args:
            episodes: (E,) places.
            rows: (E,) dataset rows.
            seeds: (E,) seeds.

        Returns:
            (E,) observations of the new episodes.

        Raises:
            ValueError: as `reset`; also where there are not E rows or seeds.
            IndexError: where there is no such place or row.
            TypeError: where one is no list of integers.
        """
        check_sequence("episodes", episodes)
        for i in episodes:
            self._check_place(i)
        if len(set(episodes)) != len(episodes):
            raise ValueError(f"Expected each episode once, got {list(episodes)}.")
        results = self._started(rows, seeds)
        if len(results) != len(episodes):
            raise ValueError(
                f"Expected a row or seed for each of {len(episodes)} episodes, got {len(results)}."
            )
        for i, result in zip(episodes, results, strict=True):
            self._enter(i, result)
        return [self.observations[i] for i in episodes]

    def step(
        self, joint_actions: Sequence[JointAction | None], groups: Sequence[int] | None = None
    ) -> list[StepResult | None]:
        """Play one turn of every live episode.

        If it raises, no episode has moved.

        Args:
            joint_actions: (B,) action by live agent; None or nothing where the episode ended.
            groups: (B,) which group of siblings each episode belongs to; see
                `TextEnv.step_batch`. Default: each is its own.

        Returns:
            (B,) results, None where the episode had ended before.

        Raises:
            ValueError: where the lengths differ, or actions are missing or for an ended episode.
            TypeError: where an argument is no list, or an action is of another type.
        """
        groups = range(len(self)) if groups is None else groups
        check_sequence("joint actions", joint_actions)
        check_sequence("groups", groups)
        if len(joint_actions) != len(self) or len(groups) != len(self):
            raise ValueError(
                f"Expected a joint action and a group for each of {len(self)} episodes, got "
                f"{len(joint_actions)} joint actions and {len(groups)} groups."
            )
        live = []
        for i, actions in enumerate(joint_actions):
            if self.observations[i]:
                live.append((i, {} if actions is None else actions))
            elif actions:
                raise ValueError(
                    f"Expected None as the joint action of episode {i}, which has ended, got "
                    f"{str(actions)[:200]}."
                )
        results: list[StepResult | None] = [None] * len(self)
        stepped = self._simulator.step(
            [self.states[i] for i, _ in live],
            [actions for _, actions in live],
            [groups[i] for i, _ in live],
        )
        for (i, _), result in zip(live, stepped, strict=True):
            self._enter(i, result)
            results[i] = result
        return results

    def expand(self, i: int, joint_actions: Sequence[JointAction]) -> list[StepResult]:
        """Try several joint actions from where episode i stands, which stays there.

        The results are siblings, judged together where the env ends groups early. Go on with one
        of them through `select`.

        Args:
            i: the episode.
            joint_actions: (J,) action by agent.

        Returns:
            (J,) results.

        Raises:
            ValueError: where the episode has ended.
            IndexError: where there is none.
            TypeError: where `i` is no integer, or an argument no list.
        """
        self._check_place(i)
        tried: list[Sequence[JointAction]] = [()] * len(self)
        tried[i] = joint_actions
        return self.expand_all(tried)[i]

    def expand_all(self, joint_actions: Sequence[Sequence[JointAction]]) -> list[list[StepResult]]:
        """Try several joint actions in each episode, with one call of the reward function.

        Args:
            joint_actions: (B,) lists, as for `expand`; empty for episodes to leave out.

        Returns:
            (B,) lists of results.

        Raises:
            ValueError: where their number is another, or one is for an ended episode.
            TypeError: where an argument is no list, or an action is of another type.
        """
        check_sequence("lists of joint actions, one by episode", joint_actions)
        for tried in joint_actions:
            check_sequence("joint actions to try", tried)
        if len(joint_actions) != len(self):
            raise ValueError(
                f"Expected a list of joint actions for each of {len(self)} episodes, got "
                f"{len(joint_actions)}."
            )
        for i, tried in enumerate(joint_actions):
            if len(tried) and not self.observations[i]:
                raise ValueError(
                    f"Expected no joint actions for episode {i}, which has ended, got {len(tried)}."
                )
        return step_siblings(self._simulator, self.states, joint_actions)

    def select(self, i: int, result: ResetResult | StepResult) -> None:
        """Let episode i go on from a result of this batch, such as one of `expand`.

        Args:
            i: the episode.
            result: where it stands from here on; that of another episode is fine, too.

        Raises:
            IndexError: where there is no such episode.
            TypeError: where `i` is no integer, or `result` no single result.
        """
        self._check_place(i)
        if not isinstance(result, ResetResult | StepResult):
            raise TypeError(
                f"Expected one result that step or expand returned, got {repr(result)[:200]}."
            )
        self._enter(i, result)

    def _started(
        self, rows: Sequence[int] | None, seeds: Sequence[int] | None
    ) -> list[ResetResult]:
        if rows is None and seeds is None:
            raise ValueError("Expected rows=[...] or seeds=[...], one for each episode; got none.")
        check_rows_and_seeds(rows, seeds)
        return self._simulator.start(rows, seeds)

    def _enter(self, i: int, result: ResetResult | StepResult) -> None:
        self.observations[i] = {agent: result.observations[agent] for agent in result.live}
        self.infos[i] = result.infos
        self.states[i] = result.state

    def _check_place(self, i: int) -> None:
        if not is_integer(i):
            raise TypeError(f"Expected the number of an episode, got {i!r}.")
        if not 0 <= i < len(self):
            raise IndexError(f"Expected an episode from 0 to {len(self) - 1}, got {i}.")
