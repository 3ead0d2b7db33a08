"""A local HTTP server for one live page: the page itself, what has changed, and one rollout at a time.

Its address holds a secret, since other users of the machine can connect to it as well: whoever has it may read the
run's records and the frames of its videos. Nothing can be written, and no path of a file is taken from a request.
"""

from __future__ import annotations

import hmac
import re
import secrets
import socket
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.html import SCRIPTS, view_page
from verl_video_tools.records.live_run import LiveRun
from verl_video_tools.records.view_data import to_json

LIVE_SCRIPTS = (*SCRIPTS[:-1], "live.js", SCRIPTS[-1])
_IDLE_SECONDS = 30.0
"""After which a connection that asks nothing is closed."""
_PATH = re.compile(r"/([^/?]*)/(?:(changes|rollout|pictures)/(\d{1,15}))?")


class LiveServer(ThreadingHTTPServer):
    """Serves one run.

    Args:
        run: what pages see.
        title: of the page.
        host: address to listen on.
        port: 0 takes any free one.

    Raises:
        OSError: it cannot listen there.
    """

    daemon_threads = True

    def __init__(self, run: LiveRun, title: str, host: str = "127.0.0.1", port: int = 0) -> None:
        self.run = run
        self.page = view_page(title, LIVE_SCRIPTS, {}, connects=True)
        self.secret = secrets.token_urlsafe(16)
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Address of the page. Where every address of this machine is listened on, it has the machine's name."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{socket.gethostname() if host == '0.0.0.0' else host}:{port}/{self.secret}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed meanwhile is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        found = _PATH.fullmatch(urlsplit(self.path).path)
        if found is None or not hmac.compare_digest(found[1].encode(), self.server.secret.encode()):
            self.send_error(404)
            return
        what, number = found[2], found[3]
        if what is None:
            self._answer(200, "text/html; charset=utf-8", self.server.page)
            return
        run = self.server.run
        answers: dict[str, Callable[[int], dict[str, Any]]] = {
            "changes": run.changes,
            "rollout": run.record,
            "pictures": run.pictures,
        }
        try:
            status, value = 200, answers[what](int(number))
        except UsageError as error:
            status, value = 410, {"error": str(error)}
        self._answer(status, "application/json", to_json(value).encode())

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged: pages ask every other second, and their paths hold the secret."""
