"""What a page is made of: the data in it, its size, and what it says of a run that is not whole."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from drawn_rollouts import REPEATABLE, rollouts, shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from viewer_pages import DATA, read_page
from viewer_runs import AGENTS, HOSTILE, drawn_rollout, one_turn, written

from motet import envs
from motet.agents import GenerationConfig, pocket
from motet.algos import Node, Rollout, collect_rollouts
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.viewer import Page, view_rollout, write_view
from motet.algos.viewer import fates as fate
from motet.algos.viewer.page import encoded
from motet.algos.viewer.page_data import compact, metrics_data, utf16_lengths


def texts_of(data: Any) -> list[str]:
    return [
        data["texts"][one["text"]]
        for rollout in data["rollouts"]
        for node in rollout["nodes"]
        for group in node["said"]
        for one in group
    ]


# --- what is in it --------------------------------------------------------------------------------


def test_every_text_of_a_rollout_is_there_and_each_once() -> None:
    rollout = drawn_rollout(0, num_generations=3, num_turns=2, rows=(4, 5))
    data = read_page(view_rollout(rollout))
    written_texts = [
        one.text for node in rollout.nodes() for group in node.completions.values() for one in group
    ]
    assert texts_of(data) == written_texts
    assert len(data["texts"]) == len(set(data["texts"]))
    doubled = read_page(view_rollout([rollout, rollout]))
    assert doubled["texts"] == data["texts"]
    assert [each["number"] for each in doubled["rollouts"]] == [1, 2]


def test_children_are_places_in_one_list() -> None:
    rollout = drawn_rollout(0, num_generations=2, num_turns=3, rows=(4, 5))
    (data,) = read_page(view_rollout(rollout))["rollouts"]
    nodes = data["nodes"]
    assert [tree["root"] for tree in data["trees"]] == [0, 1]
    reached = [0, 1]
    for place in reached:
        reached += [child for child in nodes[place]["next"] if child >= 0]
    assert sorted(reached) == list(range(len(nodes)))
    for place, node in enumerate(nodes):
        for child in node["next"]:
            if child >= 0:
                assert nodes[child]["row"] == node["row"]
                assert nodes[child]["turn"] == node["turn"] + 1
                assert child > place


def test_returns_are_those_that_learners_use() -> None:
    rollout = drawn_rollout(3, num_generations=2, num_turns=3)
    (data,) = read_page(view_rollout(rollout, discount=0.5))["rollouts"]
    levels = rollout_returns(rollout, 0.5)
    expected = [own["agent_0"].tolist() for level in levels for own in level]
    for node, values in zip(data["nodes"], expected, strict=True):
        assert node["return"]["all"] == pytest.approx(values, rel=1e-5)


def test_rewards_of_each_agents_own_are_kept_apart() -> None:
    own = {"agent_0": (1.0, 0.0), "agent_1": (0.25, -3.0)}
    (data,) = read_page(view_rollout(one_turn(["a", "b"], rewards=own)))["rollouts"]
    assert data["nodes"][0]["paid"] == {"0": [1, 0], "1": [0.25, -3]}
    assert data["trees"][0]["low"] == -1.5
    # returns of the joint actions, agents averaged: 0.625 and -1.5; half their distance
    assert data["trees"][0]["spread"] == pytest.approx(1.0625)


def test_advantages_say_what_was_not_trained() -> None:
    three = dict.fromkeys(AGENTS, (0.5, (0.1, -0.2, 1e-09), None))
    rollout = one_turn(["abcdefgh"] * 3, advantages=three)
    (data,) = read_page(view_rollout(rollout))["rollouts"]
    group = data["nodes"][0]["said"][0]
    assert [one["advantage"] for one in group] == [0.5, [0.1, -0.2, 1e-9], None]
    (data,) = read_page(view_rollout(one_turn(["a"])))["rollouts"]
    assert "advantage" not in data["nodes"][0]["said"][0][0]


def test_drafts_greedy_rewards_and_states_are_there() -> None:
    rollout = one_turn(
        ["a"],
        drafts={"agent_1": (written("a draft", 2),)},
        greedy_rewards=dict.fromkeys(AGENTS, (0.5, 0.75)),
        greedy_turns_credited=2,
        state="the global view",
    )
    data = read_page(view_rollout(rollout))
    node = data["rollouts"][0]["nodes"][0]
    assert data["texts"][node["drafts"]["agent_1"][0]["text"]] == "a draft"
    assert node["greedy"]["agent_0"] == [0.5, 0.75]
    assert node["greedy_credited"] == 2
    assert data["texts"][node["state"]] == "the global view"


def test_token_lengths_count_as_javascript_does() -> None:
    # a letter outside the basic plane is two units there, and one character here
    assert utf16_lengths("a\U0001d4b3b", [1, 2, 3]) == [1, 2, 1]
    assert utf16_lengths("a\u00f1b", [1, 2, 3]) == [1, 1, 1]
    assert utf16_lengths("ab", [1, 1, 2, 2]) == [1, 0, 1, 0]
    assert utf16_lengths("", [0]) == [0]
    assert utf16_lengths("👍🏽!", [2, 3]) == [4, 1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1 + 0.2, 0.3),
        (2.0, 2),
        (1234567.0, 1234570),
        (float("nan"), None),
        (float("inf"), None),
        ("a", None),
        (True, None),
        (None, None),
        (-0.000123456789, -0.000123457),
    ],
)
def test_numbers_are_short_and_finite(value: Any, expected: Any) -> None:
    assert compact(value) == expected
    assert type(compact(value)) is type(expected)


def test_a_log_becomes_columns() -> None:
    entries = [
        {"step": 0, "eval/reward_mean": 0.5},
        {"step": 8, "train/loss": float("nan"), "turn_1/reward_mean": 0.25},
        {"step": 16, "train/loss": None, "turn_1/reward_mean": 0.5},
    ]
    assert metrics_data(entries) == {
        "step": [0, 8, 16],
        "columns": {
            "eval/reward_mean": [0.5, None, None],
            "turn_1/reward_mean": [None, 0.25, 0.5],
        },
    }


# --- which branch ended, and why ------------------------------------------------------------------


def two_turns(**first: Any) -> Rollout:
    """A first turn of three joint actions of which the second goes on, and its next turn."""
    (level,) = one_turn(["a", "b", "c"], **{"children": (None, 0, None)} | first).levels
    (below,) = one_turn(["d"], turn=2).levels
    return Rollout(AGENTS, (level, below))


@pytest.mark.parametrize(
    ("num_turns", "first", "expected"),
    [
        (2, {"ended": (True, False, True)}, [fate.ENDED_EARLY, fate.GOES_ON, fate.ENDED_EARLY]),
        (None, {"ended": (True, False, True)}, [fate.ENDED_EARLY, fate.GOES_ON, fate.ENDED_EARLY]),
        (
            2,
            {"ended": (True, False, True), "turns_credited": (2, 1, 1)},
            [fate.CREDITED_EARLY, fate.GOES_ON, fate.ENDED_EARLY],
        ),
        (
            2,
            {"ended": (False, False, True)},
            [fate.NOT_FOLLOWED, fate.GOES_ON, fate.ENDED_EARLY],
        ),
        (
            2,
            {"ended": (False, False, True), "children": (1, 0, None)},
            [fate.MISSING, fate.GOES_ON, fate.ENDED_EARLY],
        ),
    ],
)
def test_what_became_of_a_branch(
    num_turns: int | None, first: dict[str, Any], expected: list[int]
) -> None:
    assert fate.fates(two_turns(**first), num_turns)[0] == [expected]


def test_a_last_turn_is_only_called_so_where_the_task_is_known() -> None:
    assert fate.fates(one_turn(["a"]), 1) == [[[fate.LAST_TURN]]]
    assert fate.fates(one_turn(["a"]), 3) == [[[fate.ENDED_EARLY]]]
    assert fate.fates(one_turn(["a"])) == [[[fate.DEEPEST_TURN]]]


# --- no way out of the data -----------------------------------------------------------------------


def test_nothing_of_the_data_is_in_the_markup() -> None:
    plain = view_rollout(one_turn(["a"]))
    hostile = view_rollout(one_turn(list(HOSTILE.values()), prompt=HOSTILE["script"]))
    assert DATA.sub(r"\1\3", plain) == DATA.sub(r"\1\3", hostile)
    found = DATA.search(hostile)
    assert found is not None
    assert re.fullmatch(r"[A-Za-z0-9+/=\n]+", found.group(2))


def test_hostile_texts_come_back_as_they_were() -> None:
    texts = texts_of(read_page(view_rollout(one_turn(list(HOSTILE.values())))))
    assert texts == [*HOSTILE.values()] * 2


def test_halves_of_surrogate_pairs_can_be_written(tmp_path: Path) -> None:
    one_turn(["half \ud83d", "\\\ud800", "\udc00\ud83d"]).save(tmp_path / "000001.jsonl")
    page = write_view(tmp_path / "000001.jsonl").read_text(encoding="utf-8")
    assert texts_of(read_page(page))[:3] == ["half \ud83d", "\\\ud800", "\udc00\ud83d"]


def test_the_page_allows_its_own_script_and_no_connection() -> None:
    page = view_rollout(one_turn(["a"]))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-[\w+/=]+'; style-src 'sha256-[\w+/=]+'; "
        r"base-uri 'none'; form-action 'none'",
        policy.group(1),
    )
    outside = DATA.sub("", page)
    assert re.findall(r"https?://[^\s\"']+", outside) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(src|srcset|href)=\"(?!#)", outside)
    assert "@import" not in outside
    assert "url(" not in outside
    assert "innerHTML" not in outside
    assert "insertAdjacentHTML" not in outside


def test_a_notebook_shows_it_in_a_frame() -> None:
    page = view_rollout(one_turn(["</iframe>"]))
    assert isinstance(page, Page)
    frame = page._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    assert frame.count("<") == 2  # the frame's own tags: all of the page is quoted


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_token", [False, True])
def test_a_thousand_turns_take_at_most_five_megabytes(per_token: bool) -> None:
    rollout = drawn_rollout(1, num_generations=4, num_turns=4, rows=(0, 1, 2), per_token=per_token)
    assert rollout.num_joint_actions == 1020
    tokens = rollout.num_tokens / rollout.num_completions
    assert 64 <= tokens <= 128
    assert len(view_rollout(rollout).encode()) <= 5_000_000


def test_turns_of_a_real_team_take_a_small_part_of_that() -> None:
    env = envs.make("story-length-ratio-v0", num_turns=2)
    settings = GenerationConfig(max_new_tokens=64)
    team = {name: pocket(generation=settings) for name in env.possible_agents}
    rollout = collect_rollouts(env, team, [0, 1], num_generations=3, joint_mode="cross", seed=0)
    turns = rollout.num_joint_actions
    assert turns == 2 * (9 + 81)
    empty = len(view_rollout(Rollout(rollout.agents, ())))
    assert len(view_rollout(rollout)) - empty <= 5_000_000 * turns / 1000 / 10


def test_a_long_log_is_packed() -> None:
    entries = [
        {"step": k, **{f"train/metric_{i}": (k * 7919 + i) % 1000 / 997 for i in range(30)}}
        for k in range(2000)
    ]
    assert len(encoded(metrics_data(entries))) < 500_000


def test_agents_that_wait_have_rewards_and_no_completions() -> None:
    (level,) = one_turn(["a", "b"]).levels
    waits: Node = dataclasses.replace(
        level[0],
        completions={"agent_1": level[0].completions["agent_1"]},
        observations={"agent_1": "Write."},
        joint_actions=((0,), (1,)),
    )
    (data,) = read_page(view_rollout(Rollout(AGENTS, ((waits,),))))["rollouts"]
    assert data["nodes"][0]["acts"] == [1]
    assert data["nodes"][0]["paid"] == {"all": [0, 0.5]}


@settings(REPEATABLE, max_examples=60)
@given(st.data(), st.sampled_from([None, 1, 2, 3]))
def test_any_tree_has_a_page(data: st.DataObject, num_turns: int | None) -> None:
    """Agents that wait or leave, branches that end early, rewards of each agent's own."""
    rollout = data.draw(rollouts(data.draw(shapes(greedy=data.draw(st.booleans())))))
    (shown,) = read_page(view_rollout(rollout, num_turns=num_turns))["rollouts"]
    assert len(shown["nodes"]) == sum(map(len, rollout.levels))
    assert sum(tree["actions"] for tree in shown["trees"]) == rollout.num_joint_actions
    for node, data_of in zip(rollout.nodes(), shown["nodes"], strict=True):
        assert [rollout.agents[place] for place in data_of["acts"]] == list(node.completions)
        for place, name in enumerate(rollout.agents):
            paid = data_of["paid"].get("all") or data_of["paid"].get(str(place))
            assert paid == (pytest.approx(node.rewards[name]) if name in node.rewards else None)
        goes_on = [end == fate.GOES_ON for end in data_of["end"]]
        assert goes_on == [child is not None for child in node.children]
        assert goes_on == [place >= 0 for place in data_of["next"]]
