"""Stands for vLLM's server: takes its options, becomes healthy after a while, and has a worker of its own.

    python fake_vllm.py --model MODEL --host H --port P ... [--fail] [--never] [--stubborn]

Prints itself, its options and environment as JSON, then its worker, or why it fails. Like vLLM, the server
ends its worker when it is asked to end, and the worker goes on where the server is killed; both end after a minute in
any case.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

LIFE_SECONDS = 60
WORKER = f"import time; time.sleep({LIFE_SECONDS})"


def main() -> None:
    arguments = sys.argv[1:]
    own = {"pid": os.getpid(), "parent": os.getppid(), "omp": os.environ.get("OMP_NUM_THREADS")}
    print(json.dumps({"arguments": arguments, **own}), flush=True)
    signal.alarm(LIFE_SECONDS)
    if "--fail" in arguments:
        print("(EngineCore pid=7) ERROR 01-01 [core.py:1] ValueError: no room", "a limit, `OSError: [24]`", sep="\n")
        print(*range(8), sep="\n", flush=True)
        sys.exit("RuntimeError: see above")
    worker = subprocess.Popen([sys.executable, "-c", WORKER])
    print(json.dumps({"worker": worker.pid}), flush=True)
    if "--stubborn" in arguments:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:

        def end(*_: object) -> None:
            worker.kill()
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
    if "--never" in arguments:
        threading.Event().wait()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    host, port = (arguments[arguments.index(name) + 1] for name in ("--host", "--port"))
    HTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
