"""APIAgent against a real server on this machine: what is asked for, and what comes back."""

import asyncio
import copy
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from openai_stub import KEY, OpenAIStub, Seen, numbered, prompt_of, refuse, reply_with, status

from motet.agents import (
    Agent,
    APIAgent,
    APICompletion,
    APILimits,
    Completion,
    FixedAgent,
    GenerationConfig,
)
from motet.agents.agent import GreedyAgent, HistoryAgent


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub() as server:
        yield server


def texts(groups: list[list[Completion]]) -> list[list[str]]:
    return [[completion.text for completion in group] for group in groups]


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_request_has_the_settings_and_the_key(stub: OpenAIStub, stream: bool) -> None:
    settings = GenerationConfig(max_new_tokens=7, temperature=0.5, top_p=0.9, stop_strings="##")
    agent = APIAgent(
        "small",
        base_url=stub.url,
        system_prompt="Be brief.",
        generation=settings,
        stream=stream,
        extra_body={"top_k": 20},
    )
    assert texts(agent.act(["Héllo 🌍"], 2))[0][1].endswith("|1")
    (seen,) = stub.requests
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    assert seen.body == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Héllo 🌍"},
        ],
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["##"],
        "top_k": 20,
        "n": 2,
        **options,
    }


@pytest.mark.parametrize("stream", [False, True])
def test_raw_completions_go_on_from_a_text(stub: OpenAIStub, stream: bool) -> None:
    agent = APIAgent("base", base_url=stub.url, chat=False, stream=stream)
    assert texts(agent.act(["Once upon"])) == [["Once upon|seed None|0"]]
    (seen,) = stub.requests
    assert (seen.path, seen.body["prompt"]) == ("/v1/completions", "Once upon")
    with pytest.raises(ValueError, match="chat=True together with a system_prompt"):
        APIAgent("base", base_url=stub.url, chat=False, system_prompt="Be brief.")


def test_the_likeliest_completion_is_asked_for_at_temperature_0(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url)
    assert isinstance(agent, Agent) and isinstance(agent, GreedyAgent)
    agent.act(["a"])
    agent.greedy().act(["a"])
    assert [seen.body["temperature"] for seen in stub.requests] == [1.0, 0.0]
    assert agent.usage.num_requests == 2  # one account for both
    assert agent.generation.do_sample


def test_settings_that_no_endpoint_has_are_refused() -> None:
    for settings in ({"top_k": 5}, {"bf16": True}, {"max_rows": 4}, {"max_cache_gib": 1.0}):
        (name,) = settings
        with pytest.raises(ValueError, match=f"Expected {name}=.*extra_body"):
            APIAgent("m", generation=GenerationConfig(**settings))
    with pytest.raises(ValueError, match=r"got \['messages', 'n'\]"):
        APIAgent("m", extra_body={"n": 2, "messages": [], "top_k": 1})
    with pytest.raises(ValueError, match=r"got some for example\.org"):
        APIAgent("m", base_url="https://me:secret@example.org/v1")
    with pytest.raises(ValueError, match=r"http://localhost:8000/v1"):
        APIAgent("m", base_url="localhost:8000")
    with pytest.raises(ValueError, match="timeout_s above 0, got 0"):
        APILimits(timeout_s=0)
    with pytest.raises(ValueError, match="max_concurrency=0"):
        APILimits(max_concurrency=0)


def test_the_url_comes_from_the_environment_too(
    stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert APIAgent("m").host == "api.openai.com"
    monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
    agent = APIAgent("m")
    assert repr(agent) == f"APIAgent('m' at {stub.host})"
    agent.act(["a"])
    assert len(stub.requests) == 1


# --- many at once ---------------------------------------------------------------------------------


def test_completions_are_in_the_order_of_observations_whatever_comes_first() -> None:
    def slow_first(body: dict) -> float:
        return 0.4 - 0.1 * int(prompt_of(body))

    with OpenAIStub(delay_s=slow_first) as stub:
        groups = APIAgent("m", base_url=stub.url).act(["0", "1", "2", "3"], 2)
    assert [[text.split("|")[0] for text in group] for group in texts(groups)] == [
        [number, number] for number in "0123"
    ]
    assert [[text[-1] for text in group] for group in texts(groups)] == [["0", "1"]] * 4


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_requests_are_in_flight_than_allowed(most: int) -> None:
    with OpenAIStub(delay_s=0.2) as stub:
        agent = APIAgent("m", base_url=stub.url, limits=APILimits(max_concurrency=most))
        agent.act([str(i) for i in range(7)])
        assert len(stub.requests) == 7
        assert stub.max_in_flight == most


def test_it_can_be_asked_where_an_event_loop_runs(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url)

    async def in_a_notebook() -> list[list[Completion]]:
        return agent.act(["a"])

    assert texts(asyncio.run(in_a_notebook())) == [["a|seed None|0"]]


def test_nothing_is_asked_for_nothing(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url)
    assert agent.act([]) == []
    with pytest.raises(TypeError, match="list of observations"):
        agent.act("a")
    assert stub.requests == []


# --- several completions of a prompt, and seeds ---------------------------------------------------


def test_an_endpoint_that_ignores_n_is_asked_again_and_remembered() -> None:
    with OpenAIStub(honours_n=False) as stub, OpenAIStub(honours_n=False) as other:
        agent = APIAgent("m", base_url=stub.url)
        first = texts(agent.act(["a", "b"], 3, seed=5))
        assert [seen.body.get("n") for seen in stub.requests].count(3) == 2
        assert len(stub.requests) == 6
        again = texts(agent.act(["a", "b"], 3, seed=5))
        assert [seen.body.get("n") for seen in stub.requests[6:]] == [None] * 6
        assert again == first == texts(APIAgent("m", base_url=other.url).act(["a", "b"], 3, seed=5))
    assert len({text for group in first for text in group}) == 6  # a seed for each


@pytest.mark.parametrize(
    "told",
    ["Unsupported value: 'n' must be 1", "Extra inputs are not permitted: n", "Only n = 1"],
)
def test_an_endpoint_that_refuses_n_is_asked_one_by_one(stub: OpenAIStub, told: str) -> None:
    stub.plan(*[refuse("n", told)] * 4)
    agent = APIAgent("m", base_url=stub.url)
    groups = texts(agent.act(["a"], 3, seed=5))
    assert len(groups[0]) == len(set(groups[0])) == 3
    assert [seen.body.get("n") for seen in stub.requests] == [3, None, None, None]


def test_more_completions_than_asked_for_are_left_out(stub: OpenAIStub) -> None:
    given = [{"index": i, "finish_reason": "stop", "message": {"content": str(i)}} for i in (1, 0)]
    stub.plan(reply_with(given))
    assert texts(APIAgent("m", base_url=stub.url).act(["a"])) == [["0"]]


def test_seeds_are_sent_and_make_requests_reproducible(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url)
    first = texts(agent.act(["a", "a"], seed=1))
    assert first[0] != first[1]
    assert first == texts(agent.act(["a", "a"], seed=1))
    assert first != texts(agent.act(["a", "a"], seed=2))
    assert all(0 <= seen.body["seed"] < 2**31 for seen in stub.requests)
    agent.act(["a"])
    assert "seed" not in stub.requests[-1].body


def test_fields_that_an_endpoint_refuses_are_left_out_or_renamed(stub: OpenAIStub) -> None:
    """The sentence about `max_tokens` is that of OpenAI's newer models."""
    limit = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."
    refusals = [
        refuse("max_tokens", limit),
        refuse("seed", "Unknown field seed"),
        refuse("stream_options", "Unrecognized request argument: stream_options"),
    ]
    stub.plan(*refusals)
    agent = APIAgent("m", base_url=stub.url, stream=True)
    agent.act(["a"], seed=1)
    assert len(stub.requests) == 4
    last = stub.requests[-1].body
    assert last.keys() & {"max_tokens", "seed", "stream_options"} == set()
    assert last["max_completion_tokens"] == 256
    assert agent.usage.num_estimated == 1  # nobody counted the tokens
    agent.act(["a", "b"], seed=1)
    assert len(stub.requests) == 6  # all of it is remembered


def test_many_requests_may_learn_the_same_at_once() -> None:
    limit = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."
    with OpenAIStub(delay_s=0.05) as stub:
        stub.plan(*[refuse("max_tokens", limit)] * 12)
        agent = APIAgent("m", base_url=stub.url)
        assert len(agent.act([str(i) for i in range(6)])) == 6


def test_a_value_that_is_too_large_is_no_reason_to_use_another_name(stub: OpenAIStub) -> None:
    stub.plan(status(400, {"error": {"message": "max_tokens is above 100", "param": "max_tokens"}}))
    with pytest.raises(RuntimeError, match="max_tokens is above 100"):
        APIAgent("m", base_url=stub.url).act(["a"])
    assert len(stub.requests) == 1


# --- conversations --------------------------------------------------------------------------------


def said(seen: Seen) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in seen.body["messages"]]


def test_a_conversation_goes_on_from_its_own_completion(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url, history="append", system_prompt="Be brief.")
    assert isinstance(agent, HistoryAgent)
    (first,) = agent.act(["one"], 2, seed=0)
    assert "seed" in first[1].text
    second = agent.act(["two", "two", "two"], contexts=[first[0], None, first[1]])
    third = agent.act(["three"], contexts=[second[2][0]])
    assert said(stub.requests[-1]) == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", first[1].text),
        ("user", "two"),
        ("assistant", second[2][0].text),
        ("user", "three"),
    ]
    assert third[0][0].messages == (*said(stub.requests[-1])[1:], ("assistant", third[0][0].text))
    opening = [said(seen) for seen in stub.requests if len(said(seen)) == 2]
    assert opening == [
        [("system", "Be brief."), ("user", "one")],
        [("system", "Be brief."), ("user", "two")],
    ]


def test_a_raw_conversation_is_one_text(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url, history="append", chat=False)
    ((first,),) = agent.act(["one"])
    agent.act([" two"], contexts=[first])
    assert stub.requests[-1].body["prompt"] == f"one{first.text} two"


def test_contexts_that_carry_no_conversation_are_refused(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url, history="append")
    ((own,),) = agent.act(["a"])
    other = FixedAgent("x").act(["a"])[0][0]
    with pytest.raises(TypeError, match="completions of other agents, or from a file"):
        agent.act(["a"], contexts=[other])
    with pytest.raises(TypeError, match="got 'no' of type str"):
        agent.act(["a"], contexts=["no"])
    with pytest.raises(TypeError, match="list of 1 contexts, one for each observation, got a gen"):
        agent.act(["a"], contexts=(each for each in [own]))
    with pytest.raises(ValueError, match="list of 2 contexts, one for each observation, got 1"):
        agent.act(["a", "b"], contexts=[own])
    with pytest.raises(ValueError, match="history='none'"):
        APIAgent("m", base_url=stub.url).act(["a"], contexts=[own])
    with pytest.raises(ValueError, match="'none' or 'append'"):
        APIAgent("m", base_url=stub.url, history="all")
    assert len(stub.requests) == 1


def test_a_completion_equals_the_same_without_its_conversation() -> None:
    one = APICompletion("x", finish_reason="length", messages=(("user", "a"), ("assistant", "x")))
    assert one == Completion("x", finish_reason="length") == one
    assert one == APICompletion("x", finish_reason="length")
    assert one != Completion("x")
    assert one != APICompletion("y", finish_reason="length", messages=one.messages)
    assert one != "x"
    assert len({one, Completion("x", finish_reason="length")}) == 1
    for twin in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one), copy.copy(one)):
        assert type(twin) is APICompletion
        assert (twin, twin.messages) == (one, one.messages)
    assert replace(one, text="y") == Completion("y", finish_reason="length")
    with pytest.raises(AttributeError):
        one.text = "y"


# --- what it is to others -------------------------------------------------------------------------


def test_copies_and_pickles_act_by_themselves(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url, history="append")
    agent.act(["a"])
    packed = pickle.dumps(agent)
    assert KEY.encode() not in packed
    twin = pickle.loads(packed)
    assert texts(twin.act(["b"], seed=1)) == texts(agent.act(["b"], seed=1))
    assert (twin.usage.num_requests, agent.usage.num_requests) == (2, 2)
    copy.deepcopy(agent).act(["c"])
    assert agent.usage.num_requests == 2


def test_a_missing_library_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ImportError, match=r'pip install "motet\[api\]"'):
        APIAgent("m")


def test_the_stub_itself_says_what_it_is_asked() -> None:
    assert numbered({"messages": [{"content": "a"}], "seed": 3}, 1) == "a|seed 3|1"
