"""Centralised MAGRPO: one policy writes for all, and learns to make its texts fit together."""

from pathlib import Path

import pytest
from tiny import LETTERS, letter_agent, matching_env

from motet import algos
from motet.agents import FixedAgent, LMAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.envs import JointText


def by_letter(text: str, agents: list[str]) -> dict[str, str]:
    return dict(zip(agents, text, strict=False))


# a vocabulary of letters has no tags, and no words to ask for them
VIEW = {"parser": by_letter, "prompt_fn": lambda seen: next(iter(seen.values()))}


def config(**changes: object) -> MAGRPOConfig:
    settings = {
        "num_train_epochs": 60,
        "rollout_batch_size": 4,
        "num_generations": 8,
        "agent_learning_rate": 0.02,
        "max_new_tokens": 2,
        "progress_bar": False,
    }
    return MAGRPOConfig(**{**settings, **changes})


def test_it_learns_to_say_the_same_for_both(tmp_path: Path) -> None:
    agent = letter_agent()
    env = matching_env()
    learner = algos.make("centralised-magrpo", env, agent, config(), eval_env=env, view=VIEW)
    before = learner.evaluate(num_samples=50).metrics["reward_mean"]
    learner.train()
    after = learner.evaluate(num_samples=50).metrics["reward_mean"]
    assert before < 0.3
    assert after > 0.8
    # the reward in the view is that of the two texts in the env inside
    (said,) = learner.agents["team"].with_generation(max_new_tokens=2).act(["c"])[0]
    env.reset(options={"row": 2})
    paid = env.step({"agent_0": said.text[:1], "agent_1": said.text[1:2]})[1]
    learner.env.reset(options={"row": 2})
    assert learner.env.step({"team": said.text})[1] == {"team": paid["agent_0"]}
    learner.save_model(tmp_path)
    saved = LMAgent.from_pretrained(tmp_path / "team").model
    assert (saved.lm_head.weight == agent.model.lm_head.weight).all()


def test_it_is_magrpo_in_the_view() -> None:
    weights = []
    for centralised in (True, False):
        agent, settings = letter_agent(), config(num_train_epochs=2)
        env = matching_env(2)
        if centralised:
            team = {"agent_0": agent, "agent_1": agent}  # the one under all names
            learner = algos.make("centralised-magrpo", env, team, settings, view=VIEW)
        else:
            learner = MAGRPOTrainer(JointText(env, **VIEW), {"team": agent}, settings)
        learner.train()
        weights.append(agent.model.lm_head.weight)
        assert learner.agents == {"team": agent}
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != letter_agent().model.lm_head.weight).any()


def test_both_envs_are_put_into_the_same_view_once() -> None:
    given = JointText(matching_env(), **VIEW)
    learner = algos.make(
        "centralised-magrpo", given, {"writer": letter_agent()}, config(), eval_env=matching_env()
    )
    assert learner.env is given
    assert learner.eval_env.reset(seed=0)[0]["team"].startswith(LETTERS[0] + "\n\nAnswer in this")
    with pytest.raises(ValueError, match=r"view= for an env that is not in one yet.*'parser'"):
        algos.make("centralised-magrpo", given, letter_agent(), config(), view=VIEW)


def test_teams_of_several_are_refused() -> None:
    team = {name: letter_agent(i) for i, name in enumerate(("agent_0", "agent_1"))}
    with pytest.raises(ValueError, match="Expected one agent that writes for all, got 2 different"):
        algos.make("centralised-magrpo", matching_env(), team)
    with pytest.raises(ValueError, match="at least one LMAgent that is not frozen"):
        algos.make("centralised-magrpo", matching_env(), FixedAgent("a"))
    with pytest.raises(TypeError, match=r"Expected an? MAGRPOConfig as config"):
        algos.make("centralised-magrpo", matching_env(), letter_agent(), algos.FrozenConfig())
