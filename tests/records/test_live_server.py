"""A live page in Chromium while its run goes on, and what its server answers."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.recorded_run import rollout, write_run
from tests.records.conftest import Browse
from tests.records.test_html import ATTACK, hostile_line, listed, texts_of
from tests.videos.files import MakeVideo
from tests.viewer_page import Page, line
from verl_video_tools.records.live_run import LiveRun
from verl_video_tools.records.live_server import LiveServer


class Going(LiveRun):
    """A run in which something happens each time before a page is told what has changed."""

    def __init__(self, run: Path, events: list[Callable[[], object]], **options: Any) -> None:
        super().__init__(run, min_seconds=0.0, **options)
        self.events = events
        self.num_asked = 0

    def changes(self, since: int) -> dict[str, Any]:
        if self.num_asked < len(self.events):
            self.events[self.num_asked]()
        self.num_asked += 1
        return super().changes(since)


@contextmanager
def served(run: LiveRun, **options: Any) -> Iterator[LiveServer]:
    with LiveServer(run, "a run", **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: LiveServer, path: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    host = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    host.request(method, path)
    answer = host.getresponse()
    told = answer.status, answer.read(), dict(answer.getheaders())
    host.close()
    return told


def of_step(step: int, *scores: float) -> dict[int, list[dict[str, Any]]]:
    return {step: [rollout(f"group-{step}", score) | {"session_id": n} for n, score in enumerate(scores)]}


def nothing() -> None:
    pass


# ------------------------------------------------------------------------------------------------------------- Chromium


def test_chromium_shows_steps_that_come_while_the_page_is_open(
    tmp_path: Path, browse: Browse, make_video: MakeVideo
) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    first = line(path=path) | {"step": 1}
    first["trajectory"] = first["trajectory"].to_dict()
    run = Going(
        tmp_path, [lambda: write_run(tmp_path, {1: [first]}), lambda: write_run(tmp_path, of_step(2, 0.5, 1.5))]
    )
    with served(run) as server:
        page = browse(server.url, "", virtual_seconds=9)
    assert run.num_asked >= 3
    assert listed(page) == [1, 2, 0], "newest step first"
    assert page.having("data-rollout")[3] == "0", "what was open stays open"
    assert "3 of 3 rollouts, mean reward 1" in page.texts
    status = next(text for tag, own, text in page.elements if own.get("id") == "status")
    assert status.startswith("live: newest step 2, written ")
    is_new = [own["class"] for tag, own in page.tags if tag == "tr" and own.get("data-rollout") and "class" in own]
    assert is_new == ["new", "new"]
    assert len([source for source in page.having("src") if source.startswith("data:image/jpeg;base64,")]) == 5
    assert texts_of(page, "option")[-3:] == ["all", "1", "2"], "the filter of steps knows them"


def test_chromium_keeps_filters_and_says_what_cannot_be_read(tmp_path: Path, browse: Browse) -> None:
    records = tmp_path / "trajectories" / "step_000001.jsonl"

    def spoil() -> None:
        with records.open("a") as file:
            file.write(f"{ATTACK}\n" + '{"half a line')

    run = Going(
        write_run(tmp_path, of_step(1, 0.0, 1.0)), [nothing, lambda: write_run(tmp_path, of_step(2, 2.0, 0.0)), spoil]
    )
    with served(run) as server:
        page = browse(server.url, "min=1&sort=score", virtual_seconds=9)
    assert listed(page) == [1, 2]
    notes = [text for tag, own, text in page.elements if own.get("class") == "bad" and "line 3" in text]
    assert len(notes) == 1 and notes[0].startswith(f"{records}, line 3: not a recorded rollout")


def test_chromium_says_that_a_run_was_removed(tmp_path: Path, browse: Browse) -> None:
    folder = write_run(tmp_path / "run", of_step(1, 0.0, 1.0))
    with served(Going(folder, [nothing, lambda: shutil.rmtree(folder)])) as server:
        page = browse(server.url, "", virtual_seconds=9)
    assert listed(page) == [] and f"{folder} is not there any more" in page.texts
    assert "no step is recorded yet" not in "".join(page.texts)
    assert "Reward 0, advantage \u2013" in page.texts, "what was open stays open"


def test_chromium_offers_the_steps_that_are_shown(tmp_path: Path, browse: Browse) -> None:
    """One comes and one goes, so their number stays; the one that is chosen stays, too."""
    steps = [nothing, partial(write_run, tmp_path, of_step(2, 2.0, 0.0))]
    for fragment, offered, ids in (("", ["all", "2"], [2, 3]), ("step=1", ["all", "2", "1"], [])):
        shutil.rmtree(tmp_path / "trajectories", ignore_errors=True)
        write_run(tmp_path, of_step(1, 0.0, 1.0))
        with served(Going(tmp_path, list(steps), max_rollouts=2)) as server:
            page = browse(server.url, fragment, virtual_seconds=9)
        assert texts_of(page, "option")[-len(offered) :] == offered
        assert listed(page) == ids


def test_chromium_waits_for_a_first_step(tmp_path: Path, browse: Browse) -> None:
    with served(LiveRun(tmp_path)) as server:
        page = browse(server.url, "")
    assert listed(page) == [] and ": no step is recorded yet" in page.texts


def test_chromium_says_that_the_server_has_ended(tmp_path: Path, browse: Browse) -> None:
    class Ending(LiveRun):
        def changes(self, since: int) -> dict[str, Any]:
            if since:
                raise ConnectionAbortedError
            return super().changes(since)

    with served(Ending(write_run(tmp_path, of_step(1, 0.0, 1.0)))) as server:
        page = browse(server.url, "", virtual_seconds=6)
    assert listed(page) == [0, 1]
    assert "vvt view does not answer; it may have ended. Trying again" in page.texts


def test_chromium_takes_hostile_text_for_text(tmp_path: Path, browse: Browse) -> None:
    hostile = hostile_line()
    hostile["trajectory"] = hostile["trajectory"].to_dict()
    write_run(tmp_path, {3: [hostile]})
    with served(LiveRun(tmp_path)) as server:
        page = browse(server.url, "", virtual_seconds=5)
    assert listed(page) == [0]
    assert not page.having("data-broken") and not page.having("onerror") and not page.having("onload")
    assert "".join(page.texts).count(ATTACK) >= 6


# --------------------------------------------------------------------------------------------------------------- server


def test_what_is_served_and_how(tmp_path: Path) -> None:
    hostile = hostile_line()
    hostile["trajectory"] = hostile["trajectory"].to_dict()
    write_run(tmp_path, {3: [hostile]})
    with served(LiveRun(tmp_path)) as server:
        base = urlsplit(server.url).path
        status, content, headers = ask(server, base)
        page = Page(content.decode())
        (policy,) = [str(attributes["content"]) for _, attributes in page.tags if "http-equiv" in attributes]
        assert policy.startswith("default-src 'none'; img-src data:; connect-src 'self'; style-src 'sha256-")
        assert "unsafe" not in policy and not page.having("src") and not page.having("href")
        assert len(page.programs) == 1 and not page.blocks
        for path in ("changes/0", "rollout/0", "pictures/0"):
            status, content, headers = ask(server, base + path)
            assert status == 200 and headers["Content-Type"] == "application/json"
            assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
            assert not set(b"<>&") & set(content) and json.loads(content)
        status, content, _ = ask(server, base + "rollout/7")
        assert status == 410 and json.loads(content) == {"error": "this rollout is not shown any more"}


def test_nothing_is_served_without_the_secret(tmp_path: Path) -> None:
    """Other users of the machine can connect, too."""
    with served(LiveRun(write_run(tmp_path, of_step(1, 0.0)))) as server:
        base = urlsplit(server.url).path
        assert len(base) > 20
        for path in (
            "/",
            "//",
            "/changes/0",
            "/%00/changes/0",
            f"{base[:-2]}/changes/0",
            f"/x{base}changes/0",
            f"{base}../changes/0",
            f"{base}trajectories/step_000001.jsonl",
            f"{base}rollout/-1",
            f"{base}rollout/{'9' * 40}",
        ):
            status, content, _ = ask(server, path)
            assert status == 404 and b"group-1" not in content, path
        assert ask(server, base, "POST")[0] == 501
        assert ask(server, f"{base}changes/0")[0] == 200
    with served(LiveRun(tmp_path)) as other:
        assert urlsplit(other.url).path != base


def test_it_listens_on_this_machine_alone(tmp_path: Path) -> None:
    with served(LiveRun(tmp_path)) as server:
        assert server.server_address[0] == "127.0.0.1"
        port = server.server_address[1]
        with socket.socket() as other, pytest.raises(OSError):
            other.settimeout(5)
            other.connect(("127.0.0.2", port))
        with pytest.raises(OSError):
            LiveServer(LiveRun(tmp_path), "a second", port=port)


def test_many_pages_at_once(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, min_seconds=0.0)
    told: list[int] = []

    def follow(server: LiveServer) -> None:
        base, version, known = urlsplit(server.url).path, 0, set()
        while len(known) < 20:
            changes = json.loads(ask(server, f"{base}changes/{version}")[1])
            version = changes["version"]
            known |= {summary["id"] for summary in changes.get("added", ())}
        told.append(len(known))

    with served(run) as server:
        pages = [threading.Thread(target=follow, args=(server,)) for _ in range(4)]
        for page in pages:
            page.start()
        for step in range(1, 11):
            write_run(tmp_path, of_step(step, 0.0, 1.0))
        for page in pages:
            page.join(timeout=60)
    assert told == [20] * 4
