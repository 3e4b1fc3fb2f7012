"""check_env passes good environments and catches each broken one, with the sentence that helps.

The environments are in `good_env.py` and in the four `broken_*.py` beside this folder.
"""

import inspect
import pickle
import random
import re
from pathlib import Path

import broken_batches  # noqa: F401 # importing these four fills BROKEN
import broken_episodes  # noqa: F401
import broken_snapshots  # noqa: F401
import broken_steps  # noqa: F401
import numpy as np
import pytest
from good_env import BROKEN, FixedStart, Good, GoodWrapper
from gymnasium import spaces
from pettingzoo.utils import BaseParallelWrapper

from motet.envs import EnvCheckError, EnvSpec, TextSpace, check_env, make, registry, spec
from motet.envs.wrappers import Wrapper


@pytest.mark.parametrize("env", [FixedStart, Good, Good(), lambda: GoodWrapper(Good())])
def test_good_environments_pass(env):
    check_env(env)


@pytest.mark.parametrize("id", sorted(registry))
def test_every_registered_task_passes(id):
    check_env(id)


@pytest.mark.parametrize("num_turns", [1, 2])
def test_story_length_ratio_passes(num_turns):
    check_env("story-length-ratio-v0", num_turns=num_turns)
    check_env(spec("story-length-ratio-v0").make(num_turns=num_turns, shuffle=True))


def test_keyword_arguments_reach_the_factory_and_the_spec():
    made = []

    def factory(num_turns):
        made.append(num_turns)
        return Good(num_turns)

    check_env(factory, seeds=[5], num_turns=2)
    assert set(made) == {2}
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        check_env(spec("story-length-ratio-v0"), colour="red")


def test_global_generators_are_left_as_they_are():
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    check_env(Good)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_an_instance_is_left_as_it_is():
    env = Good()
    env.reset(seed=3)
    env.step({"ann": "a", "bob": "b"})
    before = env.get_state()
    check_env(env)
    assert env.get_state() == before


def test_agents_may_have_other_names_than_strings():
    class Numbered(Good):
        def __init__(self, num_turns=3):
            super().__init__(num_turns)
            self.possible_agents = [0, 1]
            self.spaces = {agent: TextSpace() for agent in self.possible_agents}

    check_env(Numbered)


def test_an_episode_without_agents_is_caught():
    class Deserted(Good):
        def reset(self, seed=None, options=None):
            super().reset(seed=seed, options=options)
            self.agents = []
            return {}, {}

    with pytest.raises(EnvCheckError, match="at least one live agent after reset"):
        check_env(Deserted)


def test_what_nobody_can_change_may_come_again():
    mask = np.ones(3, dtype=np.int8)

    class Masked(Good):
        def inform(self, agents):
            return {agent: {**info, "mask": mask} for agent, info in super().inform(agents).items()}

    with pytest.raises(EnvCheckError, match="fresh objects"):
        check_env(Masked)
    mask.flags.writeable = False
    check_env(Masked)


def test_a_wrapper_that_starts_batches_otherwise_is_caught():
    class Forgetful(Wrapper):
        def after_reset_batch(self, results, seeds):
            begun = super().after_reset_batch(results, seeds)
            return (
                begun if len(begun) == 1 else [(None, {**o, "agent_0": ""}, i) for _, o, i in begun]
            )

    def factory():
        return Forgetful(make("story-length-ratio-v0", num_turns=2))

    with pytest.raises(EnvCheckError, match=r"observations after reset to row 0 .* reset_batch"):
        check_env(factory)


def test_an_instance_whose_clone_drops_its_wrapper_is_caught():
    class Nothing(Good):
        def clone(self, *, seed=None):
            return None

    for env, sentence in (
        (
            BaseParallelWrapper(Good()),
            r"BaseParallelWrapper\(Good\) .*got Good; a wrapper must clone itself",
        ),
        (Nothing(), "got .*NoneType"),
    ):
        with pytest.raises(EnvCheckError, match=sentence) as caught:
            check_env(env)
        assert caught.value.rule == "clones are whole"


def test_wrong_arguments():
    with pytest.raises(ValueError, match="at least one seed"):
        check_env(Good, seeds=())
    with pytest.raises(TypeError, match="got 17"):
        check_env(17)
    with pytest.raises(TypeError, match="a factory of ParallelEnvs, got one of None"):
        check_env(lambda: None)
    with pytest.raises(TypeError, match=r"only with an id or a factory, got \['num_turns'\]"):
        check_env(Good(), num_turns=2)


def test_the_error_pickles():
    exception = pickle.loads(pickle.dumps(EnvCheckError("rewards", "expected a float")))
    assert str(exception) == "rewards: expected a float"
    assert (exception.rule, exception.sentence) == ("rewards", "expected a float")


@pytest.mark.parametrize(("env", "rule", "fragments"), BROKEN)
def test_broken_environments_are_caught(env, rule, fragments):
    with pytest.raises(EnvCheckError) as caught:
        check_env(env)
    assert caught.value.rule == rule, str(caught.value)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_every_rule_has_a_broken_environment():
    folder = Path(inspect.getfile(check_env)).parent
    modules = ("check_env", "played_episode", "env_rules", "snapshot_rules", "batch_rules")
    source = "".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in modules)
    rules = set(re.findall(r'EnvCheckError\(\s*"([^"]+)"', source))
    assert len(rules) > 15
    assert rules <= {param.values[1] for param in BROKEN}


def test_texts_outside_a_bounded_space_are_not_sent():
    class Bounded(Good):
        def __init__(self, num_turns=3):
            super().__init__(num_turns)
            self.acting = {agent: TextSpace(20, min_length=1) for agent in self.possible_agents}

        def action_space(self, agent):
            return self.acting[agent]

        def check(self, actions):
            super().check(actions)
            for agent, action in actions.items():
                if action not in self.acting[agent]:
                    raise ValueError(f"the action of {agent} has {len(action)} characters")

    check_env(Bounded)


def test_environments_over_other_spaces_can_be_checked():
    class Choices(Good):
        def __init__(self, num_turns=3):
            super().__init__(num_turns)
            self.acting = {agent: spaces.Discrete(3) for agent in self.possible_agents}

        def action_space(self, agent):
            return self.acting[agent]

        def step(self, actions):
            chosen = {
                a: "x" * int(x) if isinstance(x, int | np.integer) and x in range(3) else x
                for a, x in actions.items()
            }
            return super().step(chosen)

    check_env(Choices)


def test_a_task_declared_to_differ_is_spared_the_comparisons_alone():
    class Moody(Good):
        """Pays as it likes, as a judge behind an API would."""

        mood = np.random.default_rng()

        def reward(self, agent, action):
            return float(self.mood.random())

    with pytest.raises(EnvCheckError, match="determinism"):
        check_env(EnvSpec("moody-v0", Moody))
    check_env(EnvSpec("moody-v0", Moody, nondeterministic=True))

    class Infinite(Moody):
        def reward(self, agent, action):
            return float("inf")

    with pytest.raises(EnvCheckError, match="finite Python float"):
        check_env(EnvSpec("moody-v0", Infinite, nondeterministic=True))
