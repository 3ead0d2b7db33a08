"""`vvt eval` with controls, and the baselines of `direct`: what is asked, and what tables call it."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.chat_server import chat_reply, pictures_of, texts_of
from tests.evaluation.eval_command import command, result_of, serving
from tests.judge_server import JudgeServer, Reply
from tests.verl_plugin.harness import model_dir
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.data.generate import RolloutTask
from verl_video_tools.evaluation import serve
from verl_video_tools.evaluation.items import read_items
from verl_video_tools.evaluation.questions import Questions, with_shuffled_options
from verl_video_tools.evaluation.tables import compare
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")


def line(files: BenchmarkFiles, out: Path, server: JudgeServer, *options: str) -> list[str]:
    parts = [part for part in command(files, out, server) if not part.startswith(("--method", "--set"))]
    return [*parts, "--method=direct", *options]


def says_b(request: dict[str, Any]) -> Reply:
    return chat_reply("<answer>B</answer>")


def options_of(text: str) -> list[str]:
    return re.findall(r"^[A-Z]\. (.+)$", text, re.MULTILINE)


def test_no_visual_sends_the_question_alone(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=says_b) as server:
        assert run(line(video_mme, tmp_path / "out", server, "--control=no-visual")) == 0
        assert len(server.requests) == 3
        for request in server.requests:
            assert all(isinstance(message["content"], str) for message in request["messages"])
            assert "<image>" not in texts_of(request["messages"][1])
    result = result_of(tmp_path / "out")
    assert result["frames"]["total"] == {"sum": 0, "mean": 0.0} and result["overall"]["failed"] == 0
    protocol = result["protocol"]
    assert (protocol["controls"], protocol["label"], protocol["method"]) == (
        ["no-visual"],
        "direct, no visual",
        "direct",
    )
    assert "| direct, no visual |" in capsys.readouterr().out


def test_methods_with_tools_are_not_asked_blind(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer() as server:
        assert run(command(video_mme, tmp_path / "out", server, "--control=no-visual")) == 2
    assert "videozoomer cannot be asked without frames: its tools show them" in capsys.readouterr().err


@pytest.mark.slow
def test_options_are_shuffled_and_the_truth_with_them(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    asked: dict[str, list[dict[str, list[str]]]] = {}
    with JudgeServer(reply=says_b) as server:
        for name, options in {
            "plain": (),
            "one": ("--control=shuffled-options",),
            "again": ("--control=shuffled-options",),
            "other": ("--control=shuffled-options", "--seed=5"),
        }.items():
            server.requests.clear()
            assert run(line(video_mme, tmp_path / name, server, *options)) == 0
            texts = sorted(texts_of(request["messages"][1]) for request in server.requests)
            asked[name] = [{text.splitlines()[0]: options_of(text)} for text in texts]
    assert asked["one"] == asked["again"] != asked["other"]
    for plain, shuffled in zip(asked["plain"], asked["one"], strict=True):
        ((question, options),), ((same, others),) = plain.items(), shuffled.items()
        assert question == same and options != others and sorted(options) == sorted(others)
    truths = {name: truths_of(tmp_path / name) for name in asked}
    assert truths["plain"] == truths["one"] == truths["other"]
    protocol = result_of(tmp_path / "one")["protocol"]
    assert (protocol["controls"], protocol["label"]) == (["shuffled-options"], "direct, shuffled options")
    results = [(tmp_path / name / "results.json").read_bytes() for name in ("one", "again")]
    assert results[0] == results[1]
    pairs = compare({name: read_items(tmp_path / name) for name in asked})
    assert {(pair["shared_items"], pair["only_in_result"], pair["only_in_minus"]) for pair in pairs} == {(3, 0, 0)}


def truths_of(out: Path) -> dict[str, str]:
    """The text of the right option of each item."""
    found = {}
    for record in read_records(out / "rollouts.jsonl"):
        info = record["extra_info"]
        found[info["index"]] = info["options"]["ABCDE".index(record["ground_truth"])]
    return found


def test_a_question_that_does_not_list_its_options_is_a_fault() -> None:
    info = {"question": "Which one?", "video_path": "v.mp4", "question_type": "mc", "options": ["a", "b"]}
    row = {"reward_model": {"ground_truth": "A"}, "extra_info": info}
    listed = {**row, "extra_info": {**info, "question": "Which one?\nA. a\nB. b\nAnswer."}}
    open_row = {**row, "extra_info": {**info, "options": None, "question_type": "open"}}
    tasks = [RolloutTask(str(number), 0, given) for number, given in enumerate((row, listed, open_row))]
    questions = with_shuffled_options(Questions("rows", tasks, {}), seed=0)
    assert list(questions.faults) == [0] and "options cannot be shuffled" in str(questions.faults[0])
    shuffled, same = (Sample.from_row(task.row) for task in questions.tasks)
    assert (shuffled.question, shuffled.ground_truth) == ("Which one?\nA. b\nB. a\nAnswer.", "B")
    assert same.question == "Which one?"


def options_row(truth: str, **info: Any) -> dict[str, Any]:
    asked = {"question": "Which?\nA. a\nB. b", "video_path": "v.mp4", "question_type": "mc", "options": ["a", "b"]}
    return {"reward_model": {"ground_truth": truth}, "extra_info": {**asked, **info}}


@pytest.mark.parametrize("option", ["Both A and B", "Only B", "A, B and D", "Options B or C"])
def test_options_that_name_others_by_their_letters_are_a_fault(option: str) -> None:
    """In another order they would say something else; a name such as "Vitamin A" says the same."""
    rows = [
        options_row("B", question=f"Which?\nA. Vitamin A\nB. {text}", options=["Vitamin A", text])
        for text in (option, "Plan B and vitamin A")
    ]
    tasks = [RolloutTask(str(number), 0, row) for number, row in enumerate(rows)]
    questions = with_shuffled_options(Questions("rows", tasks, {}), seed=0)
    assert list(questions.faults) == [0] and f"{option!r} names others by their letters" in str(questions.faults[0])


def test_a_question_without_a_truth_gets_none_by_a_control() -> None:
    tasks = [RolloutTask("0", 0, options_row("")), RolloutTask("1", 0, options_row("A"))]
    questions = with_shuffled_options(Questions("rows", tasks, {}), seed=0)
    assert [task.uid for task in questions.tasks] == ["1"] and list(questions.faults) == [0]
    assert "the row has no truth" in str(questions.faults[0])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (options_row("two", question_type="open", options=None), "Leave the control out"),
        (options_row(""), "the first: options cannot be shuffled: the row has no truth"),
    ],
)
def test_a_control_that_changes_nothing_is_refused(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=f"of 1 questions none has options that can be shuffled.*{reason}"):
        with_shuffled_options(Questions("rows", [RolloutTask("0", 0, row)], {}), seed=0)


@pytest.mark.slow
def test_controls_are_the_same_in_any_order(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    controls = ("--control=shuffled-options", "--control=no-visual")
    with JudgeServer(reply=says_b) as server:
        assert run(line(video_mme, tmp_path / "out", server, *controls)) == 0
        whole = (tmp_path / "out" / "results.json").read_bytes()
        assert run(line(video_mme, tmp_path / "out", server, *reversed(controls), controls[0])) == 0
        assert len(server.requests) == 3
    assert (tmp_path / "out" / "results.json").read_bytes() == whole


def test_the_models_own_video_input(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=says_b) as server:
        options = ("--set=frames_as=video", "--set=answering=cot")
        assert run(line(video_mme, tmp_path / "out", server, *options)) == 0
        requests = list(server.requests)
    records = list(read_records(tmp_path / "out" / "rollouts.jsonl"))
    assert len(requests) == len(records) == 3
    frames = records[0]["trajectory"].initial_frames
    info = records[0]["trajectory"].video
    assert len(frames) == 6  # 3.3 seconds, two a second
    for request in requests:
        text, video = request["messages"][1]["content"]
        assert text["type"] == "text" and video.keys() == {"type", "video_url"}
        header, *parts = video["video_url"]["url"].split(",")
        assert header == "data:video/jpeg;base64"
        pictures = [Image.open(io.BytesIO(base64.b64decode(part, validate=True))) for part in parts]
        assert [picture.size for picture in pictures] == [(frame.width, frame.height) for frame in frames]
        assert {picture.format for picture in pictures} == {"JPEG"}
        assert request["media_io_kwargs"] == {
            "video": {
                "num_frames": -1,
                "fps": info.average_fps,
                "frames_indices": [frame.index for frame in frames],
                "total_num_frames": info.num_frames,
                "duration": info.duration_seconds,
                "do_sample_frames": False,
            }
        }
        size = request["mm_processor_kwargs"]["size"]
        area = frames[0].width * frames[0].height
        assert size["shortest_edge"] <= area and size["longest_edge"] >= area * len(frames)
    result = result_of(tmp_path / "out")
    assert (result["protocol"]["label"], result["frames"]["initial"]["mean"]) == ("direct, CoT, video input", 6.0)
    assert result["protocol"]["pictures"]["encoding"] == "JPEG 95, as a video"
    assert "| direct, CoT, video input |" in capsys.readouterr().out


@pytest.mark.slow
def test_a_server_of_its_own_takes_the_video_input(
    video_mme: BenchmarkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    with JudgeServer(reply=says_b) as server:
        monkeypatch.setattr(serve, "served_model", serving(server, asked))
        command = [part for part in line(video_mme, tmp_path / "out", server) if not part.startswith("--base-url")]
        assert run([*command, f"--serve={model_dir()}", "--model=m", "--set=frames_as=video"]) == 0
    assert asked[5] is True
    # The model merges each two of six frames into one, of patches of 14 x 14 pixels, four of which are a token.
    frame = next(iter(read_records(tmp_path / "out" / "rollouts.jsonl")))["trajectory"].initial_frames[0]
    tokens = result_of(tmp_path / "out")["costs"]["visual_tokens"]
    assert tokens["mean"] == 3 * (frame.width // 28) * (frame.height // 28)


def test_images_stay_images(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    with JudgeServer(reply=says_b) as server:
        assert run(line(video_mme, tmp_path / "out", server)) == 0
        assert all(len(pictures_of(request["messages"][1])) == 16 for request in server.requests)
        assert not any({"media_io_kwargs", "mm_processor_kwargs"} & request.keys() for request in server.requests)
