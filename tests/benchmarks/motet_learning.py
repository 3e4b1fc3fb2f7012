"""Motet's side of `make bench-learning`."""

import time

from learning_work import Learned, LearningWork, is_over, run_learning
from motet_training import make_trainer
from training_work import Clock, versions_of

from motet.agents import LMAgent
from motet.algos.metrics import team_rewards


def do(learning: LearningWork) -> Learned:
    work = learning.work
    trainer = make_trainer(work, LMAgent)
    clock = Clock(now=time.process_time)
    learned = Learned(versions=versions_of("motet", "transformers", "torch"))
    updates = 0.0
    while not is_over(learning, learned):
        start = len(learned.rewards)
        rows = [(start + i) % len(work.prompts) for i in range(work.prompts_at_once)]
        with clock.running():
            rollout = trainer.collect(rows)
            metrics = trainer.update(rollout)
        updates += metrics["train/num_optimizer_steps"] / work.num_agents
        for rewards in team_rewards(rollout)[0]:
            learned.add(sum(rewards) / len(rewards), clock.seconds, updates)
    return learned


if __name__ == "__main__":
    run_learning(do)
