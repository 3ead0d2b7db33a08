"""A small OpenAI-compatible server that judges by comparing plain texts. Also a program, for runs that need a process:

    python -m tests.judge_server --port 8123 [--latency-ms 20] [--bad-rate 0.1]

A right answer equals the reference, a partly right one is one of its parts at a comma or "and"; case, punctuation and
articles do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

MODEL = "comparing-judge"


@dataclass(frozen=True)
class Reply:
    """What goes back over the wire. A `body` of None closes the connection in the middle of an answer."""

    body: bytes | None
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def completion(text: Any) -> Reply:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
    return Reply(json.dumps(body).encode())


def compared(request: dict[str, Any]) -> Reply:
    """The honest verdict on what the first user message carries."""
    case = json.loads(next(m["content"] for m in request["messages"] if m["role"] == "user"))
    return completion(json.dumps({"label": label(case["reference"], case["answer"])}))


def label(truth: str, answer: str) -> str:
    if plain(answer) == plain(truth):
        return "correct"
    return "partial" if plain(answer) in map(plain, re.split(r",|\band\b", truth)) else "incorrect"


def plain(text: str) -> str:
    words = re.findall(r"\w+", text.casefold())
    return " ".join(word for word in words if word not in {"a", "an", "the", "has", "once", "after"})


@dataclass
class JudgeServer:
    """Serves on a free port of this machine while it is used as a context.

    Args:
        reply: what to answer to a request for a verdict; called in the request's own thread.
        latency_seconds: slept before each verdict.
        version: what it tells at /version, as vLLM does; None: it does not.
        models_reply: what it answers to a request for its models; None: the list of `models`.
    """

    reply: Callable[[dict[str, Any]], Reply] = compared
    latency_seconds: float = 0.0
    models: tuple[str, ...] = (MODEL,)
    port: int = 0
    version: str | None = None
    models_reply: Reply | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the requests for verdicts, in order of arrival."""
    headers: list[dict[str, str]] = field(default_factory=list)
    """Their headers, under names in small letters."""
    num_model_requests: int = 0
    most_in_flight: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self._server = _Server(("127.0.0.1", self.port), self._handler())
        self.port = self._server.server_address[1]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> JudgeServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Stop listening and cut every open connection."""
        self._server.shutdown()
        self._server.server_close()
        self._server.cut_connections()

    def serve_forever(self) -> None:
        self._server.serve_forever()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        judge_server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                if self.path == "/version":
                    told = {"version": judge_server.version}
                    self.answer(Reply(b"{}", 404) if judge_server.version is None else Reply(json.dumps(told).encode()))
                    return
                with judge_server._lock:
                    judge_server.num_model_requests += 1
                if judge_server.models_reply is not None:
                    self.answer(judge_server.models_reply)
                    return
                data = [{"id": name, "object": "model", "created": 0, "owned_by": "x"} for name in judge_server.models]
                self.answer(Reply(json.dumps({"object": "list", "data": data}).encode()))

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with judge_server._lock:
                    judge_server.requests.append(request)
                    judge_server.headers.append({name.lower(): value for name, value in self.headers.items()})
                    judge_server._in_flight += 1
                    judge_server.most_in_flight = max(judge_server.most_in_flight, judge_server._in_flight)
                try:
                    time.sleep(judge_server.latency_seconds)
                    reply = judge_server.reply(request)
                finally:
                    with judge_server._lock:
                        judge_server._in_flight -= 1
                self.answer(reply)

            def answer(self, reply: Reply) -> None:
                body = b'{"choices": [' if reply.body is None else reply.body
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(body) + 100 * (reply.body is None)))
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = reply.body is None

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *arguments: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def cut_connections(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that gave up, or `kill`
            super().handle_error(request, client_address)


def sometimes_bad(bad_rate: float, seed: int = 0) -> Callable[[dict[str, Any]], Reply]:
    """`compared`, except for a share of replies that are errors, unreadable, or no completion at all."""
    random, lock = Random(seed), threading.Lock()
    bad = (Reply(b"{}", status=500), completion("I would rather not say."), Reply(b"{}"), Reply(None))

    def reply(request: dict[str, Any]) -> Reply:
        with lock:
            chosen = random.choice(bad) if random.random() < bad_rate else None
        return compared(request) if chosen is None else chosen

    return reply


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--bad-rate", type=float, default=0.0)
    options = parser.parse_args()
    server = JudgeServer(sometimes_bad(options.bad_rate), options.latency_ms / 1e3, port=options.port)
    print(f"judging at {server.base_url}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
