"""What APIAgent does when its endpoint stalls, fails or is not there; and that no key shows."""

import asyncio
import email.utils
import itertools
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from openai_stub import (
    KEY,
    Handler,
    OpenAIStub,
    complete,
    content,
    drop,
    prompt_of,
    reply_with,
    stall,
    status,
    stream_broken,
)

from motet.agents import (
    APIAgent,
    APIBudget,
    APILimits,
    APIUsage,
    DeadlineExceededError,
    EndpointError,
)
from motet.agents.endpoints.apart import run_apart
from motet.agents.endpoints.asking import drawn_wait

QUICK = APILimits(backoff_s=0.01, max_backoff_s=2.0, max_retries=3, timeout_s=10.0)
IMPATIENT = replace(QUICK, timeout_s=1.0)
STALL = stall(30)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub() as server:
        APIAgent("warm", base_url=server.url).act(["warm"])  # what is loaded once counts for nobody
        server.requests.clear()
        yield server


def ask(stub: OpenAIStub, **kwargs: object) -> str:
    agent = APIAgent("m", base_url=stub.url, **{"limits": QUICK, **kwargs})
    return agent.act(["a"])[0][0].text


# --- what is tried again --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        status(500, "the engine is on fire"),
        status(503),
        status(529),
        status(408),
        status(409),
        status(429),
        drop,
        content(b"{not JSON"),
        content(b"\xff\xfe{"),
        content(b"[]"),
        content(b"null"),
        content(b"[" * 100_000),
        content(b"<html>502 Bad Gateway</html>", "text/html"),
        content(b'{"choices": "none"}'),
        content(b'{"choices": ["none"]}'),
        content(b'{"choices": [{"message": {"content": ["parts"]}}]}'),
        content(b'{"choices": [{"message": {"content": "\\ud800"}, "finish_reason": "stop"}]}'),
        content(b'{"error": {"message": "the provider is away"}}'),
        STALL,
    ],
    ids=lambda behaviour: behaviour.__qualname__.split(".")[0],
)
def test_trouble_that_may_pass_is_tried_again(stub: OpenAIStub, trouble: object) -> None:
    stub.plan(trouble, trouble)
    limits = IMPATIENT if trouble is STALL else QUICK
    agent = APIAgent("m", base_url=stub.url, limits=limits)
    assert agent.act(["a"])[0][0].text == "a|seed None|0"
    assert len(stub.requests) == 3
    assert (agent.usage.num_requests, agent.usage.num_retries) == (3, 2)


@pytest.mark.parametrize(
    ("how", "num_pieces"),
    [
        *((how, 2) for how in ("stalls", "drops", "ends", "garbage", "error")),
        *((how, 0) for how in ("stalls", "drops", "garbage", "error")),
    ],
)
def test_a_stream_that_breaks_is_tried_again(stub: OpenAIStub, how: str, num_pieces: int) -> None:
    stub.plan(stream_broken(num_pieces, how))
    begins = num_pieces > 0  # until a stream has begun the request's limit counts
    limits = APILimits(
        backoff_s=0.01,
        idle_timeout_s=1.0 if begins else 25.0,
        timeout_s=25.0 if begins or how != "stalls" else 3.0,
    )
    begun = time.monotonic()
    assert ask(stub, stream=True, limits=limits) == "a|seed None|0"
    assert len(stub.requests) == 2
    limit = (1.0 if begins else 3.0) if how == "stalls" else 0.0
    assert limit <= time.monotonic() - begun < 20


def test_a_stream_that_only_forgets_to_end_is_complete(stub: OpenAIStub) -> None:
    stub.plan(stream_broken(5, "stalls"))  # all of it but the count of tokens
    agent = APIAgent("m", base_url=stub.url, stream=True, limits=APILimits(idle_timeout_s=1.0))
    assert agent.act(["a"])[0][0].text == "a|seed None|0"
    assert len(stub.requests) == 1
    assert agent.usage.num_estimated == 1


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were to be waited, which a busy machine makes longer."""
    delays: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay: float, *args: object) -> None:
        if delay > 0:  # libraries only let others have a turn
            delays.append(delay)
        await sleep(delay, *args)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return delays


@pytest.mark.parametrize("kind", ["seconds", "date", "milliseconds"])
def test_the_endpoint_says_how_long_to_wait(
    stub: OpenAIStub, asked_for: list[float], kind: str
) -> None:
    headers = {
        "seconds": {"Retry-After": "1"},
        "milliseconds": {"Retry-After-Ms": "900", "Retry-After": "soon"},
        "date": {"Retry-After": email.utils.formatdate(time.time() + 3, usegmt=True)},
    }[kind]
    stub.plan(status(429, "slow down", headers))
    ask(stub, limits=replace(QUICK, max_backoff_s=4.0))
    first, second = stub.requests
    (wait,) = asked_for
    assert second.at - first.at >= max(wait, 0.85)
    assert wait < {"seconds": 1.1, "milliseconds": 1.0, "date": 3.1}[kind]


def test_waits_grow_and_are_not_all_the_same(stub: OpenAIStub, asked_for: list[float]) -> None:
    limits = APILimits(backoff_s=0.1, max_backoff_s=0.4, max_retries=4)
    stub.plan(*[status(500)] * 4)
    ask(stub, limits=limits)
    waits = [after.at - before.at for before, after in itertools.pairwise(stub.requests)]
    for wait, asked, longest in zip(waits, asked_for, (0.1, 0.2, 0.4, 0.4), strict=True):
        assert longest / 2 <= asked <= min(wait, longest)


def test_requests_that_failed_together_do_not_return_together() -> None:
    limits = APILimits(backoff_s=1.0, max_backoff_s=6.0)
    for num_tries, longest in ((0, 1.0), (1, 2.0), (2, 4.0), (3, 6.0), (2000, 6.0)):
        drawn = [drawn_wait(limits, num_tries) for _ in range(200)]
        assert longest / 2 <= min(drawn) < 0.6 * longest
        assert 0.9 * longest < max(drawn) <= longest


@pytest.mark.parametrize(
    ("wait", "limits", "sentence"),
    [
        ("3600", QUICK, "left alone for 3600 seconds; ask later, or raise max_backoff_s=2"),
        ("60", APILimits(deadline_s=30.0), "got 0 of 1 within deadline_s=30, and last status 429"),
    ],
)
def test_a_wait_that_is_too_long_is_not_begun(
    stub: OpenAIStub, wait: str, limits: APILimits, sentence: str
) -> None:
    stub.plan(status(429, "slow down", {"Retry-After": wait}))
    begun = time.monotonic()
    with pytest.raises(EndpointError, match=sentence):
        ask(stub, limits=limits)
    assert time.monotonic() - begun < 25


# --- what is not ----------------------------------------------------------------------------------


def choice(**fields: object) -> object:
    return reply_with(
        [{"index": 0, "finish_reason": "stop", "message": {"content": None}, **fields}]
    )


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (status(400, "prompt too long"), r"status 400 \(prompt too long\); change what"),
        (status(401, "wrong key"), r"status 401 \(wrong key\); look after the key"),
        (status(404), "status 404.*look after model and base_url"),
        (
            status(429, {"error": {"message": "no credit", "code": "insufficient_quota"}}),
            "no credit left",
        ),
        (choice(finish_reason="content_filter"), "content filter cut"),
        (choice(message={"content": None, "refusal": "I can't."}), r"a refusal \(I can't\.\)"),
        (choice(finish_reason="tool_calls", message={"tool_calls": [{}]}), "a call of a tool"),
        (choice(message={"tool_calls": [{"id": "1"}]}), "a call of a tool"),
        (choice(), "a completion without a text"),
        (choice(finish_reason="abort", message={"content": "x"}), "got finish_reason 'abort'"),
        (choice(finish_reason=None, message={"content": "x"}), "got finish_reason 'None'"),
        (reply_with([]), "an answer without a choice"),
        (content(b"{}"), "an answer without a choice"),
    ],
)
def test_what_another_request_would_not_change_is_told_at_once(
    stub: OpenAIStub, trouble: object, sentence: str
) -> None:
    stub.plan(trouble)
    with pytest.raises(EndpointError, match=sentence) as raised:
        ask(stub)
    assert str(raised.value).startswith(f"Expected completions of m at {stub.host}, got ")
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("finish_reason", "text", "wanted"),
    [("length", "cut her", "cut her"), ("length", None, ""), ("stop", "", "")],
)
def test_finish_reasons_are_those_of_completions(
    stub: OpenAIStub, finish_reason: str, text: str | None, wanted: str
) -> None:
    stub.plan(choice(finish_reason=finish_reason, message={"content": text}))
    agent = APIAgent("m", base_url=stub.url)
    ((completion,),) = agent.act(["a"])
    assert (completion.text, completion.finish_reason) == (wanted, finish_reason)


def test_trouble_that_stays_is_told_with_how_often_it_was_tried(stub: OpenAIStub) -> None:
    stub.plan(*[status(500, "on fire")] * 4)
    agent = APIAgent("m", base_url=stub.url, limits=QUICK)
    with pytest.raises(EndpointError, match=r"\(on fire\) after 4 requests; .*raise max_retries"):
        agent.act(["a"])
    assert len(stub.requests) == 4
    assert agent.usage == APIUsage(num_requests=4, num_retries=3)  # nobody bills a refusal


@pytest.mark.parametrize(("code", "billed"), [(408, True), (504, True), (524, True), (503, False)])
def test_what_somebody_on_the_way_gave_up_may_be_billed(
    stub: OpenAIStub, code: int, billed: bool
) -> None:
    stub.plan(status(code))
    agent = APIAgent("m", base_url=stub.url, limits=QUICK)
    agent.act(["a"])
    assert (agent.usage.num_requests, agent.usage.num_estimated) == (2, int(billed))
    assert (agent.usage.completion_tokens >= 256) == billed


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_a_choice_counts(stub: OpenAIStub, stream: bool) -> None:
    stub.plan(reply_with([]))
    agent = APIAgent("m", base_url=stub.url, stream=stream)
    with pytest.raises(EndpointError, match="an answer without a choice") as raised:
        agent.act(["a"])
    assert ("or leave stream=False" in str(raised.value)) == stream
    # what does not come as a stream is not read, and its count neither
    assert agent.usage.num_estimated == int(stream)
    assert agent.usage.prompt_tokens >= 1


def test_an_endpoint_that_is_not_there_is_told_of() -> None:
    with socket.socket() as unused:  # bound, and nobody listens
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        agent = APIAgent("m", base_url=url, limits=QUICK, budget=APIBudget(max_tokens=1000))
        with pytest.raises(EndpointError, match="no connection after 4 requests; look after base"):
            agent.act(["a"])
    assert agent.usage.prompt_tokens == 0  # nothing was sent that anybody could bill


def test_a_slow_endpoint_is_given_up(stub: OpenAIStub) -> None:
    stub.plan(*[stall(30)] * 2)
    limits = APILimits(timeout_s=0.3, max_retries=1, backoff_s=0.01)
    agent = APIAgent("m", base_url=stub.url, limits=limits)
    begun = time.monotonic()
    with pytest.raises(EndpointError, match=r"none within timeout_s=0.3 seconds after 2 requests"):
        agent.act(["a"])
    assert (agent.usage.num_estimated, agent.usage.completion_tokens) == (2, 512)  # may be billed
    assert 0.6 <= time.monotonic() - begun < 25


# --- what came before -----------------------------------------------------------------------------


def slow_last(body: dict) -> float:
    return 30.0 if prompt_of(body) == "last" else 0.0


def test_a_deadline_ends_an_act_and_what_came_is_kept() -> None:
    with OpenAIStub(delay_s=slow_last) as stub:
        APIAgent("warm", base_url=stub.url).act(["warm"])
        agent = APIAgent("m", base_url=stub.url, limits=APILimits(deadline_s=4.0))
        begun = time.monotonic()
        with pytest.raises(DeadlineExceededError, match=r"got 4 of 6 within deadline_s=4") as e:
            agent.act(["one", "last", "three"], 2, seed=0)
        assert 4.0 <= time.monotonic() - begun < 25
        assert [len(group) for group in e.value.completions] == [2, 0, 2]
        assert e.value.completions[2][1].text.startswith("three|")
        assert pickle.loads(pickle.dumps(e.value)).completions == e.value.completions
        # what was given up may be billed: it counts as all that it could have taken
        assert agent.usage.num_estimated == 1
        assert agent.usage.completion_tokens >= 2 * 256


def test_an_error_lets_what_is_in_flight_come_and_begins_nothing_new() -> None:
    def slow_first(body: dict) -> float:
        return 1.5 if prompt_of(body) == "first" else 0.0

    with OpenAIStub(delay_s=slow_first) as stub:
        limits = APILimits(max_concurrency=2)
        agent = APIAgent("m", base_url=stub.url, limits=limits)
        agent.act(["warm"])
        stub.requests.clear()
        stub.plan(*[refusing_second] * 9)
        with pytest.raises(EndpointError, match="not this one") as raised:
            agent.act(["first", "second", "third", "fourth"])
        assert [len(group) for group in raised.value.completions] == [1, 0, 0, 0]
        assert len(stub.requests) == 2


def refusing_second(handler: Handler, body: dict) -> None:
    behaviour = status(400, "not this one") if prompt_of(body) == "second" else complete
    behaviour(handler, body)


def test_ctrl_c_ends_an_act_at_once(tmp_path: Path) -> None:
    """In a process of its own, as a shell interrupts it."""
    script = tmp_path / "asks.py"
    script.write_text(
        "import signal\n"
        "import sys\n"
        "from motet.agents import APIAgent\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # where a shell ignores it\n"
        "agent = APIAgent('m', base_url=sys.argv[1])\n"
        "print('asking', flush=True)\n"
        "try:\n"
        "    agent.act(['a'] * 20)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', agent.usage.num_estimated, flush=True)\n"
    )
    with OpenAIStub(delay_s=60.0) as stub:
        run = subprocess.Popen(
            [sys.executable, str(script), stub.url], stdout=subprocess.PIPE, text=True
        )
        assert run.stdout is not None
        assert run.stdout.readline() == "asking\n"
        while len(stub.requests) < 8:
            time.sleep(0.02)
        begun = time.monotonic()
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=50)
        assert (out, run.returncode) == ("interrupted 8\n", 0)
        assert time.monotonic() - begun < 50


STUBBORN = """
import asyncio
import signal
from motet.agents.endpoints.apart import run_apart

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell ignores it


async def stubborn() -> None:
    for _ in range(3):
        try:
            print("waiting", flush=True)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


try:
    run_apart(stubborn)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_insists_where_a_library_takes_it_for_its_own() -> None:
    run = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "waiting\n"
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    assert out.splitlines() == ["waiting", "waiting", "interrupted"]


@pytest.mark.parametrize("before_it_starts", [True, False])
def test_nothing_goes_on_after_an_interrupt_while_the_thread_starts(
    monkeypatch: pytest.MonkeyPatch, before_it_starts: bool
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if not before_it_starts:
            start(thread)
        raise KeyboardInterrupt

    async def work() -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_apart(work)
    while any(thread.name.startswith("motet-endpoint") for thread in threading.enumerate()):
        assert time.monotonic() - begun < 20, "the work goes on"
        time.sleep(0.01)


def test_a_deadline_does_not_wait_for_the_name_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> None:
        time.sleep(12)
        raise socket.gaierror

    agent = APIAgent("m", base_url="http://nobody.invalid/v1", limits=APILimits(deadline_s=0.5))
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    begun = time.monotonic()
    with pytest.raises(DeadlineExceededError, match=r"got 0 of 1 within deadline_s=0\.5"):
        agent.act(["a"])
    assert time.monotonic() - begun < 10


# --- the key --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "   ", None])
def test_a_missing_key_is_told_of_before_anything_is_asked(
    stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    agent = APIAgent("m", base_url=stub.url)
    monkeypatch.delenv("OPENAI_API_KEY")
    if value is not None:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    for act in (lambda: APIAgent("m", base_url=stub.url), lambda: agent.act(["a"])):
        with pytest.raises(ValueError, match="environment variable OPENAI_API_KEY, got none"):
            act()
    assert APIAgent("m", base_url=stub.url, api_key_env=None).act(["a"])
    assert len(stub.requests) == 1


def test_a_key_with_a_line_break_behind_it_works_and_a_broken_one_is_not_shown(
    stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", KEY + "\n")
    APIAgent("m", base_url=stub.url, api_key_env="OTHER_KEY").act(["a"])
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("OTHER_KEY", f"{KEY}\n{KEY}")
    with pytest.raises(ValueError, match="variable OTHER_KEY, got others") as raised:
        APIAgent("m", base_url=stub.url, api_key_env="OTHER_KEY")
    assert KEY not in str(raised.value)


def everything_about(error: BaseException) -> str:
    """What a log, a debugger with its local variables, and a pickle of an error show."""
    shown = "".join(traceback.format_exception(error))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    shown += str([frame.f_locals for frame in frames if frame.f_code.co_filename != __file__])
    seen: list[BaseException | None] = [error]
    for each in seen:
        if each is not None:
            shown += f"{each!r} {each.args} {vars(each)}"
            seen += [cause for cause in (each.__cause__, each.__context__) if cause not in seen]
    return shown + repr(pickle.dumps(error))


@pytest.mark.parametrize("before", range(300 - len(KEY), 301))
def test_no_part_of_the_key_shows_where_what_is_told_is_cut(stub: OpenAIStub, before: int) -> None:
    stub.plan(status(400, "x" * before + KEY))
    with pytest.raises(EndpointError) as raised:
        ask(stub)
    assert KEY[:9] not in everything_about(raised.value)
    assert "[key]" in str(raised.value) or before > 300 - 9


@pytest.mark.parametrize("stream", [False, True])
def test_the_key_is_in_no_error_log_repr_or_pickle(
    stub: OpenAIStub,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    stream: bool,
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2", "motet"):
        caplog.set_level(logging.DEBUG, logger=name)
    told = f"Incorrect API key provided: {KEY}. Authorization: Bearer {KEY}"
    agent = APIAgent("m", base_url=stub.url, limits=QUICK, stream=stream)
    shown = repr(agent) + str(vars(agent)) + repr(pickle.dumps(agent))
    troubles = [
        [status(401, told)],
        [status(500, told)] * 4,
        [drop] * 4,
        [STALL] * 4,
        [content(json.dumps({"error": {"message": told}}).encode())] * 4,
        [stream_broken(2, "error")] * 4,
        [status(400, {"detail": [{"msg": told}]})],
    ]
    for trouble in troubles:
        stub.plan(*trouble)
        if STALL in trouble:
            agent = APIAgent("m", base_url=stub.url, limits=IMPATIENT, stream=stream)
        with pytest.raises(EndpointError) as raised:
            agent.act(["a"])
        shown += everything_about(raised.value)
    shown += caplog.text + "".join(capfd.readouterr())
    assert "asking again in" in shown  # the logs are really looked at
    assert "[key]" in shown  # and so is what the endpoint told
    assert KEY not in shown
    assert all(seen.headers["authorization"].endswith(KEY) for seen in stub.requests)
    assert os.environ["OPENAI_API_KEY"] == KEY
