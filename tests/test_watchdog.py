"""The watchdog against real local HTTP servers: healthy, sick, gone."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from verl_video_tools.watchdog import Watchdog, is_healthy


class Server(ThreadingHTTPServer):
    status = 200


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    httpd = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield httpd
    httpd.shutdown()
    httpd.server_close()


def address(httpd: Server) -> str:
    return f"127.0.0.1:{httpd.server_port}"


def watch(httpd: Server, **options: float) -> tuple[Watchdog, list[str]]:
    deaths: list[str] = []
    watchdog = Watchdog(
        [address(httpd)], progress=lambda: "step 1", interval_seconds=0.02, on_death=deaths.append, **options
    )
    watchdog.start()
    return watchdog, deaths


def test_health_follows_the_server(server: Server) -> None:
    assert is_healthy(address(server))
    server.status = 503
    assert not is_healthy(address(server))
    assert not is_healthy("127.0.0.1:1")


def test_a_sick_engine_ends_the_run_once_with_its_address(server: Server) -> None:
    server.status = 503
    watchdog, deaths = watch(server, grace_seconds=0.1)
    watchdog.join(timeout=10)
    assert len(deaths) == 1
    assert address(server) in deaths[0] and "resume" in deaths[0]


def test_a_short_illness_is_forgiven(server: Server) -> None:
    watchdog, deaths = watch(server, grace_seconds=1.0)
    server.status = 503
    time.sleep(0.2)
    server.status = 200
    time.sleep(1.2)
    watchdog.stop()
    watchdog.join(timeout=10)
    assert deaths == []


def test_progress_is_printed(server: Server, capsys) -> None:
    watchdog, _ = watch(server, grace_seconds=10.0, report_seconds=0.05)
    time.sleep(0.5)
    watchdog.stop()
    watchdog.join(timeout=10)
    assert "step 1" in capsys.readouterr().out
