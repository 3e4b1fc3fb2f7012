"""Two teams on the same episodes: who wins, by hand."""

import math

import pytest
from tiny import LETTERS, letter_agent, matching_env

from motet.agents import FixedAgent, RandomAgent
from motet.algos import Discussion, compare_evaluations, compare_teams, cross_play, evaluate
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")


def same(text: str) -> dict[str, FixedAgent]:
    return dict.fromkeys(NAMES, FixedAgent(text))


def first_letter_env() -> TextEnv:
    """Pays 2 in rows whose prompt the first agent says, 1 in those that it does not."""
    return TextEnv(
        [{"prompt": letter} for letter in LETTERS],
        lambda a, b, prompts: [
            1.0 + (said == prompt) for said, prompt in zip(a, prompts, strict=True)
        ],
    )


def test_wins_ties_and_losses_by_hand() -> None:
    # rows a, b, c, d: "a" is paid 2, 1, 1, 1 and "b" 1, 2, 1, 1
    compared = compare_teams(first_letter_env(), same("a"), same("b"))
    assert (compared.wins, compared.ties, compared.losses) == (1, 2, 1)
    assert compared.win_rate == 0.5
    assert compared.difference == 0
    # differences 1, -1, 0, 0: standard error sqrt(2 / 3 / 4), t of three degrees 3.18245
    half = 3.182446 * math.sqrt(2 / 12)
    assert compared.difference_interval == pytest.approx((-half, half), rel=1e-5)
    assert compared.first.metrics["return_mean"] == 1.25
    # of 1, 0, 1/2, 1/2 s^2 is 1/24, worth 6 draws, of which there are 4: at p = 1/2 the half of
    # Wilson's is t / (1 + t^2 / 4) sqrt(1/16 + t^2 / 64), 0.423
    assert str(compared) == (
        "1 wins, 2 ties, 1 losses: win rate 0.500 [0.077, 0.923], mean difference in return "
        "+0.000 [-1.299, 1.299]."
    )


def test_pairing_by_row_takes_out_what_rows_differ_by() -> None:
    env = TextEnv(
        [{"prompt": str(10**k)} for k in range(4)],
        lambda a, b, prompts: [
            float(prompt) + len(said) for said, prompt in zip(a, prompts, strict=True)
        ],
    )
    compared = compare_teams(env, same("xx"), same("x"), num_samples=3)
    assert compared.wins == 12
    assert compared.difference == pytest.approx(1)
    assert compared.difference_interval == pytest.approx((1, 1))
    low, high = compared.first.intervals["return_mean"]
    assert high - low > 1000


def test_a_team_ties_with_itself_and_the_order_turns_the_signs() -> None:
    env = matching_env(2)
    team = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    itself = compare_teams(env, team, team, num_samples=5, seed=3)
    assert (itself.wins, itself.ties, itself.losses) == (0, 20, 0)
    one = compare_teams(env, team, same("a"), [0, 2], num_samples=5)
    other = compare_teams(env, same("a"), team, [0, 2], num_samples=5)
    assert (one.wins, one.ties, one.losses) == (other.losses, other.ties, other.wins)
    assert one.difference == -other.difference
    assert one.first == other.second


def test_evaluations_of_other_episodes_are_refused() -> None:
    env = matching_env()
    first = evaluate(env, same("a"), [0, 1], num_samples=2)
    with pytest.raises(ValueError, match="4 and 2 episodes, of which episode 1 of row 0"):
        compare_evaluations(first, evaluate(env, same("a"), [0, 1]))
    with pytest.raises(ValueError, match="episode 0 of row 1"):
        compare_evaluations(first, evaluate(env, same("a"), [0, 2], num_samples=2))
    with pytest.raises(ValueError, match="num_samples of at least 1"):
        compare_teams(env, same("a"), same("b"), num_samples=0)


def test_conventions_show_in_the_matrix() -> None:
    teams = {letter: same(letter) for letter in "abc"}
    played = cross_play(matching_env(2), teams)
    assert played.teams == ("a", "b", "c")
    assert played.matrix() == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
    assert played.evaluations["a", "b"].metrics["turn_1/reward_mean"] == 0


def test_the_seat_is_the_first_teams_and_the_rest_the_seconds() -> None:
    # the seat is paid 1 for what it says, the others nothing
    env = TextEnv(
        [{"prompt": "p"}, {"prompt": "q"}],
        lambda a, b: {
            "agent_0": [0.0] * len(a),
            "agent_1": [float(len(said)) for said in b],
        },
    )
    played = cross_play(env, {"short": same("x"), "long": same("xxx")}, seat="agent_1")
    assert played.matrix("return_mean/agent_1") == [[1, 1], [3, 3]]
    assert played.matrix() == [[0.5, 0.5], [1.5, 1.5]]
    texts = played.evaluations["short", "long"].episodes[0].nodes[0].completions
    assert {name: group[0].text for name, group in texts.items()} == {
        "agent_0": "xxx",
        "agent_1": "x",
    }


def test_teams_that_cannot_be_taken_apart_are_refused() -> None:
    env = matching_env()
    letters = {name: RandomAgent(list(LETTERS)) for name in NAMES}
    with pytest.raises(TypeError, match="dict of agents by name as team 'talk'"):
        cross_play(env, {"talk": Discussion(letters), "plain": letters})
    with pytest.raises(ValueError, match=r"each of .* in team 'half'"):
        cross_play(env, {"half": {"agent_0": letters["agent_0"]}})
    with pytest.raises(ValueError, match="seat to be one of"):
        cross_play(env, {"plain": letters}, seat="me")
    with pytest.raises(ValueError, match="teams by name, got none"):
        cross_play(env, {})
