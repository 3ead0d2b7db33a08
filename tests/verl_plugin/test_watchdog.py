"""The watchdog against real local HTTP servers: healthy, sick, gone; and with checks that answer as they are told."""

import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.waiting import wait_until
from verl_video_tools.verl_plugin import watchdog as watchdog_module
from verl_video_tools.verl_plugin.watchdog import Check, Health, ServerCheck, Watchdog, end_process, health


class Server(ThreadingHTTPServer):
    status = 200
    delay_seconds = 0.0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        time.sleep(self.server.delay_seconds)
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


def watch(*checks: Check, report_seconds: float = 30.0) -> tuple[Watchdog, list[str]]:
    deaths: list[str] = []
    watchdog = Watchdog(
        checks,
        progress=lambda: "step 1",
        report_seconds=report_seconds,
        interval_seconds=0.02,
        on_death=deaths.append,
    )
    watchdog.start()
    return watchdog, deaths


class Told:
    """A check that finds what it is told."""

    found: str | None = None
    suspicious = False

    def fault(self) -> str | None:
        return self.found

    def is_suspicious(self) -> bool:
        return self.suspicious


def test_health_follows_the_server(server: Server) -> None:
    assert health(address(server)) is Health.HEALTHY
    server.status = 503
    assert health(address(server)) is Health.UNHEALTHY
    assert health("127.0.0.1:1") is Health.UNHEALTHY
    server.delay_seconds = 0.5
    assert health(address(server), timeout_seconds=0.1) is Health.SILENT


def test_a_sick_engine_ends_the_run_once_with_its_address(server: Server) -> None:
    server.status = 503
    watchdog, deaths = watch(ServerCheck([address(server)], grace_seconds=0.1))
    watchdog.join(timeout=10)
    assert len(deaths) == 1
    assert address(server) in deaths[0] and "resume" in deaths[0]


@pytest.mark.slow
def test_a_short_illness_is_forgiven(server: Server) -> None:
    check = ServerCheck([address(server)], grace_seconds=2.0)
    server.status = 503
    assert check.fault() is None
    server.status = 200
    assert check.fault() is None
    time.sleep(2.1)
    server.status = 503
    assert check.fault() is None, "it has been ill for a moment, not since then"


def test_a_busy_server_is_not_taken_for_dead(server: Server) -> None:
    """It is silent for longer than a sick one would be forgiven; meanwhile the others are asked."""
    server.delay_seconds = 0.5
    check = ServerCheck([address(server), "127.0.0.1:1"], grace_seconds=0.1, timeout_seconds=0.05)
    alone = ServerCheck([address(server)], grace_seconds=0.1, timeout_seconds=0.05)
    faults = [(check.fault(), alone.fault()) for _ in range(6)]
    assert all(fault is None for _, fault in faults)
    dead = faults[-1][0]
    assert dead is not None and "127.0.0.1:1 has not been healthy" in dead


def test_a_server_that_stays_silent_is_stuck(server: Server) -> None:
    server.delay_seconds = 0.5
    watchdog, deaths = watch(ServerCheck([address(server)], silence_seconds=0.2, timeout_seconds=0.05))
    watchdog.join(timeout=10)
    assert len(deaths) == 1 and f"{address(server)} has not answered" in deaths[0]


def test_all_that_a_round_finds_is_told() -> None:
    checks = Told(), Told(), Told()
    checks[0].found = "lost agent loop worker 1 on node 10.0.0.2."
    checks[2].found = "the inference server at 10.0.0.2:80 has not been healthy for 61 s."
    watchdog, deaths = watch(*checks)
    watchdog.join(timeout=10)
    advice = "Start the same command again to resume from the last checkpoint."
    assert deaths == [f"{checks[0].found} {checks[2].found} {advice}"]


def test_who_waits_for_a_round_waits_for_one_that_began_later() -> None:
    """What dies while a slow round is under way is found by the next one."""

    class Slow:
        is_dead, num_asked = False, 0
        answers = threading.Semaphore(0)

        def is_suspicious(self) -> bool:
            return self.is_dead

        def fault(self) -> str | None:
            self.num_asked += 1
            found = "dead" if self.is_dead else None
            self.answers.acquire()
            return found

    slow = Slow()
    watchdog, deaths = watch(slow)
    wait_until(lambda: slow.num_asked == 1, "a round begins", 10)
    slow.is_dead = True  # the round under way has not seen it
    waiting = threading.Thread(target=watchdog.wait_for_round)
    waiting.start()
    slow.answers.release()
    wait_until(lambda: slow.num_asked == 2, "the next one begins", 10)
    assert waiting.is_alive() and not deaths
    slow.answers.release()
    waiting.join(10)
    assert not waiting.is_alive() and len(deaths) == 1


@pytest.mark.parametrize(
    ("suspicious", "is_lost", "waits"),
    [
        (False, True, ["round", 60.0, "round"]),  # Ray has lost an actor
        (True, False, ["round", 60.0, "round"]),
        (False, False, ["round"]),  # a failure may follow from a death that was not noticed yet
    ],
)
def test_a_suspicion_has_its_grace_to_become_a_fault(suspicious: bool, is_lost: bool, waits: list[object]) -> None:
    check = Told()
    check.suspicious = suspicious
    done: list[object] = []

    class Waiting(Watchdog):
        def wait_for_round(self) -> None:
            done.append("round")

        def join(self, timeout: float | None = None) -> None:
            done.append(timeout)

    Waiting([Told(), check], progress=str, grace_seconds=60.0).wait_for_verdict(is_lost)
    assert done == waits


def test_nothing_is_told_of_a_run_that_has_ended() -> None:
    check = Told()
    watchdog, deaths = watch(check)
    watchdog.stop()
    check.found = "lost everything."
    watchdog.join(timeout=10)
    assert deaths == []


def test_progress_is_printed(server: Server, capsys) -> None:
    watchdog, _ = watch(ServerCheck([address(server)]), report_seconds=0.05)
    printed: list[str] = []
    wait_until(lambda: printed.append(capsys.readouterr().out) or "step 1" in printed[-1], "progress", 10)
    watchdog.stop()
    watchdog.join(timeout=10)


class Surprising:
    """A check that raises in its first rounds, then finds a fault."""

    def __init__(self, num_rounds: int) -> None:
        self.num_left = num_rounds

    def is_suspicious(self) -> bool:
        return False

    def fault(self) -> str | None:
        if self.num_left:
            self.num_left -= 1
            raise RuntimeError("what nobody foresaw")
        return "an actor is dead."


def test_a_check_that_raises_neither_ends_the_watch_nor_hides_the_others() -> None:
    watchdog, deaths = watch(Surprising(3), Told())
    watchdog.join(timeout=10)
    assert len(deaths) == 1 and deaths[0].startswith("an actor is dead.")


def test_progress_that_cannot_be_printed_does_not_end_the_watch(capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter([RuntimeError("no progress"), "step 1"])

    def progress() -> str:
        line = next(lines, "step 2")
        if isinstance(line, Exception):
            raise line
        return line

    told = Told()
    watchdog = Watchdog([told], progress, report_seconds=0.02, interval_seconds=0.02, on_death=lambda message: None)
    watchdog.start()
    deadline = time.monotonic() + 10
    while "step 2" not in (printed := capsys.readouterr().out) and time.monotonic() < deadline:
        time.sleep(0.02)
    watchdog.stop()
    watchdog.join(timeout=10)
    assert "step 2" in printed


def test_the_process_ends_also_where_nobody_reads_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> None:
            raise BrokenPipeError

    codes: list[int] = []
    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(watchdog_module.os, "_exit", codes.append)
    with pytest.raises(BrokenPipeError):  # only because the exit is a stand-in here
        end_process("over")
    assert codes == [1]


def test_a_sick_server_is_known_at_once(server: Server) -> None:
    check = ServerCheck([address(server)])
    assert not check.is_suspicious()
    server.status = 500
    assert check.is_suspicious()
    assert check.fault() is None, "it may recover"
