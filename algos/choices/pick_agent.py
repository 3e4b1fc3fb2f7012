"""An agent whose answer is one of K texts, picked by a trained policy of numbers.

It plays wherever a language model does: in loops, in `evaluate`, as another learner's partner. What
it sees and what it can say are those of `PickOfK`, from its `Offers`; of the view's features those
are 0 that no agent is told, the turn and the last reward.

    team = algos.load_pick_agents("out")
    algos.evaluate(env, team)
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from motet.agents import Completion
from motet.agents.agent import check_request
from motet.algos.choices.offer_files import described, restored
from motet.algos.choices.sb3_policy import SB3Policy
from motet.envs.wrappers.candidates import Question, Texts
from motet.envs.wrappers.choices import mask_of
from motet.envs.wrappers.features import View, mixed_seed
from motet.envs.wrappers.offers import Offers

FILE_NAME = "pick_agent.json"
VERSION = 1


class PickPolicy(Protocol):
    """A policy that picks.

    B situations, G generations, A agents that one policy picks for, K candidates.
    """

    def pick(
        self,
        features: NDArray[np.float32],
        allowed: NDArray[np.bool_],
        num_generations: int,
        rng: np.random.Generator | None,
    ) -> NDArray[np.int64]:
        """Return (B, G, A) picks.

        Args:
            features: (B, A * size) what the agents see.
            allowed: (B, A, K) which candidates there are.
            num_generations: G.
            rng: what to draw with; None takes the likeliest.
        """

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the policy into a folder, and return what it takes to read it, as JSON can hold."""


class PickAgent:
    """Pick one of K texts; with strategies, say what the frozen writer answers to the pick.

    Completions are the writer's own, tokens included, and have none where a text was picked.

    A policy that was trained to pick for the whole team at once is one agent under all names, and
    has to be asked for all of them at once, in their order: `act([observations[name] for name in
    agent.names])`. `evaluate` does.

    Args:
        policy: who picks.
        offers: what there is to pick from.
        names: agents that it plays: one, or all of the team.
        do_sample: False takes the likeliest pick always. Writers write as they are set.
        seed: seed of the agent's own randomness, used where `act` gets none.

    Attributes:
        names: agents that it plays.
        offers: what there is to pick from.
        policy: who picks.
    """

    def __init__(
        self,
        policy: PickPolicy,
        offers: Offers,
        names: Sequence[str],
        *,
        do_sample: bool = True,
        seed: int | None = None,
    ) -> None:
        self.policy = policy
        self.offers = offers
        self.names = tuple(names)
        self.do_sample = do_sample
        self._rng = np.random.default_rng(seed)

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        """Answer; see `Agent.act`. Contexts change nothing.

        Raises:
            ValueError: where a policy of the whole team is not asked for all of it, or one that
                knows no masks picks a candidate that is not there.
        """
        del contexts
        rng = self._rng if seed is None else np.random.default_rng(seed)
        entropy = int(rng.integers(2**63))
        picked, offered = self._picked(
            observations, num_generations, entropy, rng if self.do_sample else None
        )
        questions = [
            Question(self._asker(i), offered[i][pick], mixed_seed(entropy, i, generation))
            for i, picks in enumerate(picked)
            for generation, pick in enumerate(picks)
        ]
        if self.offers.asks_writers:
            said = [_completion(answer) for answer in self.offers.answers(questions)]
        else:
            said = [Completion(question.prompt) for question in questions]
        completions = iter(said)
        return [[next(completions) for _ in picks] for picks in picked]

    def picks(self, observations: Sequence[str]) -> list[int]:
        """Return the likeliest pick for each observation, as a number from 0.

        Where an agent writes the candidates, it writes new ones for this.
        """
        picked, _ = self._picked(observations, 1, int(self._rng.integers(2**63)), None)
        return [pick for (pick,) in picked]

    def greedy(self) -> Self:
        """Return the agent as it picks without chance, with the same policy."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.do_sample = False
        return twin

    def save_pretrained(self, folder: str | Path) -> None:
        """Write what `load_pick_agents` reads: the policy, and what there is to pick from.

        Functions, writers and encoders of your own are not written; they are given to the loader.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        whole = {
            "version": VERSION,
            "names": list(self.names),
            "offers": described(self.offers),
            "policy": self.policy.save(folder),
        }
        (folder / FILE_NAME).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")

    # --- parts --------------------------------------------------------------------------------

    def _asker(self, i: int) -> str:
        """Return which agent the i-th observation of a request is of."""
        return self.names[i % len(self.names)]

    def _picked(
        self,
        observations: Sequence[str],
        num_generations: int,
        entropy: int,
        rng: np.random.Generator | None,
    ) -> tuple[list[list[int]], list[Texts]]:
        """Return (B, G) picks, and (B,) what they were picked from."""
        self._check(observations, num_generations)
        if not observations:
            return [], []
        offered = self.offers.offer(
            [
                Question(self._asker(i), text, mixed_seed(entropy, i))
                for i, text in enumerate(observations)
            ]
        )
        features = self.offers.features(
            [
                View(
                    agent=self.offers.place(self._asker(i)),
                    prompt=text,
                    acts=True,
                    turn=0,
                    reward=0.0,
                    candidates=offered[i],
                )
                for i, text in enumerate(observations)
            ]
        )
        allowed = np.stack([mask_of(texts, self.offers.k) for texts in offered]).astype(bool)
        width = len(self.names)
        picks = self.policy.pick(
            features.reshape(-1, width * self.offers.size),
            allowed.reshape(-1, width, self.offers.k),
            num_generations,
            rng,
        )
        by_observation: list[list[int]] = (
            picks.transpose(0, 2, 1).reshape(len(observations), num_generations).tolist()
        )
        for own, texts in zip(by_observation, offered, strict=True):
            if max(own) >= len(texts):
                raise ValueError(
                    f"Expected a pick from 0 to {len(texts) - 1}, where there are fewer than "
                    f"{self.offers.k} candidates, got {max(own)} from a policy that knows no "
                    "masks; train with sb3-maskable-ppo."
                )
        return by_observation, offered

    def _check(self, observations: Sequence[str], num_generations: int) -> None:
        check_request(observations, num_generations)
        if len(observations) % len(self.names):
            raise ValueError(
                f"Expected the observations of {list(self.names)} together and in this order, for "
                f"a policy that picks for all of them, got {len(observations)} observations."
            )


def _completion(answer: Any) -> Completion:
    """Return a writer's answer, with its tokens where it has them: they are what it cost."""
    return answer if isinstance(answer, Completion) else Completion(answer.text)


def load_pick_agents(
    folder: str | Path,
    *,
    candidates: Any = None,
    strategies: Any = None,
    writer: Any = None,
    encoder: Any = None,
) -> dict[str, PickAgent]:
    """Read a team that a learner's `save_model` wrote.

    Policies of stable-baselines3 are pickled objects, which can run any code when they are read:
    read none whose origin you do not trust.

    Args:
        folder: what was given to `save_model`.
        candidates: the function that writes candidates, where one does.
        strategies: ways to put the prompt, where they are no templates.
        writer: the frozen agent that writes, where one does, or one for each agent by name.
        encoder: of the features, where it is no `HashingEncoder`.

    Returns:
        Agent by name; a policy of the whole team is one agent under all names.

    Raises:
        FileNotFoundError: where there is no team in the folder.
        ValueError: where a part is missing, or was saved and is given.
        ImportError: where the policies' library is not installed.
    """
    files = sorted(Path(folder).glob(f"*/{FILE_NAME}"))
    if not files:
        raise FileNotFoundError(
            f"Expected a folder that save_model wrote, with */{FILE_NAME} in it, got {folder}."
        )
    team: dict[str, PickAgent] = {}
    for file in files:
        whole = json.loads(file.read_text(encoding="utf-8"))
        if whole["version"] != VERSION:
            raise ValueError(
                f"Expected an agent of version {VERSION}, got {whole['version']} in {file}; load "
                "it with the release that wrote it."
            )
        offers = restored(
            whole["offers"],
            candidates=candidates,
            strategies=strategies,
            writer=writer,
            encoder=encoder,
        )
        policy = SB3Policy.load(file.parent, whole["policy"])
        agent = PickAgent(policy, offers, whole["names"])
        for name in agent.names:
            if name in team:
                raise ValueError(
                    f"Expected one policy for {name}, got another in {file.parent}; save each team "
                    "to a folder of its own."
                )
            team[name] = agent
    order = next(iter(team.values())).offers.agent_names
    missing = [name for name in order if name not in team]
    if missing:
        raise ValueError(
            f"Expected a policy for each of {list(order)} in {folder}, got none for {missing}; "
            "copy all that save_model wrote."
        )
    return {name: team[name] for name in order}
