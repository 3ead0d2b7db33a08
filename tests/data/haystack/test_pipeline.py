"""`vvt data haystack` from videos to rows, with a server that plays all three models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytest.importorskip("scenedetect", reason="the extra `haystack` is not installed")

from tests.chat_server import chat_reply, pictures_of, texts_of
from tests.data.haystack.test_parts import write_scenes
from tests.judge_server import JudgeServer, Reply
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import Sample
from verl_video_tools.data.haystack.config import HaystackConfig
from verl_video_tools.data.haystack.estimate import estimate
from verl_video_tools.data.haystack.log import Record, read_log, run_step
from verl_video_tools.data.haystack.models import instructions
from verl_video_tools.data.haystack.pipeline import shown_seconds

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_backoff")]

COLOURS = {"red": 0, "green": 1, "blue": 2}
PROMPTS = {name: instructions(f"{name}.txt")[:40] for name in ("caption", "questions", "text_check", "visual_check")}
SMALL = {
    "min_part_seconds": 2,
    "max_part_seconds": 4,
    "scan_fps": 10,
    "min_video_seconds": 5,
    "max_evidence_share": 0.5,
    "questions_per_request": 9,
}


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer(honest) as server:
        yield server


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Red for 2.5 seconds, green for 3.5, blue for 3."""
    folder = tmp_path_factory.mktemp("videos")
    write_scenes(folder / "scenes.mp4", [2.5, 3.5, 3.0])
    return folder


def role(request: dict[str, Any]) -> str:
    system = texts_of(request["messages"][0])
    return next(name for name, start in PROMPTS.items() if system.startswith(start))


def colour(request: dict[str, Any]) -> str:
    """The only colour that all pictures of a request have."""
    pictures = [np.asarray(picture).mean(axis=(0, 1)) for picture in pictures_of(request["messages"][1])]
    (channel,) = {int(np.argmax(picture)) for picture in pictures}
    return next(name for name, index in COLOURS.items() if index == channel)


WRITTEN = [
    {"question": "Which colour comes after red?", "answer": "green", "first_part": 2, "last_part": 2},
    {"question": "Which colour does the wall have last?", "answer": "yellow", "first_part": 3, "last_part": 3},
    {"question": "What is blue?", "answer": "blue", "first_part": 3, "last_part": 3},
    {"question": "What is unclear?", "answer": "everything", "first_part": 1, "last_part": 1},
    {"question": "Which colour comes after red?", "answer": "green", "first_part": 2, "last_part": 2},
]


def honest(request: dict[str, Any]) -> Reply:
    asked = texts_of(request["messages"][1])
    match role(request):
        case "caption":
            return chat_reply(f"<think>hm</think>The wall is {colour(request)}.")
        case "questions":
            assert "1. 0.0 to 2.5 s: The wall is red.\n\n2. 2.5 to 6.0 s: The wall is green." in asked
            return chat_reply(f"Here they are:\n```json\n{json.dumps(WRITTEN)}\n```")
        case "text_check":
            return chat_reply(json.dumps({"keep": "unclear" not in asked, "reason": "because"}))
        case _:
            return chat_reply(json.dumps({"score": float(f"Answer: {colour(request)}" in asked)}))


def haystack(videos: Path, out: Path, url: str | None, *options: str, **fields: float) -> int:
    where = [] if url is None else ["--base-url", url]
    settings = [f"--set={name}={value}" for name, value in {**SMALL, **fields}.items()]
    return run(["data", "haystack", str(videos), str(out), *where, *settings, *options])


def rows_of(out: Path) -> list[dict[str, Any]]:
    return pq.read_table(out / "rows.parquet").to_pylist()


def test_from_videos_to_rows(
    videos: Path, server: JudgeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert haystack(videos, tmp_path / "run", server.base_url) == 0
    (row,) = rows_of(tmp_path / "run")
    sample = Sample.from_row(row)
    assert (row["agent_name"], sample.question, sample.ground_truth) == (
        "longvt",
        "Which colour comes after red?",
        "green",
    )
    assert (sample.question_type, sample.video_segment_seconds) == ("open", (2.5, 6.0))
    assert sample.video_path == str(videos / "scenes.mp4")
    printed = capfd.readouterr().out
    assert "1 of 5 questions written are left" in printed
    for reason in ("gives its answer away: 1", "asked before: 1", "check by text: 1", "check by sight: 1"):
        assert reason in printed
    assert Counter(map(role, server.requests)) == {"caption": 3, "questions": 1, "text_check": 3, "visual_check": 2}


def test_a_second_run_asks_nothing_and_writes_the_same(videos: Path, server: JudgeServer, tmp_path: Path) -> None:
    assert haystack(videos, tmp_path / "run", server.base_url) == 0
    first, num_requests = (tmp_path / "run" / "rows.parquet").read_bytes(), len(server.requests)
    assert haystack(videos, tmp_path / "run", server.base_url) == 0
    assert len(server.requests) == num_requests
    assert (tmp_path / "run" / "rows.parquet").read_bytes() == first


def test_a_killed_run_goes_on(videos: Path, server: JudgeServer, tmp_path: Path) -> None:
    """A file lost the end of its last line, and later files are not there yet."""
    folder = tmp_path / "run"
    assert haystack(videos, folder, server.base_url) == 0
    whole = rows_of(folder)
    for step, left in (
        ("visual_checks", {"visual_check": 1}),
        ("captions", {"caption": 1, "questions": 1, "text_check": 3, "visual_check": 2}),
    ):
        names = ("captions", "questions", "text_checks", "visual_checks")
        for later in names[names.index(step) + 1 :]:
            (folder / f"{later}.jsonl").unlink()
        path, num_requests = folder / f"{step}.jsonl", len(server.requests)
        path.write_bytes(path.read_bytes()[:-7])
        assert haystack(videos, folder, server.base_url) == 0
        assert Counter(map(role, server.requests[num_requests:])) == left
        assert rows_of(folder) == whole


def test_failures_are_told_and_made_again(
    videos: Path, server: JudgeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "videos.txt"
    listed.write_text(f"{videos / 'scenes.mp4'}\n{tmp_path / 'gone.mp4'}\n")

    def failing(request: dict[str, Any]) -> Reply:
        return Reply(b"{}", status=500) if role(request) == "visual_check" else honest(request)

    server.reply = failing
    assert haystack(listed, tmp_path / "run", server.base_url, "--deadline-seconds", "1") == 1
    assert rows_of(tmp_path / "run") == []
    told = capfd.readouterr().err
    assert told.count("scenes: 1 failed") == 1 and "gone.mp4: no such video file" in told
    assert "visual checks: 2 failed" in told
    server.reply = honest
    assert haystack(listed, tmp_path / "run", server.base_url) == 1, "what failed is not asked again unasked"
    assert haystack(listed, tmp_path / "run", server.base_url, "--retry-failed") == 0
    assert len(rows_of(tmp_path / "run")) == 1


def answering_once(name: str, text: str) -> Callable[[dict[str, Any]], Reply]:
    """`honest`, but for the first reply to each request of a role."""

    def reply(request: dict[str, Any]) -> Reply:
        is_first = role(request) == name and len(request["messages"]) == 2
        return chat_reply(text) if is_first else honest(request)

    return reply


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("caption", "<think>never ends"),
        ("questions", "I have none."),
        ("questions", json.dumps([{**WRITTEN[0], "last_part": 4}])),
        ("questions", json.dumps([{**WRITTEN[0], "question": "What is \ud83d?"}])),
        ("text_check", '{"keep": "perhaps"}'),
        ("visual_check", '{"score": 7}'),
        ("visual_check", '{"score": true}'),
    ],
)
def test_an_unusable_reply_is_answered(videos: Path, server: JudgeServer, tmp_path: Path, name: str, text: str) -> None:
    server.reply = answering_once(name, text)
    assert haystack(videos, tmp_path / "run", server.base_url) == 0
    assert len(rows_of(tmp_path / "run")) == 1
    again = [request for request in server.requests if len(request["messages"]) > 2]
    assert again and all(role(request) == name for request in again)
    assert texts_of(again[0]["messages"][-1]).startswith("That cannot be used: ")


async def test_half_a_surrogate_pair_survives_the_log(tmp_path: Path) -> None:
    async def made() -> Record:
        return {"text": "\ud83d"}

    found = await run_step(tmp_path / "log.jsonl", {"a": made}, concurrency=1, retry_failed=False)
    assert found == read_log(tmp_path / "log.jsonl") == {"a": {"key": "a", "text": "\ud83d"}}


def test_nothing_worth_asking(videos: Path, server: JudgeServer, tmp_path: Path) -> None:
    server.reply = lambda request: chat_reply("[ ]") if role(request) == "questions" else honest(request)
    assert haystack(videos, tmp_path / "run", server.base_url) == 1
    assert rows_of(tmp_path / "run") == []


def test_each_model_has_its_own_endpoint(videos: Path, server: JudgeServer, tmp_path: Path) -> None:
    with JudgeServer(honest) as writer, JudgeServer(honest, models=("looker",)) as checker:
        options = ["--writer-url", writer.base_url, "--writer-model", "poet", "--checker-url", checker.base_url]
        assert haystack(videos, tmp_path / "run", server.base_url, *options) == 0
        assert {role(request) for request in server.requests} == {"caption"}
        assert {(role(request), request["model"]) for request in writer.requests} == {
            ("questions", "poet"),
            ("text_check", "poet"),
        }
        assert {(role(request), request["model"]) for request in checker.requests} == {("visual_check", "looker")}


def test_the_estimate_bounds_what_is_asked(
    videos: Path, server: JudgeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert haystack(videos, tmp_path / "run", None, "--estimate", "--input-price", "2", "--output-price", "8") == 0
    printed = capfd.readouterr().out
    cells = {
        cells[1]: [int(cell.replace(",", "")) for cell in cells[2:6]]
        for line in printed.splitlines()
        if len(cells := [cell.strip() for cell in line.split("│")]) > 6
    }
    assert list(cells) == ["captions", "questions", "text checks", "visual checks"]
    price = sum(values[2] * 2 + values[3] * 8 for values in cells.values()) / 1e6
    assert f"total price: {price:.2f}" in printed
    assert not (tmp_path / "run" / "captions.jsonl").exists()

    told_before_asking: list[str] = []

    def listening(request: dict[str, Any]) -> Reply:
        if len(server.requests) == 1:
            told_before_asking.append(capfd.readouterr().out)
        return honest(request)

    server.reply = listening
    assert haystack(videos, tmp_path / "run", server.base_url, "--concurrency", "1") == 0
    (told,) = told_before_asking
    assert "at most, without retries" in told and "visual checks" in told
    for name, step in zip(PROMPTS, cells, strict=True):
        asked = [request for request in server.requests if role(request) == name]
        pictures = sum(len(pictures_of(request["messages"][1])) for request in asked)
        assert len(asked) <= cells[step][0] and pictures <= cells[step][1]
        assert sum(request["max_tokens"] for request in asked) <= cells[step][3]
    assert cells["captions"][:2] == [3, 9]  # all of them are made, one picture per second


def test_the_estimate_tells_videos_that_it_leaves_out(
    videos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "videos.txt"
    listed.write_text(f"{tmp_path / 'gone.mp4'}\n{videos / 'scenes.mp4'}\n{tmp_path / 'lost.mp4'}\n")
    for _ in range(2):  # the second time by the record
        assert haystack(listed, tmp_path / "run", None, "--estimate") == 0
        printed = capfd.readouterr()
        assert "at most, without retries" in printed.out
        assert f"scenes: 2 failed (--retry-failed), for example {tmp_path / 'gone.mp4'}: " in printed.err


def test_no_estimate_without_a_video(server: JudgeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    listed = tmp_path / "videos.txt"
    listed.write_text(f"{tmp_path / 'gone.mp4'}\n")
    for url, options in ((None, ["--estimate"]), (server.base_url, [])):
        assert haystack(listed, tmp_path / "run", url, *options) == 1
        printed = capfd.readouterr()
        assert "at most" not in printed.out
        assert "scenes: 1 failed (--retry-failed), for example " in printed.err and "no such video file" in printed.err
        assert f"VideoError: {listed}: none of 1 videos can be read; fix them, then give --retry-failed" in printed.err
    assert server.requests == []


def test_the_estimate_counts_evidence_of_several_parts() -> None:
    parts = [(10.0 * number, 10.0 * number + 10.0) for number in range(15)]
    scenes = {"a.mp4": {"parts": parts, "width": 64, "height": 64, "duration_seconds": 1500.0}}
    found = {step.step: step for step in estimate(scenes, HaystackConfig())}
    two_parts = len(shown_seconds((0.0, 20.0), HaystackConfig().check_fps, HaystackConfig().max_frames))
    assert (found["visual checks"].requests, found["visual checks"].images) == (3, 3 * two_parts)
    short = HaystackConfig(max_evidence_seconds=15.0)  # longer evidence is dropped, so that one part is the most
    assert {step.step: step.images for step in estimate(scenes, short)}["visual checks"] == 3 * 20
    none = {step.step: step.requests for step in estimate(scenes, HaystackConfig(max_evidence_seconds=5.0))}
    assert none == {"captions": 15, "questions": 1, "text checks": 0, "visual checks": 0}


def test_a_reply_that_is_cut_is_answered(videos: Path, server: JudgeServer, tmp_path: Path) -> None:
    def cut(request: dict[str, Any]) -> Reply:
        is_first = role(request) == "caption" and len(request["messages"]) == 2
        return chat_reply("The wall is", finish_reason="length") if is_first else honest(request)

    server.reply = cut
    assert haystack(videos, tmp_path / "run", server.base_url, "--set", "max_caption_tokens=70") == 0
    again = [request for request in server.requests if len(request["messages"]) > 2]
    assert len(again) == 3 and "it is cut at its limit of 70 tokens" in texts_of(again[0]["messages"][-1])


def test_evidence_that_is_a_large_part_of_its_video_is_dropped(
    videos: Path, server: JudgeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A crop of the whole video would be grounded by it, and shows nothing that the first look did not."""
    whole = {"question": "What is painted?", "answer": "a wall", "first_part": 1, "last_part": 3}

    def reply(request: dict[str, Any]) -> Reply:
        return chat_reply(json.dumps([whole, WRITTEN[0]])) if role(request) == "questions" else honest(request)

    server.reply = reply
    assert haystack(videos, tmp_path / "run", server.base_url) == 0
    assert [row["extra_info"]["video_segment"] for row in rows_of(tmp_path / "run")] == [[2.5, 6.0]]
    assert "dropped, its segment is a large part of its video: 1" in capfd.readouterr().out
    # 3.5 of 9 seconds
    assert haystack(videos, tmp_path / "narrow", server.base_url, max_evidence_share=0.38) == 1
    assert "dropped, its segment is a large part of its video: 2" in capfd.readouterr().out
    assert HaystackConfig().max_evidence_share < 0.3, "the IoU from which a crop counts as grounded (paper 3.2)"


def test_short_videos_are_left_out_before_any_model_is_asked(
    videos: Path, server: JudgeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_scenes(tmp_path / "short.mp4", [2.0, 2.0])
    listed = tmp_path / "videos.txt"
    listed.write_text(f"{videos / 'scenes.mp4'}\n{tmp_path / 'short.mp4'}\n")
    assert haystack(listed, tmp_path / "run", server.base_url) == 0
    told = f"scenes: 1 left out as shorter than 5 s (min_video_seconds), for example {tmp_path / 'short.mp4'} (4.0 s)"
    assert told in capfd.readouterr().err
    assert Counter(map(role, server.requests))["caption"] == 3
    num_requests = len(server.requests)
    for options in ([], ["--estimate"]):
        assert haystack(videos, tmp_path / "none", server.base_url, *options, min_video_seconds=10) == 2
        assert "no video is long enough" in capfd.readouterr().err
    assert len(server.requests) == num_requests


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "max_evidence_share=0"], "max_evidence_share must be above 0, at most 1"),
        (["--set", "min_video_seconds=-1"], "min_video_seconds must be at least 0"),
        (["--set", "min_score=2"], "min_score must be 0 to 1"),
        (["--set", "max_part_seconds=3"], "max_part_seconds must be at least 4"),
        (["--set", "score=2"], "no field 'score'"),
        ([], "--base-url is missing"),
    ],
)
def test_bad_usage(
    videos: Path, tmp_path: Path, options: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["data", "haystack", str(videos), str(tmp_path / "run"), "--set", "min_part_seconds=2", *options]
    assert run(arguments) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_belongs_to_its_options(
    videos: Path, server: JudgeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert haystack(videos, tmp_path / "run", server.base_url) == 0
    assert haystack(videos, tmp_path / "run", server.base_url, "--set", "min_score=0.5") == 2
    assert "was made with min_score=0.85, not 0.5" in capfd.readouterr().err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "prompts": "others"}))
    assert haystack(videos, tmp_path / "run", server.base_url) == 2
    assert "was made with prompts='others', not" in capfd.readouterr().err


def test_a_folder_belongs_to_its_models(
    videos: Path, server: JudgeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert haystack(videos, folder, server.base_url, "--checker-model", "looker") == 0
    assert haystack(videos, folder, server.base_url, "--model", "other") == 0, "nobody is asked"
    num_requests = len(server.requests)
    for step, role_name, asked in (
        ("captions", "captioner", "comparing-judge"),
        ("visual_checks", "checker", "looker"),
    ):
        whole = (folder / f"{step}.jsonl").read_bytes()
        (folder / f"{step}.jsonl").write_bytes(whole[:-7])
        assert haystack(videos, folder, server.base_url, "--model", "other") == 2
        assert f"was made with {role_name}='{asked}', not 'other'" in capfd.readouterr().err
        (folder / f"{step}.jsonl").write_bytes(whole)
    assert len(server.requests) == num_requests


def test_a_lost_endpoint_ends_the_run(videos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is recorded as failed, so that the next run goes on as after any other end."""
    folder = tmp_path / "run"

    def dying(request: dict[str, Any]) -> Reply:
        if len(server.requests) == 2:
            server.kill()
        return honest(request)

    with JudgeServer(dying) as server:
        assert haystack(videos, folder, server.base_url, "--concurrency", "1", "--deadline-seconds", "1") == 1
    told = capfd.readouterr().err
    assert "EndpointError: no usable reply" in told and "captions.jsonl holds 1 of 3, and the next run goes on" in told
    assert not any("error" in record for record in read_log(folder / "captions.jsonl").values())
    with JudgeServer(honest) as server:
        assert haystack(videos, folder, server.base_url) == 0
        assert Counter(map(role, server.requests))["caption"] == 2


def test_a_caption_made_again_asks_anew_for_its_own_group(videos: Path, server: JudgeServer, tmp_path: Path) -> None:
    """Groups of parts 1 and 2, and of part 3, whichever of their captions there are."""

    def failing(request: dict[str, Any]) -> Reply:
        is_first = role(request) == "caption" and colour(request) == "red"
        return chat_reply(" ") if is_first else without_questions(request)

    def without_questions(request: dict[str, Any]) -> Reply:
        return chat_reply("[]") if role(request) == "questions" else honest(request)

    options = ["--set", "captions_per_request=2", "--max-attempts", "1"]
    server.reply = failing
    assert haystack(videos, tmp_path / "run", server.base_url, *options) == 1
    assert Counter(map(role, server.requests)) == {"caption": 3, "questions": 2}
    server.reply, num_requests = without_questions, len(server.requests)
    assert haystack(videos, tmp_path / "run", server.base_url, *options, "--retry-failed") == 1
    assert Counter(map(role, server.requests[num_requests:])) == {"caption": 1, "questions": 1}
