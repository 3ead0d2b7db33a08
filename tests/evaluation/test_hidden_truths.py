"""Test splits whose truths are not published: asked, not graded, and written as the file to hand in."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import chat_reply, scripted
from tests.evaluation.eval_command import result_of
from tests.judge_server import JudgeServer, Reply
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import BenchmarkFiles, get_benchmark, read_rows

pytest.importorskip("openai", reason="the extra `judge` is not installed")

Questions = dict[str, Any]

CASES: dict[str, tuple[str, Any, str, Any]] = {
    # the file, what it holds, its file to hand in, and what stands there for B, for no answer, and for a failed item
    "longvideobench": (
        "lvb_test_wo_gt.json",
        [
            {"id": f"{name}_0", "video_path": f"{name}.mp4", "question": f"{name}?", "candidates": ["rain", "snow"]}
            | {"duration_group": 60, "question_category": "T2O", "topic_category": "x", "subtitle_path": "x.json"}
            for name in ("first", "second", "gone")
        ],
        "longvideobench_test_for_submission.json",
        {"first_0": "B", "second_0": "I cannot say."},
    ),
    "mlvu-test": (
        "test_question.json",
        [
            {"video": f"{name}.mp4", "question": f"{name}?", "candidates": ["x", "y"], "question_type": "plotQA"}
            | {"question_id": f"PQ_{name}"}
            for name in ("first", "second", "gone")
        ],
        "test_res.json",
        [
            {"question_id": "PQ_first", "question_type": "plotQA", "option": "B"},
            {"question_id": "PQ_second", "question_type": "plotQA", "option": ""},
        ],
    ),
}


def command_of(name: str, folder: Path, make_video: MakeVideo) -> list[str]:
    """The command that asks the questions of a case, of which two have a video; without folder and endpoint."""
    file, entries, _, _ = CASES[name]
    (folder / file).write_text(json.dumps(entries))
    (folder / "videos").mkdir()
    for video in ("first", "second"):
        (folder / "videos" / f"{video}.mp4").symlink_to(make_video(100))
    line = ["eval", f"--benchmark={name}", f"--annotations={folder / file}", f"--videos={folder / 'videos'}"]
    return [*line, "--method=direct", "--set=initial_frames=2"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_answers_are_written_to_be_handed_in(
    name: str, tmp_path: Path, make_video: MakeVideo, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, handed_in, content = CASES[name]
    line = command_of(name, tmp_path, make_video)
    scripts = {"first?": ["<answer>B</answer>"], "second?": ["<answer>I cannot say.</answer>"]}
    with JudgeServer(reply=scripted(scripts)) as server:
        assert run([*line, f"--out={tmp_path / 'out'}", f"--base-url={server.base_url}"]) == 0
        assert run([*line, f"--out={tmp_path / 'again'}", "--concurrency=1", f"--base-url={server.base_url}"]) == 0
    result = result_of(tmp_path / "out")
    overall = result["overall"]
    assert (overall["items"], overall["failed"], overall["accuracy"], overall["partial"]) == (3, 1, None, None)
    assert overall["frames"] == 2.0 and result["graded_by"] == {} and result["submission"] == handed_in
    assert [failure["item"] for failure in result["failures"]] == ["entry 2"]
    told = capsys.readouterr().err
    assert f"answers to hand in: {tmp_path / 'out' / handed_in}" in told and "a part of the questions" not in told
    written = (tmp_path / "out" / handed_in).read_bytes()
    assert json.loads(written) == content and written == (tmp_path / "again" / handed_in).read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_rows_to_train_on_need_a_truth(name: str, tmp_path: Path) -> None:
    file, entries, _, _ = CASES[name]
    (tmp_path / file).write_text(json.dumps(entries))
    read = read_rows(get_benchmark(name), BenchmarkFiles(annotations=tmp_path / file, videos=None))
    assert all(isinstance(row, RowError) and "is missing" in str(row) for _, row in read)


def test_an_item_that_failed_is_handed_in_as_unanswered(tmp_path: Path, make_video: MakeVideo) -> None:
    file, entries, handed_in, content = CASES["mlvu-test"]
    (tmp_path / file).write_text(json.dumps(entries[:2]))
    for video in ("first", "second"):
        (tmp_path / f"{video}.mp4").write_bytes(
            b"no video" if video == "second" else Path(make_video(100)).read_bytes()
        )
    line = ["eval", "--benchmark=mlvu-test", f"--annotations={tmp_path / file}", f"--videos={tmp_path}"]
    with JudgeServer(reply=lambda request: chat_reply("<answer>B</answer>")) as server:
        assert run([*line, "--method=direct", f"--out={tmp_path / 'out'}", f"--base-url={server.base_url}"]) == 0
    assert json.loads((tmp_path / "out" / handed_in).read_text()) == content
    assert result_of(tmp_path / "out")["overall"]["failed"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_first_answer_of_a_part_is_handed_in(
    name: str, tmp_path: Path, make_video: MakeVideo, capsys: pytest.CaptureFixture[str]
) -> None:
    """One answer for each question, however often it is asked; and it is told that some questions are missing."""
    _, _, handed_in, content = CASES[name]
    line = [*command_of(name, tmp_path, make_video), "--repeats=3", "--limit=2", "--concurrency=1"]
    later = ["<answer>A</answer>"] * 2
    scripts = {"first?": ["<answer>B</answer>", *later], "second?": ["<answer>I cannot say.</answer>", *later]}
    asked: Counter[str] = Counter()

    def reply(request: dict[str, Any]) -> Reply:
        text = json.dumps(request["messages"])
        question = next(each for each in scripts if each in text)
        asked[question] += 1
        return chat_reply(scripts[question][asked[question] - 1])

    with JudgeServer(reply=reply) as server:
        assert run([*line, f"--out={tmp_path / 'out'}", f"--base-url={server.base_url}"]) == 0
    assert asked == {"first?": 3, "second?": 3}
    assert json.loads((tmp_path / "out" / handed_in).read_text()) == content
    assert f"{handed_in} is of a part of the questions only" in capsys.readouterr().err
