"""OrderEnforcing: what comes before reset() raises a sentence, whatever the env inside does."""

import pytest
from good_env import Good
from gymnasium import error

from motet.envs import make
from motet.envs.wrappers import OrderEnforcing


class Careless(Good):
    """Checks no order: each method would fail, or answer nonsense, in its own way."""

    def step(self, actions):
        self.turn += 1
        return ({}, {}, {}, {}, {})

    def state(self):
        return self.turn

    def render(self):
        return f"turn {self.turn}"


@pytest.mark.parametrize(("name", "args"), [("step", ({},)), ("state", ()), ("render", ())])
def test_nothing_works_before_reset(name, args):
    env = OrderEnforcing(Careless())
    assert not env.has_reset
    with pytest.raises(error.ResetNeeded, match=rf"{name}\(\) before reset\(\)"):
        getattr(env, name)(*args)
    assert env.env.turn == 0
    env.reset(seed=0)
    assert env.has_reset
    getattr(env, name)(*args)


def test_step_after_the_end_raises():
    env = OrderEnforcing(Careless())
    env.reset()
    env.step({"ann": "a", "bob": "b"})  # nobody is left
    with pytest.raises(error.ResetNeeded, match="after its end"):
        env.step({})


def test_rendering_can_be_let_through():
    env = OrderEnforcing(Careless(), disable_render_order_enforcing=True)
    assert env.render() == "turn 0"
    with pytest.raises(error.ResetNeeded, match=r"state\(\) before"):
        env.state()
    with pytest.raises(error.ResetNeeded, match="disable_render_order_enforcing=True to allow"):
        OrderEnforcing(Careless()).render()


def test_clones_and_snapshots_know_whether_an_episode_was_started():
    env = OrderEnforcing(make("story-length-ratio-v0", render_mode="ansi"))
    assert not env.clone().has_reset
    env.reset(seed=0)
    assert env.clone().render() == env.render()
    other = OrderEnforcing(make("story-length-ratio-v0", render_mode="ansi"))
    other.set_state(env.get_state())
    assert other.render() == env.render()


def test_the_option_is_true_or_false():
    with pytest.raises(TypeError, match="True or False as disable_render_order_enforcing, got 1"):
        OrderEnforcing(Careless(), disable_render_order_enforcing=1)
