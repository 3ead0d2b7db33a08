"""A judge for a machine without a GPU: compares texts, behind the interface of a language model's server.

Usage: python examples/tutorial/judge.py [--port 8000]

With a GPU, serve a model instead: `vllm serve Qwen/Qwen2.5-72B-Instruct`. The package asks both the same way (see
docs/judge.md): question, reference and answer come as one JSON object in the user's message, and the reply is a label.
"""

from __future__ import annotations

import argparse
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "comparing-judge"


def label(reference: str, answer: str) -> str:
    """`correct` if most words are the same, `partial` if the answer has some of the reference's words and no others."""
    wanted, given = words(reference), words(answer)
    if len(wanted & given) >= 0.7 * len(wanted | given):
        return "correct"
    return "partial" if given and given < wanted else "incorrect"


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold())) - {"a", "an", "the"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        case = json.loads(next(message["content"] for message in request["messages"] if message["role"] == "user"))
        verdict = json.dumps({"label": label(case["reference"], case["answer"])})
        message = {"role": "assistant", "content": verdict}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        self.reply({"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": choices})

    def reply(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a line per judgement helps nobody."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    port = parser.parse_args().port
    print(f"judging at http://localhost:{port}/v1", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
