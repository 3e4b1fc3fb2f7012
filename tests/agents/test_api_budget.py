"""An APIAgent's budget holds before a request, with many in flight; usage is counted."""

import threading
from collections.abc import Iterator

import pytest
from openai_stub import KEY, OpenAIStub, reply_with, status

from motet.agents import (
    APIAgent,
    APIBudget,
    APILimits,
    APIUsage,
    BudgetExceededError,
    GenerationConfig,
)
from motet.agents.endpoints.budget import Claim, Ledger

SHORT = GenerationConfig(max_new_tokens=10)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    """A stub that counts words: "one two" are two tokens, the answer "x y z" three."""
    with OpenAIStub(answer=lambda body, index: "x y z") as server:
        yield server


@pytest.mark.parametrize("stream", [False, True])
def test_usage_is_what_the_endpoint_counts(stub: OpenAIStub, stream: bool) -> None:
    budget = APIBudget(price_per_million_tokens=(1.0, 10.0))
    agent = APIAgent("m", base_url=stub.url, budget=budget, stream=stream)
    assert agent.usage == APIUsage(cost=0.0)
    agent.act(["one two"] * 2, 2)
    # two requests with two tokens each, and two completions of three tokens for each
    assert agent.usage == APIUsage(2, 0, 0, 4, 12, cost=(4 * 1 + 12 * 10) / 1e6)
    with pytest.raises(AttributeError):
        agent.usage = APIUsage()


def test_no_more_requests_are_sent_than_allowed(stub: OpenAIStub) -> None:
    limits = APILimits(max_concurrency=4)
    agent = APIAgent("m", base_url=stub.url, budget=APIBudget(max_requests=5), limits=limits)
    with pytest.raises(BudgetExceededError, match="max_requests=5: all have been sent") as raised:
        agent.act([str(i) for i in range(8)])
    assert len(stub.requests) == agent.usage.num_requests == 5
    assert [len(group) for group in raised.value.completions].count(1) == 5
    with pytest.raises(BudgetExceededError):
        agent.act(["again"])
    with pytest.raises(BudgetExceededError):
        agent.greedy().act(["again"])
    assert len(stub.requests) == 5


def test_retries_count(stub: OpenAIStub) -> None:
    stub.plan(*[status(500)] * 2)
    limits = APILimits(backoff_s=0.01)
    agent = APIAgent("m", base_url=stub.url, budget=APIBudget(max_requests=2), limits=limits)
    with pytest.raises(BudgetExceededError):
        agent.act(["a"])
    assert (agent.usage.num_requests, agent.usage.num_retries) == (2, 1)


def test_tokens_are_claimed_before_and_given_back_after(stub: OpenAIStub) -> None:
    """A prompt "a" may take 1 + 16 + 128 tokens and its completion 10; they take 1 and 3."""
    agent = APIAgent("m", base_url=stub.url, generation=SHORT, budget=APIBudget(max_tokens=161))
    agent.act(["a"])
    assert (agent.usage.prompt_tokens, agent.usage.completion_tokens) == (1, 3)
    agent.act(["a"])  # 4 + 155 fit, since nearly all of the first claim came back
    with pytest.raises(
        BudgetExceededError,
        match="max_tokens=161: 8 are spent, and the next request can take up to 155",
    ):
        agent.act(["a"])
    assert len(stub.requests) == 2


def test_requests_wait_for_what_others_have_claimed() -> None:
    """One claim of 155 fits into 180 at a time: there is never a second request in flight."""
    with OpenAIStub(answer=lambda body, index: "x", delay_s=0.05) as stub:
        agent = APIAgent("m", base_url=stub.url, generation=SHORT, budget=APIBudget(max_tokens=180))
        agent.act(["a"] * 6)
        assert (len(stub.requests), stub.max_in_flight) == (6, 1)


def test_several_completions_claim_as_many(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url, generation=SHORT, budget=APIBudget(max_tokens=160))
    with pytest.raises(BudgetExceededError, match="up to 165"):
        agent.act(["a"], 2)
    assert stub.requests == []


def test_cost_is_held_to(stub: OpenAIStub) -> None:
    """A claim costs (145 * 2 + 10 * 100) / 1e6 = 0.00129, and a request (1 * 2 + 3 * 100) / 1e6."""
    prices = {"price_per_million_tokens": (2.0, 100.0)}
    agent = APIAgent(
        "m", base_url=stub.url, generation=SHORT, budget=APIBudget(max_cost=0.0016, **prices)
    )
    agent.act(["a"])
    assert agent.usage.cost == pytest.approx(0.000302)
    agent.act(["a"])
    with pytest.raises(BudgetExceededError, match=r"0.000604 is spent.*cost up to 0.00129"):
        agent.act(["a"])
    assert len(stub.requests) == 2


def test_endpoints_that_do_not_count_are_counted_for() -> None:
    with OpenAIStub(counts_usage=False) as stub:
        agent = APIAgent("m", base_url=stub.url, generation=SHORT)
        agent.act(["a"])
    assert agent.usage == APIUsage(1, 0, 1, 145, 10)


def test_a_prompt_claims_a_token_for_each_byte(stub: OpenAIStub) -> None:
    agent = APIAgent("m", base_url=stub.url, generation=SHORT, budget=APIBudget(max_tokens=1))
    with pytest.raises(BudgetExceededError, match=f"up to {4 * 4 + 16 + 128 + 10}"):
        agent.act(["🌍" * 4])
    raw = APIAgent(
        "m", base_url=stub.url, generation=SHORT, budget=APIBudget(max_tokens=1), chat=False
    )
    with pytest.raises(BudgetExceededError, match=f"up to {4 * 4 + 1 + 10}"):
        raw.act(["🌍" * 4])


def test_further_fields_are_claimed_for_too(stub: OpenAIStub) -> None:
    """A schema is a part of the prompt to the endpoint; here one of 41 bytes, as JSON."""
    schema = {"guided_json": {"name": "é" * 2}}
    kwargs = {"generation": SHORT, "budget": APIBudget(max_tokens=1)}
    agent = APIAgent("m", base_url=stub.url, extra_body=schema, **kwargs)
    with pytest.raises(BudgetExceededError, match=f"up to {1 + 16 + 128 + 10 + 41}"):
        agent.act(["a"])
    with pytest.raises(ValueError, match=r"got \['best_of'\]"):
        APIAgent("m", base_url=stub.url, extra_body={"best_of": 4})
    with pytest.raises(TypeError, match="extra_body of what JSON can hold"):
        APIAgent("m", base_url=stub.url, extra_body={"when": object()})


@pytest.mark.parametrize("told", [(-100, 100), (0, 0), (True, True), (5, None), (5, 2.5)])
def test_a_count_that_is_none_gives_no_budget_back(stub: OpenAIStub, told: tuple) -> None:
    counted = dict(zip(("prompt_tokens", "completion_tokens"), told, strict=True))
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": "x"}}
    stub.plan(reply_with([choice], usage=counted))
    agent = APIAgent("m", base_url=stub.url, generation=SHORT)
    assert agent.act(["a"])[0][0].text == "x"
    assert agent.usage == APIUsage(1, 0, 1, 1 + 16 + 128, 10)


def test_threads_share_a_budget() -> None:
    with OpenAIStub(delay_s=0.01) as stub:
        agent = APIAgent("m", base_url=stub.url, budget=APIBudget(max_requests=10))
        refused = []

        def work() -> None:
            try:
                agent.act(["a"] * 4)
            except BudgetExceededError as error:
                refused.append(sum(map(len, error.completions)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(stub.requests) == agent.usage.num_requests == 10
        assert refused


def test_a_ledger_never_exceeds_its_budget_however_claims_and_settlements_mix() -> None:
    import random

    draw = random.Random(0)
    for _ in range(200):
        ledger = Ledger(APIBudget(max_tokens=100, max_requests=12))
        open_claims: list[Claim] = []
        for _ in range(60):
            if open_claims and draw.random() < 0.5:
                claim = open_claims.pop(draw.randrange(len(open_claims)))
                used = (draw.randint(0, claim.prompt_tokens), draw.randint(0, 5))
                ledger.settle(claim, draw.choice([used, None]))
            else:
                claim = Claim(draw.randint(1, 30), 5)
                if ledger.claim(claim):
                    open_claims.append(claim)
                elif not open_claims:
                    assert ledger.shortage(claim) is not None
            spent = ledger.usage.prompt_tokens + ledger.usage.completion_tokens
            claimed = sum(each.prompt_tokens + each.completion_tokens for each in open_claims)
            assert spent + claimed <= 100
            assert ledger.usage.num_requests + len(open_claims) <= 12


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"max_cost": 1.0}, "price_per_million_tokens together with max_cost=1.0"),
        ({"max_requests": -1}, "max_requests of at least 0 or None, got -1"),
        ({"max_tokens": 0.5}, "max_tokens to be int"),
        ({"max_cost": float("inf")}, "finite max_cost"),
        ({"price_per_million_tokens": 1.0}, "two numbers of at least 0, got 1.0"),
        ({"price_per_million_tokens": (1.0, -1.0)}, "two numbers of at least 0"),
    ],
)
def test_budgets_that_are_none_are_refused(fields: dict, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        APIBudget(**fields)
