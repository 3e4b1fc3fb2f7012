"""CoMLRL's side of `make bench-learning`: prompts one by one, an update when its buffer is full."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from comlrl_training import TimedTrainer, make_trainer
from learning_work import Learned, LearningWork, is_over, run_learning
from training_work import Clock, versions_of


class Over(Exception):  # noqa: N818  # no error
    """Training has done what it was to do; CoMLRL has no other way to end early."""


class LearningTrainer(TimedTrainer):
    """CoMLRL's trainer, which notes what each prompt earned and ends at the goal."""

    def __init__(self, *, reward_func: Callable[..., list[float]], **kwargs: Any) -> None:
        self.rewards: list[float] = []

        def noted(first: list[str], second: list[str]) -> list[float]:
            earned = reward_func(first, second)
            self.rewards += earned
            return earned

        super().__init__(reward_func=noted, **kwargs)
        self.whole = Clock(now=time.process_time)

    def learn(self, learning: LearningWork) -> Learned:
        """Train until it is over."""
        self.learning = learning
        self.learned = Learned(versions=versions_of("comlrl", "transformers", "torch"))
        with suppress(Over):
            self.train()
        return self.learned

    def _generate_completions(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        made = super()._generate_completions(*args, **kwargs)
        if self.learning.cut_padding:
            lengths = made["response_lens"]
            rows = zip(made["completion_input_ids"][0], lengths, strict=True)
            made["completion_input_ids"] = [[ids[:length] for ids, length in rows]]
        return made

    def _train_step_returns(self, *args: Any, **kwargs: Any) -> None:
        self.rewards.clear()
        super()._train_step_returns(*args, **kwargs)
        mean = sum(self.rewards) / len(self.rewards)
        self.learned.add(mean, self.whole.seconds, self.num_steps / self.num_agents)
        if is_over(self.learning, self.learned):
            raise Over


def do(learning: LearningWork) -> Learned:
    work = learning.work
    epochs = math.ceil(learning.max_prompts / len(work.prompts))
    trainer = make_trainer(
        LearningTrainer, work, prompts_per_update=work.prompts_at_once, epochs=epochs
    )
    return trainer.learn(learning)


if __name__ == "__main__":
    run_learning(do)
