"""A small server that speaks the protocol of OpenAI's completions, and can be told to fail at it.

It listens on a free port of this machine, with a thread for each connection:

    with OpenAIStub() as stub:
        agent = APIAgent("stub", base_url=stub.url)
        stub.plan(status(429, headers={"Retry-After": "1"}))  # the next one
        agent.act(["Hello"])
        assert len(stub.requests) == 2

A completion is a function of the prompt, the seed and its index, so that tests know what must come.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

KEY = "sk-stub-4f9a7c1e2b8d"


@dataclass(frozen=True)
class Seen:
    """A request as it came: path, headers, body, and when by `time.monotonic`."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    at: float


Behaviour = Callable[["Handler", dict[str, Any]], None]


def prompt_of(body: Mapping[str, Any]) -> str:
    """Return what was asked: the last message, or the raw prompt."""
    return body["messages"][-1]["content"] if "messages" in body else body["prompt"]


def numbered(body: Mapping[str, Any], index: int) -> str:
    """Return the completion that the stub gives unless told otherwise."""
    return f"{prompt_of(body)}|seed {body.get('seed')}|{index}"


class OpenAIStub:
    """The server, to be used as a context.

    Args:
        answer: `f(body, index)` returns the text of a completion.
        honours_n: whether it gives `n` completions, or one always.
        counts_usage: whether it tells how many tokens there were.
        delay_s: how long each answer takes.

    Attributes:
        requests: what came.
        max_in_flight: most requests at the same time.
    """

    def __init__(
        self,
        *,
        answer: Callable[[Mapping[str, Any], int], str] = numbered,
        honours_n: bool = True,
        counts_usage: bool = True,
        delay_s: float | Callable[[Mapping[str, Any]], float] = 0.0,
    ) -> None:
        self.answer = answer
        self.honours_n = honours_n
        self.counts_usage = counts_usage
        self.delay_s = delay_s
        self.requests: list[Seen] = []
        self.max_in_flight = 0
        self.closing = threading.Event()
        self._planned: deque[Behaviour] = deque()
        self._in_flight = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.stub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/v1"

    def plan(self, *behaviours: Behaviour) -> None:
        """Treat the next requests so, one by one; all after them are answered."""
        self._planned.extend(behaviours)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def serving(self, seen: Seen) -> Iterator[Behaviour]:
        """Count a request while it is served; yield how it is to be."""
        with self._lock:
            self.requests.append(seen)
            self._in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self._in_flight)
            behaviour = self._planned.popleft() if self._planned else complete
        try:
            yield behaviour
        finally:
            with self._lock:
                self._in_flight -= 1


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    @property
    def stub(self) -> OpenAIStub:
        return self.server.stub

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.path, headers, body, time.monotonic())
        with self.stub.serving(seen) as behaviour:
            try:
                behaviour(self, body)
            except (BrokenPipeError, ConnectionResetError):  # the other side has given up
                self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Write nothing: the tests look at what is printed."""

    # --- what behaviours are made of ---

    def reply(
        self,
        status: int,
        content: bytes,
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_event(self, event: object) -> None:
        told = event if isinstance(event, str) else json.dumps(event)
        content = f"data: {told}\n\n".encode()
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def usage(self, body: Mapping[str, Any], texts: list[str]) -> dict[str, int]:
        """Count words as tokens."""
        prompt = " ".join(m["content"] for m in body["messages"]) if "messages" in body else ""
        words = len((prompt or body.get("prompt", "")).split())
        written = sum(len(text.split()) for text in texts)
        return {
            "prompt_tokens": words,
            "completion_tokens": written,
            "total_tokens": words + written,
        }


def texts_for(handler: Handler, body: Mapping[str, Any]) -> list[str]:
    wanted = body.get("n", 1) if handler.stub.honours_n else 1
    return [handler.stub.answer(body, index) for index in range(wanted)]


def complete(handler: Handler, body: dict[str, Any]) -> None:
    """Answer as an endpoint should."""
    delay = handler.stub.delay_s
    handler.stub.closing.wait(delay(body) if callable(delay) else delay)
    if body.get("stream"):
        stream(handler, body)
        return
    texts = texts_for(handler, body)
    choices = [chosen(body, index, text) for index, text in enumerate(texts)]
    reply_with(choices)(handler, body)


def chosen(
    body: Mapping[str, Any], index: int, text: str | None, finish_reason: str | None = "stop"
) -> dict[str, Any]:
    said = (
        {"message": {"role": "assistant", "content": text}}
        if "messages" in body
        else {"text": text}
    )
    return {"index": index, "finish_reason": finish_reason, **said}


def reply_with(choices: list[dict[str, Any]], **fields: Any) -> Behaviour:
    """Answer with these choices."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        texts = [(c.get("message") or c).get("content") or c.get("text") or "" for c in choices]
        told: dict[str, Any] = {
            "id": "stub-1",
            "object": "chat.completion" if "messages" in body else "text_completion",
            "created": 1,
            "model": body["model"],
            "choices": choices,
        }
        if handler.stub.counts_usage:
            told["usage"] = handler.usage(body, texts)
        handler.reply(200, json.dumps({**told, **fields}).encode())

    return behave


def pieces(handler: Handler, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the pieces of a stream: a letter or so at a time, all completions side by side."""
    texts = texts_for(handler, body)
    for start in range(0, max(map(len, texts)), 4):
        for index, text in enumerate(texts):
            if text[start : start + 4]:
                yield piece(body, index, text[start : start + 4])
    for index in range(len(texts)):
        yield piece(body, index, None, "stop")
    if handler.stub.counts_usage and body.get("stream_options", {}).get("include_usage"):
        yield {**piece(body, 0, None), "choices": [], "usage": handler.usage(body, texts)}


def piece(
    body: Mapping[str, Any], index: int, text: str | None, finish_reason: str | None = None
) -> dict[str, Any]:
    said: dict[str, Any] = {"text": text or ""}
    if "messages" in body:
        said = {"delta": {} if text is None else {"content": text}}
    choice = {"index": index, "finish_reason": finish_reason, **said}
    kind = "chat.completion.chunk" if "messages" in body else "text_completion"
    return {
        "id": "stub-1",
        "object": kind,
        "created": 1,
        "model": body["model"],
        "choices": [choice],
    }


def stream(handler: Handler, body: dict[str, Any]) -> None:
    """Answer piece by piece."""
    handler.begin_stream()
    for each in pieces(handler, body):
        handler.send_event(each)
    handler.send_event("[DONE]")
    handler.end_stream()


def stream_broken(num_pieces: int, how: str, seconds: float = 30.0) -> Behaviour:
    """Begin a stream, and after some pieces stand still, drop it, end it, or tell an error."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.begin_stream()
        for _, each in zip(range(num_pieces), pieces(handler, body), strict=False):
            handler.send_event(each)
        if how == "stalls":
            handler.stub.closing.wait(seconds)
        elif how == "ends":
            handler.send_event("[DONE]")
            handler.end_stream()
        elif how == "garbage":
            handler.send_event("{not JSON")
            handler.end_stream()
        elif how == "error":
            handler.send_event({"error": {"message": "the engine has died", "code": 500}})
            handler.end_stream()
        handler.close_connection = True

    return behave


def status(code: int, told: object = None, headers: Mapping[str, str] | None = None) -> Behaviour:
    """Refuse with an HTTP status."""
    body = told if isinstance(told, dict) else {"error": {"message": told or "no"}}
    return lambda handler, _: handler.reply(code, json.dumps(body).encode(), headers=headers)


def stall(seconds: float) -> Behaviour:
    """Answer too late."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.stub.closing.wait(seconds)
        complete(handler, body)

    return behave


def content(what: bytes, kind: str = "application/json") -> Behaviour:
    """Answer with status 200 and these bytes."""
    return lambda handler, _: handler.reply(200, what, kind)


def drop(handler: Handler, body: dict[str, Any]) -> None:
    """Close the connection in the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id": ')
    handler.close_connection = True


def refuse(field: str, told: str) -> Behaviour:
    """Answer requests without a field, and refuse those with it; for `plan` of one request."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        if field in body:
            status(400, {"error": {"message": told, "param": field}})(handler, body)
        else:
            complete(handler, body)

    return behave
