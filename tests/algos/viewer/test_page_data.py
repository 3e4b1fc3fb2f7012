"""What a page is made of: the data in it, its size, and what it says of a run that is not whole."""

import base64
import dataclasses
import json
import re
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from viewer_pages import DATA
from viewer_runs import AGENTS, HOSTILE, drawn_rollout, one_turn, write_run, written

from motet import envs
from motet.agents import GenerationConfig, pocket
from motet.algos import Node, Rollout, collect_rollouts
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.viewer import Page, view_rollout, write_view
from motet.algos.viewer import fates as fate
from motet.algos.viewer.page import encoded
from motet.algos.viewer.page_data import compact, metrics_data, utf16_lengths
from motet.algos.viewer.rollout_files import evenly_chosen, whole_lines
from motet.algos.viewer.settings import settings_of


def read_page(page: str) -> Any:
    """What the script of a page reads, as the browser does."""
    found = DATA.search(page)
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found.group(2))))


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


# --- runs that are not whole ----------------------------------------------------------------------


def test_a_run_is_written_beside_its_files(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", {1: drawn_rollout(0), 10: drawn_rollout(1)}, {0: one_turn(["a"])}
    )
    path = write_view(run)
    assert path == run / "view.html"
    data = read_page(path.read_text(encoding="utf-8"))
    assert data["notices"] == []
    assert [(each["kind"], each["number"]) for each in data["rollouts"]] == [
        ("training", 1),
        ("training", 10),
        ("evaluation", 0),
    ]
    assert dict(data["facts"]) == {
        "Task": "story-length-ratio-v0",
        "Learner": "magrpo",
        "Seed": "7",
        "Motet": "0.1.0",
        "Torch": "2.12.0",
    }
    assert data["num_turns"] == 2
    assert data["written"]
    first = data["rollouts"][0]["nodes"]
    below = first[first[0]["next"][0]]["return"]["all"]
    mean = sum(below) / len(below)
    assert first[0]["return"]["all"][0] == pytest.approx(
        first[0]["paid"]["all"][0] + 0.5 * mean,
        rel=1e-4,  # the discount of run.yaml
    )
    assert write_view(run, tmp_path / "elsewhere" / "page.html").is_file()


def test_an_empty_folder_has_a_page_that_says_so(tmp_path: Path) -> None:
    data = read_page(write_view(tmp_path).read_text(encoding="utf-8"))
    assert data["rollouts"] == []
    assert [notice.split(",")[0] for notice in data["notices"]] == [
        "There is no run.yaml",
        "There is no metrics.jsonl",
        "No rollouts were saved yet: there is no file in rollouts/.",
        "No evaluations were saved yet: there is no file in evaluations/.",
    ]


def test_what_is_cut_or_broken_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", {1: drawn_rollout(0), 2: drawn_rollout(1), 3: drawn_rollout(2)}
    )
    cut = run / "rollouts" / "000001.jsonl"
    cut.write_text(cut.read_text()[:-200])
    (run / "rollouts" / "000002.jsonl").write_text("")
    broken = run / "rollouts" / "000003.jsonl"
    header, _, *rest = broken.read_text().splitlines()
    broken.write_text("\n".join([header, "{no json", *rest]) + "\n")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('["no entry"]\n{"step": 9, "turn_1/rew')
    (run / "run.yaml").write_text("a: [1\nb: }")
    data = read_page(write_view(run).read_text(encoding="utf-8"))
    assert [each["number"] for each in data["rollouts"]] == [1]
    notices = "\n".join(data["notices"])
    for part in (
        "run.yaml is no YAML",
        "Line 63 of metrics.jsonl is no entry",
        "The last line of metrics.jsonl is cut",
        "rollouts/000001.jsonl ends early",
        "rollouts/000002.jsonl is left out. Expected a rollout",
        "rollouts/000003.jsonl is left out. Expected a line of JSON, got '{no json' in line 2",
    ):
        assert part in notices
    (kept,) = data["rollouts"]
    assert kept["cut"]
    assert all("return" not in node for node in kept["nodes"])
    ends = [end for node in kept["nodes"] for end in node["end"]]
    assert ends.count(fate.MISSING) == 1
    assert len(data["metrics"]["step"]) == 62


@pytest.mark.parametrize("length", [0, 1, 20, 400])
def test_a_rollout_cut_anywhere_is_shown_or_refused(tmp_path: Path, length: int) -> None:
    run = write_run(tmp_path / "run", {1: drawn_rollout(0)})
    path = run / "rollouts" / "000001.jsonl"
    path.write_text(path.read_text()[:length])
    data = read_page(write_view(run).read_text(encoding="utf-8"))
    assert len(data["notices"]) == 2  # of the rollout, and of the missing evaluations
    with pytest.raises(ValueError, match="whole line") if length < 400 else nullcontext():
        write_view(path)


def test_a_file_without_a_last_line_break_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    assert whole_lines(path) == (['{"step": 1}', '{"step": 2}'], False)
    path.write_text('{"step": 1}\n{"ste')
    assert whole_lines(path) == (['{"step": 1}'], True)
    path.write_text("")
    assert whole_lines(path) == ([], False)


def test_a_file_that_is_no_rollout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"Expected a file that Rollout\.save .* other\.jsonl"):
        write_view(path)
    with pytest.raises(FileNotFoundError, match="Expected the folder of a run"):
        write_view(tmp_path / "nothing")


def test_so_many_rollouts_as_asked_for(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {k: one_turn([str(k)]) for k in range(1, 12)})
    data = read_page(write_view(run, max_rollouts=3).read_text(encoding="utf-8"))
    assert [each["number"] for each in data["rollouts"]] == [1, 6, 11]
    assert "3 of the 11 files in rollouts/ are shown." in data["notices"]
    with pytest.raises(ValueError, match="max_rollouts of at least 1, got 0"):
        write_view(run, max_rollouts=0)


def test_evenly_spaced_with_both_ends() -> None:
    files = [(k, Path(f"{k}.jsonl")) for k in range(10)]
    assert [number for number, _ in evenly_chosen(files, 4)] == [0, 3, 6, 9]
    assert [number for number, _ in evenly_chosen(files, 1)] == [9]
    assert evenly_chosen(files, 10) == files
    assert evenly_chosen(files, None) == files


def test_settings_are_found_wherever_they_are() -> None:
    settings = settings_of(
        {
            "env": {"id": "some-task-v0", "kwargs": {"num_turns": 3}},
            "learner": {"algo": "ippo", "config": {"seed": 1, "discount": 0.9}},
            "agents": {"agent_0": {"model": "a"}, "agent_1": {"model": "b"}, "x": {"model": "a"}},
        }
    )
    assert dict(settings.facts) == {
        "Task": "some-task-v0",
        "Learner": "ippo",
        "Model": "a, b",
        "Seed": "1",
    }
    assert (settings.num_turns, settings.discount) == (3, 0.9)
    assert settings_of({"num_turns": "two", "discount": True}).num_turns is None
    assert settings_of({"discount": True}).discount is None


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
